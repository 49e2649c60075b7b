"""A federation from the coordinator's chair: with sites elsewhere, or with all of them on this machine."""

import os
import shutil
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder
from moonfed.experiments.execute import Outcome, default_folder
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.listener import NOBODY, Listener
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.flower.app_bundle import write_app
from moonfed.federation.flower.processes import Child, free_port, stop_all
from moonfed.federation.flower.superlink import superlink
from moonfed.federation.flower.transport import GridPost
from moonfed.federation.pki.certificates import expiring
from moonfed.federation.pki.coordinator_folder import Home, make_home
from moonfed.federation.pki.folder_lock import alone
from moonfed.federation.pki.site_folder import SitePlace, SiteSettings, make_site
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.storage.run_folder import CONFIG, FEDERATION
from moonfed.training.config import Config

COORDINATOR = "coordinator"
DAYS = 60  # for which the certificates of a federation on one machine are good


def coordinate(
    home: Home,
    listen: str,
    config: Config,
    out: Path | None,
    resume: bool,
    settings: FederationSettings,
    listener: Listener = NOBODY,
    leaving: Callable[[], None] = lambda: None,
) -> Outcome:
    """Start a SuperLink, wait for the sites of the allow-list, and run the rounds; leaving() comes before its end."""
    path = place_of(config, out, resume)
    with superlink(home, listen, listener.say) as grid:
        if (line := expiring(home.files)) is not None:
            listener.say(line)
        listener.say(f"listening on port {home.address()[1]} for {', '.join(sorted(home.allowed()))}")
        post = GridPost(grid, home.allowed(), settings.deadline)
        try:
            return serve(config, path, resume, home, post, settings, listener)
        finally:
            leaving()


def federate_here(
    config: Config,
    count: int,
    out: Path | None,
    resume: bool,
    settings: FederationSettings,
    listener: Listener = NOBODY,
) -> Outcome:
    """Run a federation of sites on this machine, each with its share of the split, and end everything after it."""
    if config.data.path is not None:
        raise UserError(
            "moonfed federate splits a known data set between sites on this machine; with --data each site has rows of "
            "its own: moonfed federation init, moonfed site init --data, moonfed federation start --data"
        )
    path = place_of(config, out, resume)
    folder = path / FEDERATION
    names = [f"site-{i:0{len(str(count - 1))}}" for i in range(count)]
    port = free_port()
    if not folder.exists():
        threads = config.run.threads or max(1, (os.cpu_count() or 1) // count)
        _make(folder, names, port, threads)
    home = Home(folder / COORDINATOR)
    if (made := sorted(home.allowed())) != names:
        raise UserError(
            f"{path} was made with {len(made)} sites, got --sites {count}; use --sites {len(made)}, "
            "or --out for another folder"
        )
    children: list[Child] = []
    with ExitStack() as stack:
        stack.enter_context(alone(folder, "another moonfed federate"))  # before its sites are told another port
        if expiring(home.files) is not None:  # a run that is gone on with after weeks
            home.renew(DAYS)
        home.move("127.0.0.1", port)
        stack.callback(stop_all, children)
        for name in names:
            SitePlace(folder / name).move(home.invitation)
            words = ["-m", "moonfed.federation.flower.join_process", str(folder / name), str(os.getpid())]
            children.append(Child(words, folder / f"{name}.log", folder / name / "flower"))
        leaving = partial(stop_all, children)  # while SuperLink is still there to take their leave
        return coordinate(home, "127.0.0.1", config, path, resume, settings, listener, leaving)


def create_coordinator(path: Path, host: str, port: int, days: int) -> Home:
    """Make a coordinator's folder, with the app that Flower's own commands take."""
    home = make_home(path, host, port, days)
    write_app(path / "app")
    return home


def place_of(config: Config, out: Path | None, resume: bool) -> Path:
    """Choose the run folder, and refuse at once what would be refused after the sites have come."""
    check_federable(config)
    path = out or default_folder(config).with_name(f"federated-{default_folder(config).name}")
    if (path / CONFIG).exists() and not resume:
        raise UserError(f"{path} already holds a run; continue it with --resume, or use --out for another folder")
    return path


def _make(folder: Path, names: list[str], port: int, threads: int) -> None:
    """Make the folders of a coordinator and its sites, whole or not at all."""
    half = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(half, ignore_errors=True)
    make_folder(half)
    home = create_coordinator(half / COORDINATOR, "127.0.0.1", port, DAYS)
    for i, name in enumerate(names):
        place = make_site(half / name, home.invitation, SiteSettings(name, share=i, threads=threads))
        home.admit(name, place.public)
    half.rename(folder)
