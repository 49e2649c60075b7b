"""A federation's run: the coordinator's side of the only round loop, over whatever carries the notes."""

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import read_json, write_json
from moonfed.core.types import PartyInfo
from moonfed.data import Dataset
from moonfed.engines import Options, nets_of, pick_device, pick_engine
from moonfed.experiments.execute import Outcome, carry_out
from moonfed.federation.coordinator.enrolment import enrol
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.listener import NOBODY, Listener
from moonfed.federation.coordinator.remote_runner import Post, Sites, appended
from moonfed.federation.pki.coordinator_folder import Home
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.federation.protocol.request import encoding_digest
from moonfed.storage.run_folder import RunFolder, read_rows
from moonfed.training.config import Config
from moonfed.training.data_config import DataSettings
from moonfed.training.trial import RunContext, Trial, begun, build, load_data, net_spec, resolve

ROSTER, REFUSED = "federation.json", "refused.jsonl"


def serve(
    config: Config,
    path: Path,
    resume: bool,
    home: Home,
    post: Post,
    settings: FederationSettings,
    listener: Listener = NOBODY,
) -> Outcome:
    """Run a federation to its last round; the coordinator has the test rows and no others."""
    check_federable(config)
    roster = _roster(path, resume)
    names = list(roster["sites"]) if roster else sorted(home.allowed())
    data, encoding = _open(config, names, listener.say)
    data = data.to(pick_device(config.run.device))
    config = _settled(config, data, len(names))
    run = roster["run"] if roster else secrets.token_hex(8)
    refusals: list[str] = []  # before the folder is taken there is no place for them
    log: list[Callable[[str], None]] = [refusals.append]
    sites = Sites(home, post, settings, run, lambda line: log[0](line), listener.say, listener.stopping)
    sites.config, sites.encoding = _for_sites(config), encoding_digest(encoding) if encoding else ""
    if roster:
        facts = [PartyInfo(i, v["rows"], tuple(v["class_counts"])) for i, v in enumerate(roster["sites"].values())]
    else:
        facts = enrol(sites, names, data.classes, config.train.batch or 1, encoding)
    trial = begun(config, data, [], facts)
    trial.names = tuple(names)
    nets = nets_of(build(net_spec(config, data)).to(data.inputs.device))
    bench = RunContext(data, nets, pick_engine("sequential", nets, data, Options(config.run.precision)))
    described = _describe(run, names, facts)
    folder = RunFolder(path, config, _fingerprint(described["sites"], data.fingerprint, sites.encoding), data)

    def start(trials: list[Trial]) -> None:
        if not folder.finished:
            write_json(path / ROSTER, described)
            log[0] = appended(path / REFUSED)
            for line in refusals:
                log[0](line)
        accepted = {party: row["round"] for row in read_rows(path)[: trial.round] for party in row["cohort"]}
        sites.ready(names, trial, accepted)
        listener.start(trials)

    return carry_out([trial], [folder], bench, resume, start, listener.after_round, sites)[0]


def _open(config: Config, names: list[str], say: Callable[[str], None]) -> tuple[Dataset, str]:
    """Load the coordinator's test rows, and, of its own data, what its training rows say of how rows become inputs."""
    data, text = load_data(config.data, say), ""
    if data.encoding is not None:
        told = data.encoding | {"party": None, "parties": []}  # whose the coordinator's rows are is nobody's business
        data = replace(data, party=None, test_party=None, party_names=tuple(names), encoding=told)
        text = json.dumps(told, allow_nan=False)
    return replace(data, inputs=data.inputs[:0], labels=data.labels[:0]), text


def _settled(config: Config, data: Dataset, parties: int) -> Config:
    """Fill in what depends on data and sites; with data of one's own, the batch is that of the coordinator's rows."""
    if config.data.path is not None:
        train = config.train.model_copy(update={"batch": config.train.batch or data.batch})
        split = config.data.model_copy(update={"partition": "natural"})
        config = config.model_copy(update={"train": train, "data": split})
    config = resolve(config, data)
    run = config.run.model_copy(update={"engine": "sequential"})  # a site trains alone
    split = config.data.model_copy(update={"parties": parties})
    return config.model_copy(update={"data": split, "run": run})


def _for_sites(config: Config) -> str:
    """Write the settings that sites are sent: no file of this machine is named in them."""
    if config.data.path is not None:
        here = {"parties": config.data.parties, "partition": config.data.partition}
        config = config.model_copy(update={"data": DataSettings(**here)})  # type: ignore[arg-type]
    return config.model_dump_json()


def _roster(path: Path, resume: bool) -> dict[str, Any] | None:
    """Read who takes part in a run that is gone on with."""
    if not resume or not (path / ROSTER).exists():
        return None
    roster = read_json(path / ROSTER)
    if not isinstance(roster.get("run"), str) or not isinstance(roster.get("sites"), dict):
        raise UserError(f"{path / ROSTER} is damaged; use --out for another folder")
    return roster


def _describe(run: str, names: list[str], facts: list[PartyInfo]) -> dict[str, Any]:
    held = {name: {"rows": f.rows, "class_counts": list(f.class_counts)} for name, f in zip(names, facts, strict=True)}
    return {"run": run, "sites": held}


def _fingerprint(sites: dict[str, Any], test: str, encoding: str) -> str:
    parts = [sites, test, encoding] if encoding else [sites, test]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
