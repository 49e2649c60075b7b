"""Slices that Ray's workers train end at the bits of one process, whatever happens to the workers."""

import contextlib
import json
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from importlib.util import find_spec
from math import prod
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import QUICK, Attempt, bits, moonfed, refused
from custom_networks import custom_nets
from torch import Tensor, nn
from worlds import context_for, run, same_bits, settings, some_digits

from moonfed.core.errors import RunFailed
from moonfed.core.tree import nbytes
from moonfed.core.types import Snapshot
from moonfed.engines import EngineOptions, Job, JobResult, pick_engine
from moonfed.engines.ray import RayEngine, compact, distinct_states, start_ray, stop_ray
from moonfed.models import EncoderSpec
from moonfed.models.model import Encoder
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import RunContext, Trial, new_trial

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="needs the package ray")

TWO = EngineOptions(slices=2)


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """Ray on this machine, started once for the tests of this file."""
    start_ray(2)
    import ray

    yield ray
    stop_ray()


@pytest.fixture(autouse=True)
def two_threads() -> Iterator[None]:
    """As many workers as slices."""
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def trained(engine: str, *configs, slices: int = 2) -> list[Trial]:
    """Run configs as one group of trials."""
    context = context_for(configs[0], data=some_digits(600))
    options = EngineOptions(slices=slices)
    context = context._replace(engine=pick_engine(engine, context.nets, context.data, options))
    trials, _ = run([new_trial(resolve(config, context.data), context) for config in configs], context)
    assert all(trial.failure is None for trial in trials)
    return trials


def equal(one: Trial, two: Trial) -> bool:
    return same_bits((one.state, one.memory), (two.state, two.memory))


def test_two_workers_give_the_bits_of_one_process_with_the_same_slices(ray):
    moon, scaffold = (
        settings(name, model__model="cnn", data__parties=8, run__gamma=True) for name in ("moon", "scaffold")
    )
    together = trained("ray", moon, scaffold)  # workers start once for both, and each has the bits of a run alone
    assert equal(together[0], *trained("auto", moon))
    assert equal(together[1], *trained("auto", scaffold))


def test_three_slices_of_several_trials_and_methods_give_the_bits_of_one_process(ray):
    configs = [
        settings(name, data__parties=6, run__seed=seed, train__rounds=2)
        for name in ("ditto", "gossip")
        for seed in (0, 1)
    ]
    pairs = zip(trained("ray", *configs, slices=3), trained("auto", *configs, slices=3), strict=True)
    assert all(equal(one, two) for one, two in pairs)


def test_a_state_travels_once_and_a_row_of_a_table_travels_alone(ray):
    config = settings("scaffold", data__parties=8, train__rounds=1)
    context = context_for(config, data=some_digits(600))
    trial = new_trial(resolve(config, context.data), context)
    jobs = make_jobs(trial, context)
    states, places = distinct_states(jobs)
    assert len(states) == 1
    assert places == [0] * 8
    table = torch.zeros(100, 10)
    assert compact({"row": table[3]})["row"].untyped_storage().nbytes() == 40
    engine = RayEngine(context.nets, context.data, TWO)
    results = engine.run_cohort(jobs)
    engine.close()
    assert engine.traffic.states == nbytes(jobs[0].state)
    back = sum(nbytes([r.upload.tensors, r.memory, r.losses]) for r in results)
    assert back <= engine.traffic.results < 1.1 * back + 20_000


class Faulty(Encoder):
    """An encoder that does harm in the middle of a cohort, in workers alone, until it has done it so many times."""

    features = 8

    def __init__(self, spec: EncoderSpec, folder: Path, harm: str, times: int) -> None:
        super().__init__(spec)
        self.layer = nn.Linear(prod(spec.shape), 8)
        self.folder, self.harm, self.times, self.parent, self.calls = folder, harm, times, os.getpid(), 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if os.getpid() != self.parent and self.calls > 8 and len(list(self.folder.iterdir())) < self.times:
            (self.folder / str(os.getpid())).touch()
            if self.harm == "raise":
                raise ZeroDivisionError("in a worker")
            os.kill(os.getpid(), signal.SIGKILL)
        return self.layer(x.flatten(1))


def engine_with(folder: Path, harm: str, times: int) -> tuple[RayEngine, list[Job]]:
    """Return an engine whose network is faulty, and jobs of a first round."""
    torch.manual_seed(0)
    data = some_digits(600)
    nets = custom_nets(Faulty(EncoderSpec(tuple(data.inputs.shape[1:]), "none"), folder, harm, times))
    engine = RayEngine(nets, data, TWO)
    context = RunContext(data, nets, engine)
    trial = new_trial(resolve(settings("fedavg", data__parties=8, train__epochs=2), data), context)
    model = {k: v.detach().clone() for k, v in nets.training.named_parameters()}
    state = trial.state._replace(model=Snapshot(model, {}))
    return engine, make_jobs(replace(trial, state=state), context)


def deltas(results: list[JobResult]) -> list[Any]:
    return [result.upload.delta for result in results]


def test_the_slices_of_a_killed_worker_are_trained_again(tmp_path: Path, ray, caplog):
    engine, jobs = engine_with(tmp_path, "die", times=1)
    first = deltas(engine.run_cohort(jobs))
    assert len(list(tmp_path.iterdir())) == 1, "a worker died"
    assert caplog.messages[-1] == "a worker died; its slices are trained again"
    second = deltas(engine.run_cohort(jobs))
    asked = [worker.__ray_call__.remote(lambda _: os.getpid()) for worker in engine.workers.values()]
    os.kill(ray.get(asked)[0], signal.SIGKILL)  # between two rounds
    third = deltas(engine.run_cohort(jobs))
    engine.close()
    assert same_bits(first, second)
    assert same_bits(second, third)


def test_workers_that_die_again_and_again_end_the_run_in_a_line(tmp_path: Path, ray, monkeypatch):
    monkeypatch.setattr("moonfed.engines.ray.MAX_DEATHS", 2)
    engine, jobs = engine_with(tmp_path, "die", times=100)
    with pytest.raises(RunFailed, match="workers died 2 times over the same slice; is there enough memory"):
        engine.run_cohort(jobs)
    engine.close()


def test_an_error_in_a_worker_surfaces_as_itself(tmp_path: Path, ray):
    engine, jobs = engine_with(tmp_path, "raise", times=100)
    with pytest.raises(ZeroDivisionError, match="in a worker"):
        engine.run_cohort(jobs)
    engine.close()


def test_a_run_resumed_by_another_engine_has_the_same_bits_and_records_its_slices(tmp_path: Path, ray):
    asked = ["run", *QUICK, "--rounds"]
    assert moonfed(*asked, "1", "--engine", "ray", "--out", tmp_path / "run").code == 0
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["run"]["slices"] == 2
    assert moonfed(*asked, "2", "--engine", "ray", "--out", tmp_path / "run", "--resume").code == 0
    assert moonfed(*asked, "3", "--slices", "2", "--out", tmp_path / "run", "--resume").code == 0
    assert moonfed(*asked, "3", "--slices", "2", "--out", tmp_path / "other").code == 0
    assert bits(tmp_path / "run") == bits(tmp_path / "other")


def test_a_users_encoder_and_the_file_beside_it_reach_the_workers(tmp_path: Path):
    """Ray starts after the file was read, as in a command."""
    (tmp_path / "widths.py").write_text("WIDTH = 6\n")
    code = "import torch\nfrom widths import WIDTH\n\nclass Mine(torch.nn.Module):\n    def __init__(self, shape):\n"
    code += "        super().__init__()\n        self.layer = torch.nn.Linear(64, WIDTH)\n\n"
    (tmp_path / "mine.py").write_text(
        code + "    def forward(self, x):\n        return self.layer(x.flatten(1)).relu()\n"
    )
    asked = ["run", *QUICK, "--model", f"{tmp_path / 'mine.py'}:Mine", "--rounds", "1"]
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        answer = pool.submit(moonfed, *asked, "--engine", "ray", "--threads", "2", "--out", tmp_path / "ray").result()
    assert answer.code == 0, answer.err
    assert moonfed(*asked, "--slices", "2", "--out", tmp_path / "one").code == 0
    assert bits(tmp_path / "ray") == bits(tmp_path / "one")


def test_nobody_else_can_read_the_token(ray):
    token = Path(os.environ["RAY_AUTH_TOKEN_PATH"])
    assert token.stat().st_mode & 0o077 == 0
    assert token.parent.stat().st_mode & 0o077 == 0
    assert ray._raylet.get_authentication_mode() == ray._raylet.AuthenticationMode.TOKEN
    assert Path(ray._private.worker._global_node.get_session_dir_path()).is_relative_to(token.parent)


STRANGER = """
import sys
from ray._raylet import GcsClient
print(GcsClient(address=sys.argv[1]).internal_kv_get(b"key", None, timeout=2))
"""


def test_nobody_may_speak_to_ray_without_the_token(ray):
    address = ray._private.worker._global_node.gcs_address

    def knock(**environment: str) -> subprocess.CompletedProcess[str]:
        known = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", **environment}
        return subprocess.run([sys.executable, "-c", STRANGER, address], env=known, capture_output=True, text=True)

    for stranger in (knock(), knock(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN="0" * 64)):
        assert stranger.returncode == 1
        assert "InvalidAuthToken" in stranger.stderr
    names = ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN_PATH")
    assert knock(**{name: os.environ[name] for name in names}).stdout == "None\n"


def test_without_the_package_it_is_refused_in_a_line(monkeypatch):
    monkeypatch.setattr("moonfed.engines.ray.find_spec", lambda name: None)
    line = refused(moonfed("run", *QUICK, "--engine", "ray"))
    assert line == 'moonfed: --engine ray needs the package ray; pip install "moonfed[ray]"\n'


TRAINING = (b"raylet", b"gcs_server", b"ray::SliceWorker")


def tokens_of(parent: int | None = None, names: Sequence[bytes] = (b"",)) -> set[str]:
    """List the tokens' files of all Rays that run, by their processes with some names or of a parent."""
    found: set[str] = set()
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError, ValueError):
            words = (place / "environ").read_bytes().split(b"\0")
            own = parent is None or int((place / "stat").read_text().rpartition(")")[2].split()[1]) == parent
            said = (place / "cmdline").read_bytes()
            own = own and any(name in said for name in names)
            found |= {word.decode() for word in words if own and word.startswith(b"RAY_AUTH_TOKEN_PATH=")}
    return found


def processes_with(token: str) -> list[int]:
    """List the processes whose environment has a token's file."""
    found: list[int] = []
    for place in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if place.name.isdigit() and token.encode() in (place / "environ").read_bytes().split(b"\0"):
                found.append(int(place.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_command_that_is_stopped_leaves_nothing_running(number: signal.Signals, tmp_path: Path):
    attempt = Attempt(
        "run", *QUICK, "--engine", "ray", "--rounds", "100000", "--threads", "2", "--out", tmp_path / "run"
    )
    attempt.await_word("round 2/")
    assert attempt.process.pid is not None
    (token,) = tokens_of(attempt.process.pid)
    attempt.send(number)
    answer = attempt.end()
    if number == signal.SIGINT:
        assert answer.err.splitlines()[-1].startswith("moonfed: stopped after round")
        assert token not in tokens_of()
        assert not Path(token.partition("=")[2]).parent.exists()
    else:  # nobody is left to end Ray's two agents, which notice within two minutes
        ends = time.monotonic() + 20
        while token in tokens_of(names=TRAINING) and time.monotonic() < ends:
            time.sleep(0.1)
        assert token not in tokens_of(names=TRAINING)
        for pid in processes_with(token):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(Path(token.partition("=")[2]).parent)
