"""ONNX graphs round a network: raw columns in front of it, probabilities and the class's name behind it."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, compose, helper, numpy_helper

from moonfed.api.export_facts import INPUT, LOGITS, PREDICTED, PROBABILITIES

ML = "ai.onnx.ml"  # the domain of OneHotEncoder
ML_VERSION = 3
INSIDE = "network/"  # begins the names of everything between inputs and outputs


class Graph:
    """Nodes and constants of a graph, added one after the other."""

    def __init__(self, inside: str) -> None:
        self.inside = inside
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, inputs: Sequence[str], out: str, domain: str = "", **settings: Any) -> str:
        """Add a node and return the name of what it computes."""
        self.nodes.append(helper.make_node(kind, list(inputs), [out], out, domain=domain, **settings))
        return out

    def constant(self, name: str, value: Any) -> str:
        """Add a constant and return its name."""
        self.constants.append(numpy_helper.from_array(np.asarray(value), self.inside + name))
        return self.inside + name


def whole_model(network: Any, facts: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a model that takes raw columns, if rows are those of a table, and the facts as they then are.

    It gives logits, probabilities and the name of the likeliest class.
    """
    _name_batch(network)
    columns: list[dict[str, Any]] | None = facts.get("columns")
    taken = {INPUT} if columns is None else {column["name"] for column in columns}
    inside = INSIDE
    while any(name.startswith(inside) for name in taken):
        inside = f"_{inside}"
    network = compose.add_prefix(network, inside, rename_inputs=columns is not None)
    graph, inner = Graph(inside), network.graph
    inputs = list(inner.input) if columns is None else _encode(graph, columns, inner.input[0].name)
    graph.nodes += inner.node
    outputs = _outputs(graph, inner.output[0].name, facts["classes"], taken)
    made = helper.make_graph(
        graph.nodes, "moonfed", inputs, outputs, [*inner.initializer, *graph.constants], value_info=inner.value_info
    )
    uses_ml = any(node.domain == ML for node in graph.nodes)
    opsets = [*network.opset_import, *[helper.make_opsetid(ML, ML_VERSION)] * uses_ml]
    model = helper.make_model(made, opset_imports=opsets, ir_version=network.ir_version, functions=network.functions)
    model.producer_name, model.producer_version = "moonfed", facts["moonfed"]
    return model, facts | {"inputs": list(map(_describe, inputs)), "outputs": list(map(_describe, outputs))}


def _name_batch(network: Any) -> None:
    """Call the batch axis "batch"; torch calls it by a symbol of its own."""
    graph = network.graph
    symbol = graph.input[0].type.tensor_type.shape.dim[0].dim_param
    for value in [*graph.input, *graph.output, *graph.value_info]:
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param == symbol:
                axis.dim_param = "batch"


def _encode(graph: Graph, columns: Sequence[dict[str, Any]], out: str) -> list[Any]:
    """Add what turns raw columns into the network's inputs, as in training; return the inputs of the graph."""
    numbers = [column for column in columns if column["kind"] == "number"]
    parts = _encode_numbers(graph, numbers) if numbers else []
    order: list[int] = []  # where each input of the network is among the parts: numbers, their flags, categories
    number, width = 0, 2 * len(numbers)
    for column in columns:
        if column["kind"] == "number":
            order += [number, *[len(numbers) + number] * column["missing_flag"]]
            number += 1
        elif column["categories"]:
            one_hot, names = f"{graph.inside}category{len(parts)}", column["categories"]
            parts.append(graph.node("OneHotEncoder", [column["name"]], one_hot, ML, cats_strings=names, zeros=1))
            order += range(width, width + len(names))
            width += len(names)
    joined = graph.node("Concat", parts, f"{graph.inside}parts", axis=1)
    graph.node("Gather", [joined, graph.constant("order", np.array(order, dtype=np.int64))], out, axis=1)
    kinds = {"number": TensorProto.DOUBLE, "category": TensorProto.STRING}
    used = [column for column in columns if column["kind"] == "number" or column["categories"]]
    return [helper.make_tensor_value_info(column["name"], kinds[column["kind"]], ["batch"]) for column in used]


def _encode_numbers(graph: Graph, numbers: Sequence[dict[str, Any]]) -> list[str]:
    """Standardise numbers in double precision; one that is missing becomes the mean. Returns numbers and flags."""
    inside, axis = graph.inside, graph.constant("axis", np.array([1], dtype=np.int64))
    single = [graph.node("Unsqueeze", [column["name"], axis], f"{inside}number{k}") for k, column in enumerate(numbers)]
    raw = graph.node("Concat", single, f"{inside}numbers", axis=1)
    mean, std = (graph.constant(name, [column[name] for column in numbers]) for name in ("mean", "std"))
    centred = graph.node("Sub", [raw, mean], f"{inside}centred")
    scaled = graph.node("Div", [centred, std], f"{inside}scaled")
    missing = graph.node("IsNaN", [raw], f"{inside}missing")
    filled = graph.node("Where", [missing, graph.constant("zero", 0.0), scaled], f"{inside}filled")
    both = ((filled, "standardised"), (missing, "flags"))
    return [graph.node("Cast", [value], f"{inside}{name}", to=TensorProto.FLOAT) for value, name in both]


def _outputs(graph: Graph, logits: str, classes: Sequence[str], taken: set[str]) -> list[Any]:
    """Add probabilities and the name of the likeliest class; an output that has a column's name gets a _ behind it."""
    names = [LOGITS, PROBABILITIES, PREDICTED]
    while taken & set(names):
        names = [f"{name}_" if name in taken else name for name in names]
    graph.node("Identity", [logits], names[0])
    graph.node("Softmax", [logits], names[1], axis=1)
    best = graph.node("ArgMax", [logits], f"{graph.inside}best", axis=1, keepdims=0)
    graph.node("Gather", [graph.constant("classes", np.array(classes, dtype=object)), best], names[2], axis=0)
    floats = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", len(classes)]) for n in names[:2]]
    return [*floats, helper.make_tensor_value_info(names[2], TensorProto.STRING, ["batch"])]


def _describe(value: Any) -> dict[str, Any]:
    kind = value.type.tensor_type
    shape = [axis.dim_param or axis.dim_value for axis in kind.shape.dim]
    return {"name": value.name, "type": _type_name(kind.elem_type), "shape": shape}


def _type_name(kind: int) -> str:
    return "string" if kind == TensorProto.STRING else str(helper.tensor_dtype_to_np_dtype(kind))


def with_facts(model: Any, facts: dict[str, str]) -> bytes:
    """Write a model with facts in its metadata."""
    helper.set_model_props(model, facts)
    onnx.checker.check_model(model)
    return model.SerializeToString(deterministic=True)
