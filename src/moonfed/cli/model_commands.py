"""moonfed predict and export: a run's model put to use."""

import json as encoding
import logging
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.cli.progress import working
from moonfed.core.errors import UserError

COLUMNS_SHOWN = 6  # of an exported table, on the screen
logger = logging.getLogger(__name__)
Run = Annotated[Path, typer.Argument(metavar="RUN", help="run folder")]
Own = Annotated[
    str | None,
    typer.Option("--model", metavar="FILE.py:NAME", help="code of the custom encoder, if the run used one"),
]

Party = Annotated[
    str | None,
    typer.Option(
        "--party",
        metavar="NAME",
        help="whose model, where each party has its own (fedper, ditto, solo); a site's personal.safetensors",
    ),
]


def predict(
    run: Run,
    data: Annotated[Path, typer.Argument(metavar="DATA", help="a file or folder like the run's own data")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE.csv", help="write the predictions here; default: stdout")
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="column of identifiers to carry into the predictions")
    ] = None,
    model: Own = None,
    party: Party = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="skip rows that cannot be used")] = False,
    json: Annotated[bool, typer.Option("--json", help="print one JSON value to stdout")] = False,
) -> None:
    """Predict the classes of new rows with a run's model: moonfed predict runs/mine new.csv -o predictions.csv."""
    _file(out, (".csv",))
    with working():
        logger.info("reading the model")
        from moonfed.api.predict import predict_rows
        from moonfed.core.files import write_bytes

        found = predict_rows(run, data, model, skip_bad_rows, id, party)
        if out is not None:
            write_bytes(out, found.as_csv().encode())
    if json:
        typer.echo(encoding.dumps(found.as_json(), indent=2, allow_nan=False))
    elif out is not None:
        typer.echo(f"{found.summary()}; {out}")
        if found.metrics_summary():
            typer.echo(found.metrics_summary())
    else:
        typer.echo(found.as_csv(), nl=False)
        if found.accuracy is not None or found.training_rows:
            typer.echo(found.summary(), err=True)
            if found.metrics_summary():
                typer.echo(found.metrics_summary(), err=True)


def export(
    run: Run,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="model.pt2 or model.onnx")],
    model: Own = None,
    party: Party = None,
    json: Annotated[bool, typer.Option("--json", help="print one JSON value to stdout")] = False,
) -> None:
    """Write a run's model as one file that needs nothing of this package: moonfed export runs/mine -o model.onnx."""
    _file(out, (".pt2", ".onnx"))
    with working():
        logger.info("reading the model")
        from moonfed.api.export import export as write
        from moonfed.api.export import facts_path
        from moonfed.api.predict import load_classifier
        from moonfed.core.files import read_json
        from moonfed.storage.saved_model import read_saved

        saved = read_saved(run, model, party)
        logger.info(f"writing {out}")
        facts = read_json(facts_path(write(load_classifier(saved), out)))
    if json:
        about = {"file": str(out), "bytes": out.stat().st_size, "which": saved.which}
        typer.echo(encoding.dumps(about | facts, indent=2))
    else:
        gives, classes = ", ".join(output["name"] for output in facts["outputs"]), f"{len(facts['classes'])} classes"
        typer.echo(
            f"{saved.which}, takes {_takes(facts['inputs'])}, gives {gives} of {classes}; {out}, {out.name}.json"
        )


def _takes(inputs: list[dict[str, Any]]) -> str:
    """Say in a few words what an exported model takes."""
    if inputs[0]["shape"] != ["batch"]:
        return " x ".join(str(n) for n in inputs[0]["shape"])
    names = [column["name"] for column in inputs[:COLUMNS_SHOWN]]
    more = len(inputs) - len(names)
    return f"the columns {', '.join(names)}{f' and {more} more' * (more > 0)}"


def _file(out: Path | None, suffixes: tuple[str, ...]) -> None:
    if out is None:
        return
    if out.suffix.lower() not in suffixes:
        raise UserError(f"-o needs a file that ends in {' or '.join(suffixes)}, got {out}")
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"cannot write {out}: it needs a file's name in a folder that is there")
