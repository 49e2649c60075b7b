"""Starts federations: a coordinator with remote sites, or a coordinator with all its sites on this machine."""

import logging
import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import make_folder
from moonfed.experiments.execute import default_folder
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.serve import prepare, serve
from moonfed.federation.flower.app_bundle import write_app_bundle
from moonfed.federation.flower.processes import ChildProcess, free_port, stop_all
from moonfed.federation.flower.superlink import superlink_session
from moonfed.federation.flower.transport import GridTransport
from moonfed.federation.pki.certificates import expiry_warning
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder, make_coordinator_folder
from moonfed.federation.pki.folder_lock import locked_folder
from moonfed.federation.pki.site_folder import SiteFolder, SiteSettings, make_site_folder
from moonfed.federation.protocol.eligibility import check_federable
from moonfed.storage.run_files import CONFIG, FEDERATION
from moonfed.storage.run_record import RunRecord
from moonfed.training.callbacks import Callback
from moonfed.training.config import Config

logger = logging.getLogger(__name__)
LOOPBACK = "127.0.0.1"
COORDINATOR = "coordinator"  # folder of a federation on one machine, beside those of its sites
LOCAL_CERTIFICATE_DAYS = 60


def create_coordinator(path: Path, host: str, port: int, days: int) -> CoordinatorFolder:
    """Make a coordinator's folder, with the app bundle for Flower's own commands."""
    folder = make_coordinator_folder(path, host, port, days)
    write_app_bundle(path / "app")
    return folder


def run_coordinator(
    folder: CoordinatorFolder,
    listen: str,
    config: Config,
    out: Path | None,
    resume: bool,
    settings: FederationSettings,
    callbacks: Sequence[Callback] = (),
    stopping: Callable[[], bool] = lambda: False,
    before_end: Callable[[], None] = lambda: None,
) -> RunRecord:
    """Start a SuperLink, wait for the sites of the allow-list, and run the rounds; before_end() precedes its end."""
    path = choose_run_folder(config, out, resume)
    with superlink_session(folder, listen) as (grid, quota):
        if (warning := expiry_warning(folder.server_files)) is not None:
            logger.warning(warning)
        allowed = folder.allow_list()
        logger.info("listening on port %d for %s", folder.address()[1], ", ".join(sorted(allowed)))
        transport = GridTransport(grid, allowed, settings.deadline, quota)
        try:
            return serve(config, path, resume, folder, transport, settings, callbacks, stopping)
        finally:
            before_end()


def run_local_federation(
    config: Config,
    count: int,
    out: Path | None,
    resume: bool,
    settings: FederationSettings,
    callbacks: Sequence[Callback] = (),
    stopping: Callable[[], bool] = lambda: False,
) -> RunRecord:
    """Run a federation of sites on this machine, each with its share of the split, and stop all processes after it."""
    if config.data.path is not None:
        raise UserError(
            "moonfed federate splits a built-in data set between sites on this machine; for sites with their own rows "
            "use moonfed federation init, moonfed site init --data and moonfed federation start --data"
        )
    path = choose_run_folder(config, out, resume)
    parent = path / FEDERATION
    names = [f"site-{i:0{len(str(count - 1))}}" for i in range(count)]
    port = free_port()
    if not parent.exists():
        prepare(config, names)  # refuses what does not fit before anything is written
        threads = config.run.threads or max(1, (os.cpu_count() or 1) // count)
        create_local_folders(parent, names, port, threads)
    folder = CoordinatorFolder(parent / COORDINATOR)
    if (existing := sorted(folder.allow_list())) != names:
        raise UserError(
            f"{path} was made with {len(existing)} sites, got --sites {count}; use --sites {len(existing)}, "
            "or --out for another folder"
        )
    children: list[ChildProcess] = []
    with ExitStack() as stack:
        stack.enter_context(locked_folder(parent, "another moonfed federate"))  # before the sites' port is changed
        if expiry_warning(folder.server_files) is not None:  # a run that is resumed after weeks
            folder.renew_certificate(LOCAL_CERTIFICATE_DAYS)
        folder.set_address(LOOPBACK, port)
        stack.callback(stop_all, children)
        for name in names:
            SiteFolder(parent / name).update_invitation(folder.invitation)
            children.append(start_site(parent / name, parent / f"{name}.log"))
        stop_sites = partial(stop_all, children)  # while SuperLink is still there to sign them off
        return run_coordinator(folder, LOOPBACK, config, path, resume, settings, callbacks, stopping, stop_sites)


def start_site(folder: Path, log: Path) -> ChildProcess:
    """Start a site in a process of its own, which ends with this one."""
    arguments = ["-m", "moonfed.federation.flower.join_process", str(folder), str(os.getpid())]
    return ChildProcess(arguments, log, folder / "flower")


def choose_run_folder(config: Config, out: Path | None, resume: bool) -> Path:
    """Choose the run folder, and reject at once what would be rejected after the sites have connected."""
    check_federable(config)
    path = out or default_folder(config).with_name(f"federated-{default_folder(config).name}")
    if (path / CONFIG).exists() and not resume:
        raise UserError(f"{path} already holds a run; continue it with --resume, or use --out for another folder")
    return path


def create_local_folders(parent: Path, names: list[str], port: int, threads: int) -> None:
    """Make the folders of a coordinator and its sites, completely or not at all."""
    temporary = parent.with_name(f".{parent.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    make_folder(temporary)
    folder = create_coordinator(temporary / COORDINATOR, LOOPBACK, port, LOCAL_CERTIFICATE_DAYS)
    for i, name in enumerate(names):
        settings = SiteSettings(name, share=i, threads=threads)
        site = make_site_folder(temporary / name, folder.invitation, settings)
        folder.admit(name, site.public_key_path)
    temporary.rename(parent)
