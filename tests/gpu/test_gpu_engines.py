"""The engines on a GPU give what they give on the CPU; without a GPU these tests are skipped."""

import logging

import pytest
from custom_networks import Branching, cohort_of, custom_nets
from worlds import context_for, gap, run_one, run_with, settings, some_digits

from moonfed.core.tree import tree_map
from moonfed.engines import EngineOptions
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.models import EncoderSpec
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve
from moonfed.training.trial import new_trial


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize(
    ("name", "norm"),
    [
        (name, norm)
        for name, preset in sorted(ALGORITHMS.items())
        for norm in ("none", "group", "batch")
        if norm != "group" or not preset.aggregator.reorders_units
    ],
)
def test_a_gpu_gives_what_the_cpu_gives(float64, name, norm, engine):
    config = settings(name, model__model="cnn", model__norm=norm, train__rounds=2, cohort__fraction=0.75)
    here = run_one(config, "sequential")
    there = run_one(config, engine, some_digits(device="cuda"))
    assert there.state.model.weights["head.bias"].is_cuda
    back = tree_map(lambda t: t.cpu(), (there.state, there.memory))
    assert gap((here.state, here.memory), back) < 1e-9


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
@pytest.mark.parametrize("name", ["moon", "solo", "centralised"])
def test_adamw_on_a_gpu_gives_what_it_gives_on_the_cpu(float64, name, engine):
    config = settings(name, model__model="cnn", train__rounds=2, train__optimizer="adamw", train__lr_schedule="cosine")
    here = run_one(config, "sequential")
    there = run_one(config, engine, some_digits(device="cuda"))
    back = tree_map(lambda t: t.cpu(), (there.state, there.memory))
    # AdamW divides by the root of the second moment, which enlarges the rounding of small gradients: 2.2e-9 were seen.
    assert gap((here.state, here.memory), back) < 1e-8


def test_a_net_that_cannot_be_captured_trains_on_a_gpu_one_operation_at_a_time(caplog):
    caplog.set_level(logging.INFO, "moonfed")
    jobs, train = cohort_of(custom_nets(Branching(EncoderSpec((1, 8, 8)))), EngineOptions(), "cuda")
    assert len(train()) == len(jobs)
    train()
    assert [line.split(":")[0] for line in caplog.messages] == [
        "parties train one after the other",
        "steps run one operation at a time",
    ]


@pytest.mark.parametrize(("precision", "near"), [("fp32", 2e-3), ("tf32", 0.12), ("fp16", 0.12)])
@pytest.mark.parametrize(("name", "optimizer"), [("moon", "sgd"), ("scaffold", "sgd"), ("moon", "adamw")])
def test_a_compiled_stack_on_a_gpu_ends_where_the_sequential_engine_ends(name, optimizer, precision, near):
    if optimizer == "adamw" and precision != "fp32":
        near *= 3  # of small gradients AdamW enlarges the rounding: 0.23 in tf32 and 0.14 in fp16 were seen
    config = settings(name, model__model="cnn", train__rounds=2, train__optimizer=optimizer)
    here = run_one(config)
    options = EngineOptions(precision, compile=True, wait_for_compiler=True)
    there = run_with(config, lambda nets, data: Stacked(nets, data, options), some_digits(device="cuda"))
    back = tree_map(lambda t: t.cpu(), there.state.model.weights)
    start = new_trial(resolve(config, some_digits()), context_for(config)).state.model.weights
    for name, end in here.state.model.weights.items():
        assert float((back[name] - end).norm() / (end - start[name]).norm()) < near, name


def test_a_phase_on_a_gpu_gives_what_it_gives_on_the_cpu(float64):
    config = settings("moon+ccvr", model__model="cnn", train__rounds=2)
    here = run_one(config)
    there = run_one(config, "stacked", some_digits(device="cuda"))
    assert there.current_model.weights["head.weight"].is_cuda
    # The root of a singular covariance enlarges the rounding of eigenvalues near 0.
    assert gap(here.current_model, tree_map(lambda t: t.cpu(), there.current_model)) < 1e-6
