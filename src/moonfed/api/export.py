"""A trained model as a file that needs nothing of this package: torch.export's .pt2 or ONNX."""

import copy
import io
import json
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from moonfed.api.classifier import Classifier
from moonfed.api.export_facts import INPUT, LOGITS, describe_model
from moonfed.api.quiet import quiet
from moonfed.core.errors import UserError
from moonfed.core.files import write_bytes, write_json

SUFFIXES = (".pt2", ".onnx")


def export(model: Classifier, path: str | PathLike[str]) -> Path:
    """Write a model for batches of any size, and beside it a JSON file that says what it takes and gives.

    An ONNX file of a table takes raw columns by name; docs/export.md describes all kinds.
    """
    path = Path(path)
    if not isinstance(model, Classifier):
        raise UserError(f"export takes result.model or what load gives, got {type(model).__name__}")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"a model is exported to a file that ends in .pt2 or .onnx, got {path.name}")
    facts = describe_model(model)
    kind = getattr(torch, facts["inputs"][0]["type"])
    with _quiet():
        program = _program(model, torch.zeros(2, *model.shape, dtype=kind))
        content, facts = _pt2(program, facts) if path.suffix.lower() == ".pt2" else _onnx(program, facts)
    write_bytes(path, content)
    write_json(facts_path(path), facts)
    return path


def facts_path(path: Path) -> Path:
    """Return where the description of an exported file is written: model.onnx.json beside model.onnx."""
    return path.with_name(f"{path.name}.json")


def _program(model: Classifier, rows: torch.Tensor) -> ExportedProgram:
    plain = copy.deepcopy(model).cpu()
    try:
        program = torch.export.export(plain, (rows,), dynamic_shapes=({0: Dim("batch", min=1)},))
    except Exception as error:  # tracing runs the code of a custom encoder, which may raise anything
        raise UserError(f"the network cannot be written down as a graph by torch.export: {_first(error)}") from None
    for graph in (part for part in program.graph_module.modules() if isinstance(part, torch.fx.GraphModule)):
        for node in graph.graph.nodes:  # where on whose disk the code of a layer stands is nobody's business
            node.meta.pop("stack_trace", None)
    return program


def _pt2(program: ExportedProgram, facts: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Write a graph as JSON and weights as plain bytes, without the rows of the dry run that torch would add."""
    program._example_inputs = None  # type: ignore[assignment]
    archive = io.BytesIO()
    torch.export.save(program, archive, extra_files={"moonfed.json": json.dumps(facts)})
    return archive.getvalue(), facts


def _onnx(program: ExportedProgram, facts: dict[str, Any]) -> tuple[bytes, dict[str, Any]]:
    """Write a graph with what prepares raw columns in front of it; each fact is JSON in the file's metadata."""
    try:
        import onnxscript  # noqa: F401 (torch.onnx needs it)

        from moonfed.api.onnx_graph import whole_model, with_facts
    except ImportError:
        raise UserError("ONNX needs two packages more: pip install moonfed[onnx]; .pt2 needs none") from None
    try:
        made: Any = torch.onnx.export(program, verbose=False, input_names=[INPUT], output_names=[LOGITS])
    except torch.onnx.OnnxExporterError as error:
        raise UserError(f"the network cannot be written as ONNX: {_first(error)}; .pt2 can hold it") from None
    whole, facts = whole_model(made.model_proto, facts)
    return with_facts(whole, {key: json.dumps(value) for key, value in facts.items()}), facts


def _first(error: BaseException) -> str:
    """Say in one line why it did not work: the cause at the bottom of a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch says to people who work on torch."""
    with quiet("torch.onnx", "onnxscript", "torch.export"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
