"""Any module is an encoder: every engine trains it alike, and what is frozen in it stays at home."""

import logging
from typing import Any, Literal

import numpy as np
import pytest
import torch
from custom_encoders import ALL, IN_TURN, STACK, Frozen, Recurrent, Small
from torch import Tensor, nn
from worlds import gap, run, same_bits, settings, some_digits

from moonfed import fit
from moonfed.core.tree import nbytes
from moonfed.data.readers import from_torch
from moonfed.engines import Nets
from moonfed.engines.dropout import CounterDropout
from moonfed.engines.stacked import graph_cache
from moonfed.models.custom import custom_encoder
from moonfed.storage.run_folder import final_tensors
from moonfed.training.resolve import resolve
from moonfed.training.setup import set_up
from moonfed.training.trial import RunContext, Trial, new_trial


def bench_of(encoder: Any, engine: str = "sequential", **changes: Any) -> RunContext:
    config = settings(run__engine=engine, **{"model__model": "auto"} | changes)
    return set_up([config], data=some_digits(), custom=custom_encoder(encoder))[0]


def run_own(encoder: Any, engine: str, algorithm: str = "moon", **changes: Any) -> tuple[Trial, list[Any]]:
    """Run a tiny federation with an encoder of one's own."""
    config = settings(algorithm, **{"model__model": "auto", "train__rounds": 2, "run__engine": engine} | changes)
    bench, trials = set_up([config], data=some_digits(), custom=custom_encoder(encoder))
    ((trial,), (rows,)) = run(trials, bench)
    assert trial.failure is None
    return trial, rows


@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "fedprox"])
@pytest.mark.parametrize("name", ALL)
def test_stacked_equals_sequential_for_an_encoder_of_ones_own(
    float64: None, caplog: pytest.LogCaptureFixture, name: str, algorithm: str
) -> None:
    caplog.set_level(logging.INFO, "moonfed")
    one, rows_one = run_own(ALL[name], "sequential", algorithm)
    two, rows_two = run_own(ALL[name], "stacked", algorithm)
    assert gap((one.state, one.memory), (two.state, two.memory)) < 1e-9
    assert [row["accuracy"] for row in rows_one] == [row["accuracy"] for row in rows_two]
    messages = [record.getMessage() for record in caplog.records if record.name.startswith("moonfed.engines")]
    assert len(messages) == (name in IN_TURN), messages
    assert all(line.startswith("parties train one after the other: ") for line in messages)
    assert not [line for line in messages if "aten::" in line or "Batching rule" in line], "torch's own words"
    if name.startswith("LSTM"):
        assert messages[0].endswith(": torch cannot vectorise the operation lstm over several networks")


@pytest.mark.parametrize("name", ["dropout", "Attentive", "causal", "LSTM with dropout"])
def test_what_drops_out_is_decided_by_the_seed_alone(name: str) -> None:
    torch.manual_seed(1)
    one, _ = run_own(ALL[name], "sequential")
    before = torch.get_rng_state()
    torch.manual_seed(2)
    two, _ = run_own(ALL[name], "sequential")
    assert same_bits(one.state, two.state)
    torch.manual_seed(1)
    run_own(ALL[name], "sequential")
    assert torch.equal(torch.get_rng_state(), before), "torch's own stream is left alone"
    other, _ = run_own(ALL[name], "sequential", run__seed=1, data__partition_seed=0)
    assert not same_bits(one.state, other.state)


@pytest.mark.parametrize("name", ["dropout", "Attentive", "Frozen"])
def test_a_step_written_down_drops_out_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = run_own(STACK[name], "stacked", train__epochs=4)
    monkeypatch.setattr(graph_cache, "TRACE_AFTER_CALLS", 3)
    written, _ = run_own(STACK[name], "stacked", train__epochs=4)
    assert same_bits((plain.state, plain.memory), (written.state, written.memory))


def test_dropout_drops_its_share_and_makes_up_for_it() -> None:
    x = torch.ones(200, 500)
    masks = []
    for key, p in ((7, 0.3), (8, 0.3), (7, 0.05)):
        with CounterDropout(torch.tensor(key)):
            out, again = nn.functional.dropout(x, p), nn.functional.dropout(x, p)
        for made in (out, again):
            kept = made != 0
            assert float(kept.double().mean()) == pytest.approx(1 - p, abs=0.01)
            assert float(kept.double().mean(0).std()) == pytest.approx((p * (1 - p) / 200) ** 0.5, rel=0.15)
            assert torch.equal(made[kept], torch.full_like(made[kept], 1 / (1 - p)))
        masks += [out != 0, again != 0]
    together = float((masks[0] & masks[1]).double().mean())
    assert together == pytest.approx(0.49, abs=0.01), "layers drop out independently of each other"
    assert float((masks[0] & masks[2]).double().mean()) == pytest.approx(0.49, abs=0.01), "and so do steps"


def test_dropout_of_channels_takes_whole_channels() -> None:
    with CounterDropout(torch.tensor(3)):
        out = nn.functional.dropout2d(torch.ones(50, 40, 3, 3), 0.4)
    flat = out.flatten(2)
    assert bool((flat == flat[..., :1]).all())
    assert float((flat[..., 0] != 0).double().mean()) == pytest.approx(0.6, abs=0.04)


def test_attention_with_dropout_is_torchs_where_nothing_falls_out(float64: None) -> None:
    torch.manual_seed(0)
    attend = nn.functional.scaled_dot_product_attention
    q, k, v = (torch.randn(2, 4, 5, 8) for _ in range(3))
    mask = torch.randn(5, 5).masked_fill(torch.eye(5) > 0, 1.0)
    asked: list[dict[str, Any]] = [{"is_causal": True}, {"attn_mask": mask > 0}, {"attn_mask": mask}, {"scale": 0.3}]
    for named in asked:
        with CounterDropout(torch.tensor(0)):
            ours = attend(q, k, v, dropout_p=1e-12, **named)  # too rare to happen here
        assert gap(ours, attend(q, k, v, **named)) < 1e-9


def test_a_net_is_asked_once_what_it_draws() -> None:
    kinds = {name: bench_of(make).nets for name, make in ALL.items()}
    drops = {name for name, nets in kinds.items() if nets.uses_dropout}
    assert drops == {"dropout", "Attentive", "causal"}, "the dropout of a frozen part is off"
    assert {name for name, nets in kinds.items() if nets.uses_torch_rng} == {"LSTM with dropout"}


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "fedprox", "scaffold-niid", "solo", "fedavgm"])
def test_frozen_layers_stay_at_home(algorithm: str, engine: str) -> None:
    trial, rows = run_own(Frozen, engine, algorithm)
    frozen = {"backbone.0.weight", "backbone.0.bias", "backbone.1.weight", "backbone.1.bias", "top.bias"}
    buffers = {f"backbone.1.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")}
    home = {f"encoder.{name}" for name in frozen | buffers}
    assert set(trial.spec.frozen) == home
    assert not home & {*trial.state.model.weights, *trial.state.model.buffers}
    learned = nbytes(trial.state.model.weights)
    travels = 4 * (learned + 4 * sum(b.numel() for b in trial.state.model.buffers.values()) + 4)
    expected = {"scaffold": travels + 4 * learned, "solo": 0}.get(algorithm, travels)
    if algorithm != "scaffold-niid":
        assert rows[-1]["bytes_up"] == expected, "four parties: what learned, the buffers beside it, and the share"
    final = final_tensors(trial)
    whole = {
        f"encoder.{k}" for k in (*dict(Frozen((1, 8, 8)).named_parameters()), *dict(Frozen((1, 8, 8)).named_buffers()))
    }
    names = {k.removeprefix("party0/") for k in final if algorithm != "solo" or k.startswith("party0/")}
    assert whole <= names, "the saved model is whole"


def test_a_frozen_part_is_what_it_was_and_a_frozen_batchnorm_sees_nothing() -> None:
    own = Frozen((1, 8, 8))
    before = {k: v.clone() for k, v in own.state_dict().items()}
    trial, _ = run_own(own, "stacked")
    assert all(torch.equal(v, before[k.removeprefix("encoder.")]) for k, v in trial.spec.frozen.items())
    moved = trial.state.model.buffers["encoder.norm.running_mean"]
    assert not torch.equal(moved, before["norm.running_mean"]), "the one that learns does see"


def test_an_instance_keeps_its_weights_and_a_factory_draws_them_from_the_seed() -> None:
    own = Small((1, 8, 8))
    start = {}
    for seed in (0, 1):
        for name, encoder in (("instance", own), ("factory", Small)):
            bench = bench_of(encoder)
            config = settings(model__model="auto", run__seed=seed, data__partition_seed=0)
            start[name, seed] = new_trial(resolve(config, bench.data, bench.custom), bench).state.model.weights
    held = {f"encoder.{k}": v for k, v in own.named_parameters()}
    for seed in (0, 1):
        assert all(torch.equal(start["instance", seed][k], v) for k, v in held.items())
    assert not torch.equal(start["instance", 0]["head.weight"], start["instance", 1]["head.weight"])
    assert not torch.equal(start["factory", 0]["encoder.body.0.weight"], start["factory", 1]["encoder.body.0.weight"])


def test_the_users_module_is_left_as_it_was() -> None:
    own = Frozen((1, 8, 8)).train()
    before = {k: v.clone() for k, v in own.state_dict().items()}
    learns = {k: v.requires_grad for k, v in own.named_parameters()}
    run_own(own, "stacked")
    assert all(torch.equal(v, before[k]) for k, v in own.state_dict().items())
    assert {k: v.requires_grad for k, v in own.named_parameters()} == learns
    assert own.training


def test_features_of_any_shape_are_flattened() -> None:
    for name, wide in {"Attentive": 64, "LSTM": 10, "Lazy": 9}.items():
        bench = bench_of(ALL[name])
        assert bench.custom is not None
        assert bench.custom.features == wide
        assert isinstance(bench.nets, Nets)
        head: Any = bench.nets.training.projector
        assert head[0].in_features == wide


def test_dropout_between_the_layers_of_an_lstm_is_there() -> None:
    (with_it, _), (without, _) = (run_own(lambda shape, p=p: Recurrent(shape, p), "sequential") for p in (0.4, 0.0))
    assert not same_bits(with_it.state, without.state)


def test_every_kind_of_layer_that_the_issue_names_is_tried() -> None:
    assert {"batch_norm", "group_norm", "layer_norm", "dropout", "LSTM", "Attentive"} <= set(STACK) | set(IN_TURN)


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_an_encoder_that_writes_into_its_input_leaves_the_data_alone(engine: Literal["sequential", "stacked"]) -> None:
    class Plain(nn.Module):
        def __init__(self, shape: tuple[int, ...]) -> None:
            super().__init__()
            self.layer = nn.Linear(shape[0], 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x + 1)

    class Writes(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x.add_(1))

    rng = np.random.Generator(np.random.PCG64(0))
    x, y = rng.normal(size=(40, 3)).astype(np.float32), np.arange(40) % 2
    data = from_torch(torch.utils.data.TensorDataset(torch.tensor(x), torch.tensor(y)))
    before = data.inputs.clone(), data.test_inputs.clone()
    found = [fit(how, data, parties=2, rounds=2, epochs=1, batch=4, engine=engine) for how in (Plain, Writes)]
    assert torch.equal(data.inputs, before[0])
    assert torch.equal(data.test_inputs, before[1])
    for one, other in zip(*(result.model.state_dict().values() for result in found), strict=True):
        assert torch.equal(one, other)
