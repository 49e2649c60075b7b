"""What the compiler makes of a step, from copies of networks and tensors, is that step."""

import copy
import shutil
import threading

import pytest
import torch
from worlds import context_for, settings, some_digits

from moonfed.core.seeds import torch_seeded, torch_streams_held
from moonfed.core.tree import leaves, tree_map
from moonfed.engines import EngineOptions
from moonfed.engines.cuda import cuda_graphs
from moonfed.engines.cuda.compiler import compile_function, copied_with_strides
from moonfed.engines.cuda.precision import with_precision
from moonfed.engines.party_round import prepare
from moonfed.engines.stacked.lanes import LaneState, Stack, gather_batches
from moonfed.engines.stacked.stacked_engine import Stacked, first_chunk
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial


def one_lane():
    """A stack's step of one lane, as an engine in tf32 has it, and the trees that it works on."""
    data, config = some_digits(), settings("fedprox", model__model="cnn")
    context = context_for(config, "stacked", data)
    (job, *_) = make_jobs(new_trial(resolve(config, data), context), context)
    engine = Stacked(context.nets, data, EngineOptions("tf32"))
    engine.nets = with_precision(context.nets, "tf32", data.inputs[:2].float())
    spec = engine._one_lane(engine._make_spec("key", job))
    state = LaneState(*prepare([job])[0])
    stack = Stack(spec, 1, 2, state)
    stack.start_round(None)
    stack.load_lanes({0: state})
    batches = gather_batches(spec, stack.lanes.anchors, first_chunk(job.plan, 2), True)
    carry, fixed, _ = stack.lanes
    _, losses = stack.take_step(carry, tree_map(lambda t: t[:, 0], batches), fixed)
    parts = {k: torch.zeros(1, 2) for k in losses}
    return spec, (carry, fixed, batches, parts, torch.zeros(1, dtype=torch.int64))


@pytest.mark.skipif(shutil.which("g++") is None, reason="the compiler needs g++ on a CPU")
def test_a_step_compiled_from_a_copy_of_its_networks_is_the_step(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    spec, trees = one_lane()
    copies = spec._replace(nets=copy.deepcopy(spec.nets))
    compiled = compile_function(cuda_graphs._step, copies, copied_with_strides(trees))
    ours = copied_with_strides(trees)
    compiled(ours)
    cuda_graphs._step(spec, *trees)
    for one, other in zip(leaves(ours), leaves(trees), strict=True):
        torch.testing.assert_close(one, other)


def test_nothing_is_drawn_from_torch_while_its_streams_are_held():
    drawn: list[torch.Tensor] = []

    def draw() -> None:
        with torch_seeded(0, "model"):
            drawn.append(torch.rand(3))

    with torch_streams_held():
        thread = threading.Thread(target=draw)
        thread.start()
        thread.join(0.2)
        assert not drawn
        torch.rand(5)
    thread.join()
    draw()
    assert torch.equal(*drawn)
