"""What an exported file says of itself: inputs, their preparation, outputs, classes, and the run it came from."""

from typing import Any

from moonfed import __version__
from moonfed.api.classifier import Classifier
from moonfed.data.readers.options import AUDIO, TABLE, TEXT
from moonfed.data.readers.vocabulary import FIRST_WORD, PADDING, UNKNOWN_WORD

INPUT, LOGITS, PROBABILITIES, PREDICTED = "input", "logits", "probabilities", "predicted"


def describe_model(model: Classifier) -> dict[str, Any]:
    """Describe a model that takes encoded inputs: what every exported file has to say."""
    encoding = model.encoding
    kind = TEXT if model.words else encoding.kind
    dtype = "int64" if model.words else "uint8" if model.images else "float32"
    return {
        "moonfed": __version__,
        "run": model.run,
        "kind": kind,
        "label": encoding.label,
        "classes": [str(name) for name in model.classes],
        "inputs": [{"name": INPUT, "type": dtype, "shape": ["batch", *model.shape]}],
        "outputs": [{"name": LOGITS, "type": "float32", "shape": ["batch", len(model.classes)]}],
        **({} if model.temperature is None else {"temperature": model.temperature}),  # the logits are divided by it
        **_preparation(model, kind),
    }


def _preparation(model: Classifier, kind: str) -> dict[str, Any]:
    """Describe what happens to rows: inside of the file, or before they get there."""
    details, schema = model.encoding.details, model.encoding.schema
    if kind == TABLE:
        return {"columns": [_column(column) for column in details["columns"]], "features": _features(details)}
    if kind == TEXT:
        known = {k: details[k] for k in ("words", "length") if k in details}
        return {"text": {"padding": PADDING, "unknown": UNKNOWN_WORD, "first_word": FIRST_WORD, **known}}
    if kind == AUDIO:
        scale = {k: details[k] for k in ("axis", "mean", "std")}
        return {
            "spectrogram": {k: v for k, v in schema.items() if k != "shape"},
            "normalisation": scale | _INSIDE[False],
        }
    if not model.mean.numel():
        return {}
    scale = {"axis": 1, "mean": model.mean.flatten().tolist(), "std": model.std.flatten().tolist()}
    return {"normalisation": scale | _INSIDE[True]}


_INSIDE = {True: {"applied_by": "the model"}, False: {"applied_by": "the caller"}}


def _column(column: dict[str, Any]) -> dict[str, Any]:
    if column["kind"] == "category":
        return {"name": column["name"], "kind": "category", "type": "string", "categories": column["values"]}
    scale = {"mean": column["mean"], "std": column["std"], "missing_flag": column["missing"]}
    return {"name": column["name"], "kind": "number", "type": "float64", **scale}


def _features(details: dict[str, Any]) -> list[str]:
    """Name the inputs of the network in their order."""
    names: list[str] = []
    for column in details["columns"]:
        if column["kind"] == "category":
            names += [f"{column['name']} = {value}" for value in column["values"]]
        else:
            names += [column["name"], *[f"{column['name']} is missing"] * column["missing"]]
    return names
