"""Parties that train in processes side by side end at the same bits, whatever happens to the processes."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from math import prod
from pathlib import Path

import pytest
import torch
from custom_networks import custom_nets
from torch import Tensor, nn
from worlds import context_for, gap, run, settings, some_digits

from moonfed.core.types import Snapshot, Upload
from moonfed.engines import ENGINES, EngineOptions, Job, JobResult, pick_engine
from moonfed.engines.cpu_workers import CpuWorkers, can_fork, cut
from moonfed.engines.sequential import Sequential
from moonfed.engines.stacked.stacked_engine import Stacked
from moonfed.engines.worker_codec import decode_results, encode_results
from moonfed.models import EncoderSpec, Model
from moonfed.models.model import Encoder
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import RunContext, new_trial

pytestmark = pytest.mark.skipif(not can_fork(), reason="processes are forked on Linux machines without a GPU")


class Witness(Encoder):
    """An encoder that notes in a folder which process called it, and may misbehave in forked ones."""

    features = 8
    folder: Path
    misbehaviour: str = ""

    def __init__(self, spec: EncoderSpec, folder: Path, misbehaviour: str = "") -> None:
        super().__init__(spec)
        self.layer = nn.Linear(prod(spec.shape), 8)
        self.folder, self.misbehaviour, self.parent = folder, misbehaviour, os.getpid()

    def forward(self, x: Tensor) -> Tensor:
        (self.folder / str(os.getpid())).touch()
        time.sleep(0.002)  # so that another process has the time to take a unit
        if self.misbehaviour == "is killed" and os.getpid() != self.parent:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.misbehaviour == "raises" and os.getpid() != self.parent:
            raise ZeroDivisionError("only in a forked process")
        if self.misbehaviour == "always raises" and self.training:
            raise ZeroDivisionError("in every process")
        return self.layer(x.flatten(1))


def cohort_with(encoder: Encoder) -> tuple[list[Job], CpuWorkers]:
    """Return the jobs of a federation with a custom encoder, and workers that train them."""
    nets, data = custom_nets(encoder), some_digits()
    workers = CpuWorkers(Sequential(nets, data, EngineOptions()))
    context = RunContext(data, nets, workers)
    trial = new_trial(resolve(settings("fedavg", data__parties=4, train__epochs=3), data), context)
    model = {k: v.detach().clone() for k, v in nets.training.named_parameters()}
    state = trial.state._replace(model=Snapshot(model, {}))
    return make_jobs(replace(trial, state=state), context), workers


def run_with(encoder: Encoder, processes: int) -> list[JobResult]:
    jobs, workers = cohort_with(encoder)
    workers.processes = processes
    return workers.run_cohort(jobs)


def deltas(results: list[JobResult]) -> list[Tensor]:
    return [t for result in results for t in result.upload.delta.values()]


def spec() -> EncoderSpec:
    torch.manual_seed(0)
    return EncoderSpec(tuple(some_digits().inputs.shape[1:]), "none")


def test_a_cohort_is_trained_by_several_processes(tmp_path: Path):
    run_with(Witness(spec(), tmp_path), processes=2)
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("misbehaviour", ["is killed", "raises"])
def test_what_a_lost_process_had_to_do_is_done_here(tmp_path: Path, misbehaviour):
    expected = deltas(run_with(Witness(spec(), tmp_path), processes=1))
    got = deltas(run_with(Witness(spec(), tmp_path, misbehaviour), processes=2))
    assert len(list(tmp_path.iterdir())) == 2, "there was another process"
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_an_error_in_every_process_surfaces_as_itself(tmp_path: Path):
    encoder = Witness(spec(), tmp_path)
    jobs, workers = cohort_with(encoder)
    before = children_of(os.getpid())
    assert isinstance(workers.engine, Sequential)
    net = workers.engine.nets.training
    assert isinstance(net, Model)
    assert isinstance(net.encoder, Witness)
    net.encoder.misbehaviour = "always raises"
    workers.processes = 2
    with pytest.raises(ZeroDivisionError, match="in every process"):
        workers.run_cohort(jobs)
    assert children_of(os.getpid()) == before, "no process is left, not even a dead one"


def test_a_process_that_somebody_else_waits_for_does_no_harm(tmp_path: Path):
    expected = deltas(run_with(Witness(spec(), tmp_path), processes=1))
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps at once
    try:
        got = deltas(run_with(Witness(spec(), tmp_path), processes=3))
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert all(torch.equal(a, b) for a, b in zip(expected, got, strict=True))


def test_a_unit_holds_every_job_once_and_units_are_about_equally_long():
    context = context_for(settings("moon", data__parties=18, data__floor=4), data=some_digits(600))
    configs = [
        settings(name, data__parties=18, data__floor=4, run__seed=s) for name in ("moon", "fedavg") for s in (0, 1)
    ]
    trials = [new_trial(resolve(config, context.data), context) for config in configs]
    jobs = [job for trial in trials for job in make_jobs(trial, context)]
    units = cut(jobs)
    assert sorted(i for unit in units for i in unit) == list(range(len(jobs)))
    assert all(len({type(jobs[i].local) for i in unit}) == 1 for unit in units)
    assert all(len(unit) >= 2 for unit in units)
    lengths = [sum(len(jobs[i].plan.rows) for i in unit) for unit in units]
    assert max(lengths) - min(lengths) <= max(len(job.plan.rows) for job in jobs)


def test_results_survive_the_way_between_processes():
    weights = {"b": torch.randn(2, 3), "a": torch.zeros(0, 4), "n": torch.tensor(7)}
    buffers = {"seen": torch.tensor(3, dtype=torch.int64), "flags": torch.tensor([True, False])}
    slots = {"model": Snapshot({"w": torch.ones(2)}, {}), "c": {"z": torch.randn(1), "y": torch.randn(2)}}
    upload = Upload(weights, buffers, slots, steps=5, effective_steps=0.1 + 0.2)
    result = JobResult(upload, {"queue": torch.arange(3)}, {"supervised": torch.rand(5)}, gamma=0.3)
    ((place, back),) = decode_results(encode_results({11: result})).items()
    assert place == 11
    assert (
        gap(
            (back.upload.delta, back.upload.buffers, back.upload.slots, back.memory, back.losses),
            (weights, buffers, slots, result.memory, result.losses),
        )
        == 0.0
    )
    assert list(back.upload.delta) == ["b", "a", "n"], "tensors keep their order"
    assert [t.dtype for t in back.upload.buffers.values()] == [torch.int64, torch.bool]
    assert (back.upload.steps, back.upload.effective_steps, back.gamma) == (5, 0.1 + 0.2, 0.3)
    assert decode_results(encode_results({11: result})[:-1]) == {}, "what was cut off does not count"
    assert decode_results(b"") == {}


@pytest.mark.parametrize(("rows", "kind"), [(160, Sequential), (1000, Stacked)])
def test_auto_trains_the_parties_of_a_small_data_set_one_after_the_other(rows, kind):
    context = context_for(settings("fedavg"), data=some_digits(rows))
    engine = pick_engine("auto", context.nets, context.data, EngineOptions())
    assert isinstance(engine, CpuWorkers)
    assert type(engine.engine) is kind
    assert set(ENGINES) == {"sequential", "stacked"}


def test_a_killed_run_leaves_no_process_and_its_folder_free(tmp_path: Path):
    command = [
        sys.executable,
        "-m",
        "moonfed",
        "run",
        "--rounds",
        "50",
        "--threads",
        "3",
        "--out",
        str(tmp_path / "run"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    children: list[int] = []
    deadline = time.monotonic() + 120
    while not children and time.monotonic() < deadline:
        children = children_of(process.pid)
    process.kill()
    process.wait()
    assert children, "the run never forked"
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{child}").exists() for child in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [child for child in children if Path(f"/proc/{child}").exists()]
    again = subprocess.run([*command[:4], "--rounds", "1", *command[6:], "--resume"], capture_output=True, text=True)
    assert again.returncode == 0, again.stderr


def children_of(parent: int) -> list[int]:
    """List the forked processes of a process."""
    listed = Path(f"/proc/{parent}/task/{parent}/children")
    return [int(child) for child in listed.read_text().split()] if listed.exists() else []


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_every_job_is_charged_for_its_part_of_the_time(engine):
    context = context_for(settings("fedavg", data__parties=4), engine, data=some_digits(300))
    began = time.perf_counter()
    (trial,), (records,) = run(
        [new_trial(resolve(settings("fedavg", data__parties=4), context.data), context)], context
    )
    assert trial.failure is None
    spent = time.perf_counter() - began
    assert 0 < sum(record["training_seconds"] for record in records) <= 2 * spent, "of two processes at most"
