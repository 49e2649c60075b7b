"""Trains the slices of a cohort in the workers of Ray: the same bits as Sliced, whichever process trains what.

A worker is a process with an engine, networks and data of its own. Per round it is sent its slices' jobs, and the state
by way of Ray's object store, where it lies once. A worker that dies is replaced, and its slices are trained again. It
writes nothing, so that doing it twice does no harm.

Ray's ports listen on all interfaces, and whoever may speak to them may run code. So nobody may without a token, which
lies in a folder that only its owner can open.
"""

import atexit
import contextlib
import logging
import os
import secrets
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.tree import leaves, nbytes, tree_map
from moonfed.core.types import Snapshot, State
from moonfed.core.wording import counted
from moonfed.data.dataset import Dataset
from moonfed.engines.base import EngineOptions, Job, JobResult, Nets
from moonfed.engines.devices import is_gpu, set_threads
from moonfed.engines.engine_choice import pick_engine
from moonfed.engines.slices import cut_slices
from moonfed.engines.stacked.graph_cache import first_line
from moonfed.engines.worker_codec import decode_results, encode_results
from moonfed.models.custom import user_modules

logger = logging.getLogger(__name__)

T = TypeVar("T")
SHORT = Path("/tmp")  # the path of a socket has at most 107 characters
MAX_DEATHS = 4  # of workers that train the same slice
OWNER_ONLY = 0o600
SETTINGS = {
    "RAY_AUTH_MODE": "token",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # otherwise Ray warns of what it will do to workers without a GPU
}
CHANGED = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "PYTHONPATH")  # in the environment as well, while Ray runs
NO_STATE = State(Snapshot({}, {}), {}, {})


class Traffic(NamedTuple):
    """Bytes of tensors that the last cohort sent to workers and got back."""

    states: int  # each once, however many parties have it
    jobs: int  # plans and memories
    results: int


class Parcel(NamedTuple):
    """A slice on its way to a worker."""

    jobs: list[Job]  # without their states
    states: list[int]  # of each job, its place among the states that come along


class SliceWorker:
    """Trains slices in a process of its own, on one thread."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        set_threads(1)
        self.engine = pick_engine("auto", nets, data, options)

    def train(self, parcel: Parcel, *states: State) -> bytes | Exception:
        """Train a slice; returns the results by place in the slice, or why the run must end."""
        jobs = [replace(job, state=states[k]) for job, k in zip(parcel.jobs, parcel.states, strict=True)]
        try:
            return encode_results(dict(enumerate(self.engine.run_cohort(jobs))))
        except (UserError, RunFailed) as error:
            return error


class RayEngine:
    """Trains every slice of a cohort in one of several workers on this machine's cores."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        if find_spec("ray") is None:
            raise UserError('--engine ray needs the package ray; pip install "moonfed[ray]"')
        if is_gpu(data.inputs.device):
            raise UserError(
                "--engine ray trains on CPU cores, the device is a GPU; use --device cpu, or another engine"
            )
        self.nets, self.data, self.options = nets, data, replace(options, slices=1)
        self.slices = options.slices
        self.processes = min(self.slices, torch.get_num_threads())
        self.workers: dict[int, Any] = {}  # by number
        self.given: tuple[Any, Any] | None = None  # networks and data in the object store
        self.traffic = Traffic(0, 0, 0)
        self.own_session = False  # whether Ray was started here

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results are in the order of the jobs."""
        ray, slices = self._start(), cut_slices(jobs, self.slices)
        states, place_of = distinct_states(jobs)
        stored = [ray.put(state) for state in states]
        parcels: list[tuple[Parcel, list[Any]]] = []
        for places in slices:
            used = sorted({place_of[i] for i in places})
            own = [without_state(jobs[i]) for i in places]
            parcels.append((Parcel(own, [used.index(place_of[i]) for i in places]), [stored[k] for k in used]))
        done: dict[int, JobResult] = {}
        received = 0
        for places, content in zip(slices, self._train(ray, parcels), strict=True):
            results = decode_results(content)
            done |= {place: results[k] for k, place in enumerate(places)}
            received += len(content)
        sent = [
            leaf
            for parcel, _ in parcels
            for job in parcel.jobs
            for leaf in leaves([job.memory, job.plan, job.probe or ()])
        ]
        self.traffic = Traffic(nbytes(states), nbytes(list({id(t): t for t in sent}.values())), received)
        logger.debug("bytes of the cohort: %s", self.traffic)
        return [done[i] for i in range(len(jobs))]

    def close(self) -> None:
        """End the workers, and Ray if it was started here; the next cohort starts them again."""
        if is_running():
            for worker in self.workers.values():
                import_module("ray").kill(worker)
        self.workers, self.given = {}, None
        if self.own_session:
            self.own_session = False
            stop_ray()

    def _start(self) -> Any:
        """Start Ray unless it runs, and put what all workers need into its object store."""
        if not is_running():
            logger.info("starting %s of Ray on this machine", counted(self.processes, "worker"))
            self.workers, self.given = {}, None
            self.own_session = True  # from here on: Ctrl-C may come before it has started
            start_ray(self.processes)
        ray = import_module("ray")
        if self.given is None:
            for module in user_modules():
                ray.cloudpickle.register_pickle_by_value(module)
            self.given = ray.put(self.nets), ray.put(self.data)
        return ray

    def _train(self, ray: Any, parcels: Sequence[tuple[Parcel, list[Any]]]) -> list[bytes]:
        """Have every slice trained by a worker; what a worker did not finish that died is done by a new one."""
        done: dict[int, bytes] = {}
        for _ in range(MAX_DEATHS):
            sent = {
                k: self._worker(ray, k % self.processes).train.remote(parcel, *states)
                for k, (parcel, states) in enumerate(parcels)
                if k not in done
            }
            for k, answer in sent.items():
                try:
                    content = ray.get(answer)
                except ray.exceptions.RayActorError as error:
                    if error.actor_init_failed:
                        why = str(error).strip().splitlines()[-1]
                        raise RunFailed(f"a worker of Ray could not start: {why}") from None
                    if self.workers.pop(k % self.processes, None) is not None:
                        logger.warning("a worker died; its slices are trained again")
                    continue
                except ray.exceptions.RayTaskError as error:
                    raise error.cause from None
                if isinstance(content, Exception):
                    raise content
                done[k] = content
            if len(done) == len(parcels):
                return [done[k] for k in range(len(parcels))]
        raise RunFailed(
            f"workers died {MAX_DEATHS} times over the same slice; is there enough memory? try more --slices"
        )

    def _worker(self, ray: Any, number: int) -> Any:
        if number not in self.workers:
            assert self.given is not None
            kind = ray.remote(SliceWorker).options(num_cpus=1)
            self.workers[number] = kind.remote(*self.given, self.options)
        return self.workers[number]


def distinct_states(jobs: Sequence[Job]) -> tuple[list[State], list[int]]:
    """List the states of jobs, each once, and for each job the place of its own; equal ones hold the same tensors."""
    places: dict[tuple[int, ...], int] = {}
    states: list[State] = []
    place_of: list[int] = []
    for job in jobs:
        key = tuple(map(id, leaves(job.state)))
        if key not in places:
            places[key] = len(states)
            states.append(compact(job.state))
        place_of.append(places[key])
    return states, place_of


def without_state(job: Job) -> Job:
    """Return a job as it travels: its state goes another way."""
    return replace(job, state=NO_STATE, memory=compact(job.memory))


def compact(tree: T) -> T:
    """Copy the tensors that are views of larger ones, all of which would travel with them."""
    return tree_map(lambda t: t.clone() if t.untyped_storage().nbytes() > t.nbytes else t, tree)


def is_running() -> bool:
    """Whether this process is connected to Ray."""
    return "ray" in sys.modules and import_module("ray").is_initialized()


def start_ray(processes: int) -> None:
    """Start Ray on this machine for this process alone, with so many cores."""
    folder = Path(tempfile.mkdtemp(prefix="moonfed-ray-", dir=SHORT if SHORT.is_dir() else None))  # mode 0700
    atexit.register(stop_ray)
    _session.append(_Session(folder, dict(os.environ), signal.getsignal(signal.SIGTERM)))
    with os.fdopen(os.open(folder / "token", os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY), "wb") as file:
        file.write(secrets.token_hex(32).encode())
    os.environ.pop("RAY_AUTH_TOKEN", None)
    os.environ.update(SETTINGS, RAY_AUTH_TOKEN_PATH=str(folder / "token"), PYTHONPATH=_import_path())
    raylet = import_module("ray._raylet")
    raylet.Config.initialize("")  # Ray reads the settings when it is imported, which may have been before
    raylet.AuthenticationTokenLoader.instance().reset_cache()
    try:
        import_module("ray").init(
            "local",
            num_cpus=processes,
            num_gpus=0,
            include_dashboard=False,
            log_to_driver=False,
            configure_logging=False,
            _temp_dir=str(folder / "ray"),  # a folder in ours: Ray opens it to everybody
        )
    except RuntimeError as error:
        raise RunFailed(f"Ray did not start: {first_line(error)}; use another --engine") from None


def stop_ray() -> None:
    """End every process that start_ray started, and leave the rest as it was before."""
    atexit.unregister(stop_ray)
    while _session:
        session = _session.pop()
        import_module("ray").shutdown()
        for name in {*SETTINGS, *CHANGED}:
            os.environ.pop(name, None)
            if name in session.environment:
                os.environ[name] = session.environment[name]
        with contextlib.suppress(ValueError):  # not the main thread, where Ray sets no handler either
            signal.signal(signal.SIGTERM, session.handler)
        shutil.rmtree(session.folder, ignore_errors=True)


def _import_path() -> str:
    """Name the folders from which this process imports, for workers to import from them too."""
    beside = [os.path.dirname(module.__file__ or "") for module in user_modules()]
    return os.pathsep.join(dict.fromkeys(os.path.abspath(folder) for folder in [*sys.path, *beside]))


class _Session(NamedTuple):
    folder: Path
    environment: dict[str, str]  # as it was before
    handler: Any  # of SIGTERM, as it was before


_session: list[_Session] = []  # that of start_ray, while it lasts
