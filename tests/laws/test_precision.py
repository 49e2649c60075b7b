"""Numeric precision on GPUs: who chooses it, what it changes, and what is recorded."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call
from worlds import context_for, gap, same_bits, settings, some_digits

from moonfed.engines import EngineOptions, Nets, nets_of, pick_engine, pick_precision
from moonfed.engines.cpu_workers import CpuWorkers
from moonfed.engines.cuda.precision import numeric_precision, with_precision
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.models import Encoder, EncoderSpec, Model
from moonfed.models.cnn import Cnn
from moonfed.training import resolve as resolving
from moonfed.training import setup
from moonfed.training.resolve import resolve


def test_precision_is_set_for_the_engine_alone_and_restored():
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    for precision, expected in (("fp32", False), ("tf32", True), ("fp16", True)):
        with numeric_precision(precision):
            assert torch.backends.cuda.matmul.allow_tf32 == torch.backends.cudnn.allow_tf32 == expected
    assert (torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32) == before


def test_fp16_rounds_convolutions_returns_32_bits_and_leaves_the_given_net_alone():
    nets = nets_of(Model(Cnn(EncoderSpec((1, 8, 8))), 10, 16), some_digits())
    x = torch.rand(4, 1, 8, 8)
    exact, half = nets.inference(x), with_precision(nets, "fp16", x).inference(x)
    assert {part.dtype for part in half} == {torch.float32}
    assert 0 < gap(exact, half) < 0.05
    assert same_bits(exact, nets.inference(x))
    assert with_precision(nets, "fp32", x) is nets


class Viewing(Encoder):
    """A network that flattens its images by view, which refuses channels that lie innermost."""

    features = 18

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.first = nn.Conv2d(1, 2, 3, stride=2)

    def forward(self, x: Tensor) -> Tensor:
        return self.first(x).view(-1, self.features)


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
@pytest.mark.parametrize("encoder", [Cnn, Viewing])
def test_a_network_of_another_precision_and_its_copies_compute_with_the_weights_they_are_given(precision, encoder):
    nets = nets_of(Model(encoder(EncoderSpec((1, 8, 8))), 10, 16), some_digits())
    x = torch.rand(4, 1, 8, 8)
    weights = {k: 0.05 * torch.randn_like(w) for k, w in nets.training.named_parameters()}
    own = with_precision(nets, precision, x).training
    exact = functional_call(nets.training, weights, x)
    for net in (own, copy.deepcopy(own)):
        assert list(net.state_dict()) == list(nets.training.state_dict())
        assert gap(exact, functional_call(net, weights, x)) < 0.002 < float(exact.features.abs().max())


def test_a_cpu_has_one_precision_and_warns_if_another_is_asked_for(caplog):
    bench = context_for(settings("fedavg"))
    for precision, words in (("fp32", []), ("fp16", ["precision fp16 needs a GPU; using fp32"])):
        caplog.clear()
        engine = pick_engine("stacked", bench.nets, bench.data, EngineOptions(precision))
        assert isinstance(engine, CpuWorkers)
        assert isinstance(engine.engine, Stacked)
        assert engine.engine.options.precision == "fp32"
        assert caplog.messages == words
    assert resolve(settings("fedavg", run__precision="fp16"), bench.data).run.precision == "fp32", "what is recorded"


def test_auto_is_tf32_on_a_gpu_and_a_cpu_has_only_fp32():
    gpu, cpu = torch.device("cuda"), torch.device("cpu")
    assert pick_precision("auto", gpu) == "tf32"
    for precision in ("fp32", "tf32", "fp16"):
        assert pick_precision(precision, gpu) == precision
        assert pick_precision(precision, cpu) == "fp32"


@pytest.mark.parametrize(("asked", "found"), [("auto", "tf32"), ("fp16", "fp16"), ("fp32", "fp32")])
def test_a_run_is_executed_in_the_precision_that_it_records(monkeypatch, asked, found):
    given: list[str] = []

    def as_on_a_gpu(name: str, device: torch.device) -> str:
        return pick_precision(name, torch.device("cuda"))

    def noted(name: str, nets: Nets, data: Any, options: EngineOptions) -> Any:
        given.append(options.precision)
        return pick_engine(name, nets, data, EngineOptions())

    monkeypatch.setattr(resolving, "pick_precision", as_on_a_gpu)
    monkeypatch.setattr(setup, "pick_engine", noted)
    config = settings("fedavg", run__precision=asked)
    _, (trial,) = setup.set_up([config])
    assert [trial.config.run.precision, *given] == [found, found]
