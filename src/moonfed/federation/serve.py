"""A federation's run: the coordinator's side of the only round loop, over whatever carries the notes."""

import hashlib
import json
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.algorithms import ALGORITHMS
from moonfed.core.errors import UserError
from moonfed.core.types import Facts
from moonfed.data import DATASETS
from moonfed.data.disk import read_json, write_json
from moonfed.engines import Options, nets_of, pick_device, pick_engine
from moonfed.federation.places import Home
from moonfed.federation.settings import FederationSettings
from moonfed.federation.sites import Post, Sites, appended
from moonfed.run.config import Config
from moonfed.run.folder import RunFolder, read_rows
from moonfed.run.loop import Row
from moonfed.run.rules import make_algorithm
from moonfed.run.session import Outcome, carry_out, default_folder
from moonfed.run.trial import Bench, Trial, begun, build, net_spec, resolve

ROSTER, REFUSED = "federation.json", "refused.jsonl"


def check_federable(config: Config) -> None:
    """Refuse an algorithm that has nothing to send, or whose rows would all have to be in one place."""
    name, settings = config.algorithm.name, config.algorithm
    if ALGORITHMS[name].pooled:
        raise UserError(f"{name} trains on all rows in one place, which is what a federation avoids; use moonfed run")
    if make_algorithm(name, settings.server, settings.options).local.own is not None:
        raise UserError(f"{name} trains a model a party that never leaves it: there is nothing to federate")


def serve(
    config: Config,
    out: Path | None,
    resume: bool,
    home: Home,
    post: Post,
    settings: FederationSettings,
    on_start: Callable[[list[Trial]], None] = lambda trials: None,
    after_round: Callable[[int, list[Row]], bool] = lambda round, rows: True,
    say: Callable[[str], None] = lambda line: None,
) -> Outcome:
    """Run a federation to its last round; the coordinator has the test rows and no others."""
    check_federable(config)
    device = pick_device(config.run.device)
    data = DATASETS[config.data.dataset]()
    data = replace(data, inputs=data.inputs[:0], labels=data.labels[:0]).to(device)
    path = out or default_folder(config)
    roster = _roster(path, resume)
    names = list(roster["sites"]) if roster else sorted(home.allowed())
    config = resolve(config, data)
    config = config.model_copy(update={"data": config.data.model_copy(update={"parties": len(names)})})
    run = roster["run"] if roster else secrets.token_hex(8)
    refusals: list[str] = []  # before the folder is taken there is no place for them
    log: list[Callable[[str], None]] = [refusals.append]
    sites = Sites(home, post, settings, run, lambda line: log[0](line), say)
    if roster:
        facts = [Facts(i, v["rows"], tuple(v["class_counts"])) for i, v in enumerate(roster["sites"].values())]
    else:
        facts = sites.enrol(names, config, data.classes)
    trial = begun(config, data, [], facts)
    nets = nets_of(build(net_spec(config, data)).to(device))
    bench = Bench(data, nets, pick_engine("sequential", nets, data, Options()))
    described = _describe(run, names, facts)
    folder = RunFolder(path, config, _fingerprint(described["sites"], data.fingerprint))

    def start(trials: list[Trial]) -> None:
        if not folder.finished:
            write_json(path / ROSTER, described)
            log[0] = appended(path / REFUSED)
            for line in refusals:
                log[0](line)
        accepted = {party: row["round"] for row in read_rows(path)[: trial.round] for party in row["cohort"]}
        sites.ready(names, trial, accepted)
        on_start(trials)

    return carry_out([trial], [folder], bench, resume, start, after_round, sites)[0]


def _roster(path: Path, resume: bool) -> dict[str, Any] | None:
    """Read who takes part in a run that is gone on with."""
    if not resume or not (path / ROSTER).exists():
        return None
    roster = read_json(path / ROSTER)
    if not isinstance(roster.get("run"), str) or not isinstance(roster.get("sites"), dict):
        raise UserError(f"{path / ROSTER} is damaged; use --out for another folder")
    return roster


def _describe(run: str, names: list[str], facts: list[Facts]) -> dict[str, Any]:
    held = {name: {"rows": f.rows, "class_counts": list(f.class_counts)} for name, f in zip(names, facts, strict=True)}
    return {"run": run, "sites": held}


def _fingerprint(sites: dict[str, Any], test: str) -> str:
    return hashlib.sha256(json.dumps([sites, test], sort_keys=True).encode()).hexdigest()
