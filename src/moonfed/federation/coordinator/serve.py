"""A federation's run at the coordinator: enrolment, then the round loop with remote sites, over any transport."""

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import read_json, write_json
from moonfed.core.types import PartyInfo
from moonfed.data import Dataset
from moonfed.engines import EngineOptions, nets_of, pick_device, pick_engine
from moonfed.experiments.execute import execute
from moonfed.federation.coordinator.audit_log import RejectionLog
from moonfed.federation.coordinator.enrolment import enrol
from moonfed.federation.coordinator.exchange import Exchange, Transport
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.remote_runner import RemoteRunner
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.federation.protocol.request import encoding_digest
from moonfed.storage.run_files import ROSTER
from moonfed.storage.run_record import RunRecord, has_final_weights, read_rounds
from moonfed.training.callbacks import Callback
from moonfed.training.config import Config
from moonfed.training.network import build, net_spec
from moonfed.training.resolve import ResolvedConfig, resolve
from moonfed.training.settings import DataSettings
from moonfed.training.setup import load_data, warn_of_nothing_private
from moonfed.training.topology_file import warn_of_parts, with_edges
from moonfed.training.trial import RunContext, Trial, start_trial

REJECTIONS = "refused.jsonl"


def serve(
    config: Config,
    path: Path,
    resume: bool,
    folder: CoordinatorFolder,
    transport: Transport,
    settings: FederationSettings,
    callbacks: Sequence[Callback] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> RunRecord:
    """Run a federation to its last round; the coordinator holds the test rows and no training rows."""
    check_federable(config)
    roster = _read_roster(path) if resume else None
    names = list(roster["sites"]) if roster else sorted(folder.allow_list())
    config, resolved, data, encoding = prepare(config, names)
    warn_of_parts([resolved])
    run = roster["run"] if roster else secrets.token_hex(8)
    rejections = RejectionLog()
    exchange = Exchange(transport, settings, rejections, stopping)
    encoded = encoding_digest(encoding) if encoding else ""
    runner = RemoteRunner(folder, exchange, settings, run, _config_for_sites(resolved), encoded)
    if roster:
        infos = [PartyInfo(i, v["rows"], tuple(v["class_counts"])) for i, v in enumerate(roster["sites"].values())]
    else:
        infos = enrol(runner, names, data.classes, encoding)
    resolved = _resolve(config, data, len(names), sum(info.rows for info in infos))  # as a simulation of these rows
    runner.config = _config_for_sites(resolved)
    roster = _make_roster(run, names, infos)
    trial = start_trial(resolved, data, [], infos, sites=names)
    warn_of_nothing_private(trial)
    nets = nets_of(build(net_spec(resolved, data)).to(data.inputs.device), data)
    context = RunContext(data, nets, pick_engine("sequential", nets, data, EngineOptions(resolved.run.precision)))
    fingerprint = _fingerprint(roster["sites"], data.fingerprint, encoded)
    opening = Opening(path, roster, rejections, runner)
    ((_, record),) = execute(context, [trial], [path], resume, [opening, *callbacks], runner, fingerprint)
    return record


def prepare(config: Config, names: Sequence[str]) -> tuple[Config, ResolvedConfig, Dataset, str]:
    """Read the graph and the coordinator's rows, and refuse what does not fit before any site is asked.

    Returned are the settings as given and as resolved, the test rows, and the encoding as JSON ("" if none).
    """
    data, encoding, reference_rows = _load_test_data(config, names)
    data = data.to(pick_device(config.run.device))
    config = with_edges(config, len(names), tuple(names))
    resolved = _resolve(config, data, len(names), reference_rows)
    batch = resolved.train.batch
    expected = [PartyInfo(i, batch, (batch, *[0] * (data.classes - 1))) for i in range(len(names))]
    start_trial(resolved, data, [], expected, sites=names)
    return config, resolved, data, encoding


class Opening(Callback):
    """Writes the roster and connects the runner to the sites before the first round."""

    def __init__(self, path: Path, roster: dict[str, Any], rejections: RejectionLog, runner: RemoteRunner) -> None:
        self.path, self.roster, self.rejections, self.runner = path, roster, rejections, runner

    def on_start(self, trials: Sequence[Trial]) -> None:
        """Write the roster, unless the run is finished, and tell the runner which rounds were accepted."""
        (trial,) = trials
        if not (trial.done and has_final_weights(self.path, trial.round)):
            write_json(self.path / ROSTER, self.roster)
            self.rejections.open(self.path / REJECTIONS)
        rounds = read_rounds(self.path)[: trial.round]
        accepted = {party: record["round"] for record in rounds for party in record["cohort"]}
        self.runner.start(list(self.roster["sites"]), trial, accepted)


def _load_test_data(config: Config, names: Sequence[str]) -> tuple[Dataset, str, int]:
    """Load the test rows; from the reference rows, their encoding as JSON ("" if none) and their number."""
    data, text = load_data(config.data), ""
    if data.encoding is not None:
        encoding = data.encoding | {"party": None, "parties": []}  # sites need not know whose the reference rows are
        data = replace(data, party=None, test_party=None, party_names=tuple(names), encoding=encoding)
        text = json.dumps(encoding, allow_nan=False)
    return replace(data, inputs=data.inputs[:0], labels=data.labels[:0]), text, len(data.labels)


def _resolve(config: Config, data: Dataset, parties: int, rows: int) -> ResolvedConfig:
    """Fill in what depends on data and sites; with user data, the batch size follows from the reference rows."""
    if config.data.path is not None:
        train = config.train.model_copy(update={"batch": config.train.batch or data.batch})
        split = config.data.model_copy(update={"partition": "natural", "parties": parties})
        config = config.model_copy(update={"train": train, "data": split})
    resolved = resolve(config, data, rows=rows)
    run = resolved.run.model_copy(update={"engine": "sequential"})  # a site trains one party
    split = resolved.data.model_copy(update={"parties": parties})
    return resolved.model_copy(update={"data": split, "run": run})


def _config_for_sites(config: Config) -> str:
    """Write the settings that are sent to sites; no file of the coordinator is named in them."""
    if config.data.path is not None:
        split = {"parties": config.data.parties, "partition": config.data.partition}
        config = config.model_copy(update={"data": DataSettings(**split)})  # type: ignore[arg-type]
    return config.model_dump_json()


def _read_roster(path: Path) -> dict[str, Any] | None:
    """Read the run's name and sites from the folder of a run that is resumed; None if it had not started."""
    if not (path / ROSTER).exists():
        return None
    roster = read_json(path / ROSTER)
    if not isinstance(roster.get("run"), str) or not isinstance(roster.get("sites"), dict):
        raise UserError(f"{path / ROSTER} is damaged; use --out for another folder")
    return roster


def _make_roster(run: str, names: list[str], infos: list[PartyInfo]) -> dict[str, Any]:
    sites = {name: {"rows": f.rows, "class_counts": list(f.class_counts)} for name, f in zip(names, infos, strict=True)}
    return {"run": run, "sites": sites}


def _fingerprint(sites: dict[str, Any], test: str, encoding: str) -> str:
    parts = [sites, test, encoding] if encoding else [sites, test]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
