"""Whether a network computes the same when its hidden units change places: tried, as shapes alone cannot show it."""

import torch
from torch.func import functional_call

from moonfed.core.errors import UserError
from moonfed.core.matching import layer_chain, not_a_chain, reorder
from moonfed.core.seeds import generator
from moonfed.core.types import Snapshot
from moonfed.training.network import NetSpec, build

OUTPUT_LAYER = "head."  # its units, the classes, stay in their order
TOLERANCE = 1e-3  # relative; rounding gives some 1e-6, a unit in a wrong place about 1


@torch.no_grad()
def check_unit_order(spec: NetSpec, public: Snapshot, private: frozenset[str], method: str) -> None:
    """Refuse a network whose outputs depend on the order of hidden units; public is what parties exchange of it.

    All weights and statistics are random, also those that begin with zeros or ones, so that none is equal by chance.
    """
    net, rng = build(spec).eval(), generator(0, "unit order")
    tensors = dict(net.named_parameters()) | dict(net.named_buffers())
    floats = [name for name, tensor in tensors.items() if tensor.is_floating_point()]
    tensors |= {k: tensors[k] + 0.1 * torch.as_tensor(rng.random(tensors[k].shape)).to(tensors[k]) for k in floats}
    shape, words = (4, *spec.shape.shape), spec.shape.words
    drawn = torch.as_tensor(rng.integers(0, words + 1, shape) if words else rng.standard_normal(shape))
    rows = drawn if words else drawn.to(torch.get_default_dtype())
    chain = layer_chain(public, method)
    orders = [torch.as_tensor(rng.permutation(layer.units)) for layer in chain[:-1]]
    one, other = (functional_call(net, each, (rows,)).logits for each in (tensors, reorder(chain, tensors, orders)))
    if not bool((one - other).abs().max() <= TOLERANCE * one.abs().max()):
        if not all(name.startswith(OUTPUT_LAYER) for name in private):
            raise UserError(
                f"{method} reorders hidden units, and layers that stay at the parties keep the order that they have; "
                "use another aggregator, or an algorithm that shares these layers"
            )
        raise not_a_chain(method, f"the outputs of {spec.encoder.partition('@')[0]} depend on the order of its units")
