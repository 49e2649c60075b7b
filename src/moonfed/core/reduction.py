"""Adds up what parties contribute, for aggregators that need the sum alone and for those that see every upload."""

from collections.abc import Collection, Iterator

import torch

from moonfed.core.averaging import total_of, weighted_total
from moonfed.core.rules import Aggregator
from moonfed.core.tree import nbytes
from moonfed.core.types import Population, ReceivedUpload, State, Tensors, Update


def mean_update(rule: Aggregator, state: State, received: Collection[ReceivedUpload], population: Population) -> Update:
    """Add contributions up by their shares, in order, for a reduce that ends in a mean."""
    total, _ = total_contribution(rule, received)
    update = rule.update(state, total, population)
    assert update is not None, "a mean always gives one"
    return update


def total_contribution(rule: Aggregator, received: Collection[ReceivedUpload]) -> tuple[Tensors, list[int]]:
    """Add contributions up in order; return the bytes of each that is not empty, too."""
    if _is_weighted_mean(rule, received):
        total = weighted_total([each.upload for each in received], [each.share for each in received])
        return total, [nbytes(total)] * len(received)
    sizes: list[int] = []

    def contributions() -> Iterator[Tensors]:
        for each in received:
            part = rule.contribute(each.upload, each.info, each.share)
            sizes.extend([nbytes(part)] if part else [])
            yield part

    return total_of(contributions()), sizes


def _is_weighted_mean(rule: Aggregator, received: Collection[ReceivedUpload]) -> bool:
    """Whether contributions are updates times shares, in types in which a product by itself has the same bits."""
    types = {tensor.dtype for each in received for tensor in each.upload.delta.values()}
    return type(rule).contribute is Aggregator.contribute and types in ({torch.float32}, {torch.float64})
