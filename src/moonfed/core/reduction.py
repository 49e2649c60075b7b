"""What aggregators that see every upload have in common."""

from collections.abc import Iterable

from moonfed.core.averaging import total_of
from moonfed.core.rules import Aggregator
from moonfed.core.types import Population, ReceivedUpload, State, Update


def mean_update(rule: Aggregator, state: State, received: Iterable[ReceivedUpload], population: Population) -> Update:
    """Add contributions up by their shares, in order, for a reduce that ends in a mean."""
    total = total_of(rule.contribute(each.upload, each.info, each.share) for each in received)
    update = rule.update(state, total, population)
    assert update is not None, "a mean always gives one"
    return update
