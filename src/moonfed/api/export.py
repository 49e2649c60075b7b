"""A trained model as a file that needs nothing of this package: torch.export's .pt2 or ONNX."""

import copy
import io
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch.export import Dim, ExportedProgram

from moonfed.api.classifier import Classifier
from moonfed.core.errors import UserError
from moonfed.core.files import write_bytes

SUFFIXES = (".pt2", ".onnx")


def export(model: Classifier, path: str | PathLike[str]) -> Path:
    """Write a model for batches of any size, with its normalisation inside and the names of its classes beside."""
    path = Path(path)
    if not isinstance(model, Classifier):
        raise UserError(f"export takes result.model or what load gives, got {type(model).__name__}")
    if path.suffix.lower() not in SUFFIXES:
        raise UserError(f"a model is exported to a file that ends in .pt2 or .onnx, got {path.name}")
    facts = {"classes": [str(name) for name in model.classes], "input": ["batch", *model.shape], "output": "logits"}
    kind = torch.int64 if model.words else torch.uint8 if model.images else torch.float32
    facts["kind"] = str(kind).removeprefix("torch.")
    with _quiet():
        program = _program(model, torch.zeros(2, *model.shape, dtype=kind))
        written = _pt2(program, facts) if path.suffix.lower() == ".pt2" else _onnx(program, facts)
    write_bytes(path, written)
    return path


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


def _pt2(program: ExportedProgram, facts: dict[str, Any]) -> bytes:
    """Write a graph as JSON and weights as plain bytes, without the rows of the dry run that torch would add."""
    program._example_inputs = None  # type: ignore[assignment]
    archive = io.BytesIO()
    torch.export.save(program, archive, extra_files={"moonfed.json": json.dumps(facts)})
    return archive.getvalue()


def _onnx(program: ExportedProgram, facts: dict[str, Any]) -> bytes:
    try:
        import onnx
        import onnxscript  # noqa: F401 (torch.onnx needs it)
    except ImportError:
        raise UserError("ONNX needs two packages more: pip install moonfed[onnx]; .pt2 needs none") from None
    try:
        made: Any = torch.onnx.export(program, verbose=False, input_names=["input"], output_names=["logits"])
    except torch.onnx.OnnxExporterError as error:
        raise UserError(f"the network cannot be written as ONNX: {_first(error)}; .pt2 can hold it") from None
    whole = made.model_proto
    onnx.helper.set_model_props(whole, {key: json.dumps(value) for key, value in facts.items()})
    return whole.SerializeToString()


def _first(error: BaseException) -> str:
    """Say in one line why it did not work: the cause at the bottom of a chain of errors."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep back what torch says to people who work on torch."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "torch.export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
