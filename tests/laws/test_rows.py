"""What is computed for the rows of one tensor together has the bits of row by row."""

import pytest
import torch
from worlds import ready, run, same_bits, settings

from moonfed.core import averaging
from moonfed.core.averaging import total_of, weighted, weighted_total
from moonfed.core.tree import bases_of, leaves, rows_of, stack_rows
from moonfed.core.types import Snapshot, Upload
from moonfed.engines import ENGINES, EngineOptions
from moonfed.engines.stacked.lanes import copy_to

TABLE = torch.arange(24.0).view(4, 2, 3).clone()


@pytest.mark.parametrize(
    ("rows", "shared"),
    [
        (list(TABLE.unbind()), True),
        (list(TABLE.unbind())[1:3], True),
        (list(TABLE.unbind())[::2], True),
        (list(TABLE[:, 0].unbind()), True),
        (list(TABLE[:, 0, 0].unbind()), True),
        (list(TABLE.unbind())[::-1], False),
        ([TABLE[0], TABLE[0]], False),
        ([TABLE[0], TABLE[1].clone()], False),
        ([TABLE[0], TABLE[2], TABLE[3]], False),
        ([TABLE[0, :, :2], TABLE[1].view(3, 2).T[:, :2]], False),
        ([TABLE[0]], False),
        ([torch.ones(2), torch.zeros(2)], False),
    ],
)
def test_rows_in_order_are_stacked_without_a_copy_and_others_with_one(rows, shared):
    stacked = stack_rows(rows)
    assert torch.equal(stacked, torch.stack(rows))
    assert (stacked.data_ptr() == rows[0].data_ptr()) == shared


def test_taking_a_stacked_tree_apart_gives_the_trees_of_its_rows():
    tree = {"model": Snapshot({"w": TABLE, "b": TABLE[:, 0, 0]}, {}), "count": [torch.arange(4)]}
    for place, row in enumerate(rows_of(tree, 4)):
        weights = {"w": TABLE[place], "b": TABLE[place, 0, 0]}
        assert same_bits(row, {"model": Snapshot(weights, {}), "count": [torch.tensor(place)]})
    assert rows_of(Snapshot({}, {}), 2) == [Snapshot({}, {})] * 2
    assert [whole is TABLE for whole in bases_of([*TABLE.unbind(), TABLE, TABLE.clone()])] == [True, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("limit", [1, 500, 1 << 26])
@pytest.mark.parametrize("as_rows", [True, False])
def test_weighted_updates_that_are_added_as_rows_have_the_bits_of_one_by_one(dtype, limit, as_rows, monkeypatch):
    monkeypatch.setattr(averaging, "MAX_BYTES_TOGETHER", limit)
    random = torch.Generator().manual_seed(0)
    sizes = {"w": (5, 4, 3), "b": (5, 3), "unit": (5,)}
    deltas = {k: torch.randn(size, dtype=dtype, generator=random) * 1e3 for k, size in sizes.items()}
    deltas["b"][:, 0] = -0.0
    buffers = {"mean": torch.randn(5, 3, generator=random), "batches": torch.arange(5) * 1000003}
    rows = [[dict(row) for row in rows_of(part, 5)] for part in (deltas, buffers)]
    if not as_rows:
        rows = [[{k: v.clone() for k, v in row.items()} for row in part] for part in rows]
    uploads = [Upload(delta, own, {}, 1, 1.0) for delta, own in zip(*rows, strict=True)]
    shares = [1 / 3, 50.0, 0.1, 7.0, 1e-3]
    one_by_one = total_of(weighted(u.delta, u.buffers, share) for u, share in zip(uploads, shares, strict=True))
    added = weighted_total(uploads, shares)
    assert list(added) == list(one_by_one)
    assert same_bits(added, one_by_one)
    assert bool(added["delta/b"][0].signbit())


@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "solo"])
def test_what_a_party_remembers_keeps_nothing_of_other_parties_in_memory(algorithm):
    context, (trial,) = ready(settings(algorithm, data__parties=6, train__rounds=2))
    context = context._replace(engine=ENGINES["stacked"](context.nets, context.data, EngineOptions()))
    (end,), _ = run([trial], context)
    remembered = [leaf for slots in end.memory.values() for leaf in leaves(slots)]
    assert remembered
    assert all(leaf.untyped_storage().nbytes() == leaf.numel() * leaf.element_size() for leaf in remembered)


def test_parts_of_a_plan_arrive_as_they_were_sent():
    parts = [
        torch.tensor([[3, 2**31 - 1], [0, 5]]),
        torch.zeros(2, 2, dtype=torch.int64),
        torch.tensor([[True, False], [False, False]]),
        torch.zeros(2, dtype=torch.float64),
        torch.tensor([0.1, -7.25], dtype=torch.float64),
        torch.arange(2),
    ]
    for some in (parts, parts[1:2], parts[3:5]):
        arrived = copy_to(torch.device("cpu"), some)
        assert [part.dtype for part in arrived] == [part.dtype for part in some]
        assert all(map(torch.equal, arrived, some))
