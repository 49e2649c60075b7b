"""moonfed federate, federation and site: the same algorithms between real sites, over Flower."""

import signal
from pathlib import Path
from typing import Annotated, Any

import typer

from moonfed.cli.flags import Values, with_settings
from moonfed.cli.help_pages import Commands, Json
from moonfed.cli.progress import messages_to, print_line, showing, stderr
from moonfed.cli.run_summary import close
from moonfed.core.errors import UserError
from moonfed.data.readers import ReaderOptions
from moonfed.engines.devices import DEVICE_HELP
from moonfed.federation.coordinator.federation_config import FederationSettings, make_federation_settings
from moonfed.training.config import make_config

federation = Commands(help="The coordinator's side of a federation: moonfed federation init, admit, start, renew.")
site = Commands(help="A site's side of a federation: moonfed site init, join.")

SECTIONS, WAITING = ("algorithm", "data", "model", "train", "cohort", "run"), "federation"
# Sites are the parties, and each trains alone; the coordinator has no training rows to set aside.
ELSEWHERE = (
    *("data_parties", "data_population", "data_rows_per_party", "run_engine", "run_slices"),
    *("run_lanes", "run_compile"),
    "run_checkpoint_every",  # a site remembers two rounds
    *("data_monitor", "train_patience", "train_calibrate"),
)
Out = Annotated[Path | None, typer.Option("--out", metavar="DIR", help="run folder; default: a name in runs/")]
Resume = Annotated[bool, typer.Option("--resume", help="continue from the last saved round, with the same sites")]


@with_settings(SECTIONS, without=ELSEWHERE, more={WAITING: FederationSettings})
def federate(
    given: Values,
    sites: Annotated[int, typer.Option("--sites", min=1, max=64, help="number of sites")] = 3,
    out: Out = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Run a real federation on this machine, over Flower with TLS and keys: moonfed federate --sites 3 --rounds 2."""
    limits = make_federation_settings(given.pop(WAITING, {}))
    given.setdefault("data", {})["parties"] = str(sites)
    settings = make_config(given)
    _need_flower()
    from moonfed.federation.flower.launcher import run_local_federation

    with showing([signal.SIGTERM], resume, out) as display:
        outcome = run_local_federation(settings, sites, out, resume, limits, [display], lambda: display.stopping)
    close(outcome, json)


@federation.command("init")
def init_federation(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the coordinator's new folder")],
    host: Annotated[str, typer.Option("--host", help="name or address by which the sites reach this machine")],
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="port that the coordinator listens on")] = 9443,
    days: Annotated[int, typer.Option("--days", min=1, help="days for which the server's certificate is good")] = 365,
) -> None:
    """Make a coordinator's folder: certificates, keys, and the invitation that every site gets."""
    _need_flower()
    from moonfed.federation.flower.launcher import create_coordinator

    made = create_coordinator(folder, host, port, days)
    typer.echo(f"made {folder}; give {made.invitation} to every site, then: moonfed federation admit {folder} NAME KEY")


@federation.command()
def admit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the coordinator's folder")],
    name: Annotated[str, typer.Argument(help="the site's name")],
    key: Annotated[Path, typer.Argument(metavar="KEY.pub", help="the public key that moonfed site init made there")],
) -> None:
    """Put a site's public key on the allow-list."""
    _need_flower()
    from moonfed.federation.pki.coordinator_folder import CoordinatorFolder

    _check_coordinator(folder)
    CoordinatorFolder(folder).admit(name, key)
    typer.echo(f"{name} may take part; sites on the list: {len(CoordinatorFolder(folder).allow_list())}")


@federation.command()
def renew(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the coordinator's folder")],
    days: Annotated[int, typer.Option("--days", min=1, help="days for which the new certificate is good")] = 365,
) -> None:
    """Make a new server certificate; the sites know the authority that signs it, and notice nothing."""
    _need_flower()
    from moonfed.federation.pki.coordinator_folder import CoordinatorFolder

    _check_coordinator(folder)
    expiry = CoordinatorFolder(folder).renew_certificate(days)
    typer.echo(f"the server's certificate in {folder} is valid until {expiry:%d %B %Y}; sites need nothing new")


@federation.command("start")
@with_settings(SECTIONS, without=ELSEWHERE, more={WAITING: FederationSettings})
def start_federation(
    given: Values,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the coordinator's folder")],
    listen: Annotated[str, typer.Option("--listen", metavar="HOST", help="address to listen on")] = "0.0.0.0",
    out: Out = None,
    resume: Resume = False,
    json: Json = False,
) -> None:
    """Run a federation with the sites of the allow-list: moonfed federation start DIR --algorithm moon --out RUN."""
    _need_flower()
    from moonfed.federation.flower.launcher import run_coordinator
    from moonfed.federation.pki.coordinator_folder import CoordinatorFolder

    _check_coordinator(folder)
    coordinator, limits = CoordinatorFolder(folder), make_federation_settings(given.pop(WAITING, {}))
    given.setdefault("data", {})["parties"] = str(len(coordinator.allow_list()))
    settings = make_config(given)
    with showing([signal.SIGTERM], resume, out) as display:
        outcome = run_coordinator(
            coordinator, listen, settings, out, resume, limits, [display], lambda: display.stopping
        )
    close(outcome, json)


@site.command("init")
def init_site(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="the site's new folder")],
    invitation: Annotated[Path, typer.Option("--invitation", metavar="FILE", help="what the coordinator gave you")],
    name: Annotated[str, typer.Option("--name", help="this site's name")],
    data: Annotated[
        Path | None, typer.Option("--data", metavar="PATH", help="this site's rows: what moonfed run --data takes")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(
            "--label", metavar="COLUMN", help="column with the class; default: label in a table, y in an .npz"
        ),
    ] = None,
    text: Annotated[
        str | None, typer.Option("--text", metavar="COLUMN", help="column with the text; default: the coordinator's")
    ] = None,
    ignore: Annotated[
        str, typer.Option("--ignore", metavar="COLUMNS", help="columns to ignore, separated by commas")
    ] = "",
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="skip rows that cannot be used")] = False,
    test: Annotated[
        Path | None,
        typer.Option("--test", metavar="PATH", help="test rows that stay here, for a personal model (fedper, ditto)"),
    ] = None,
    share: Annotated[
        int | None, typer.Option("--share", min=0, help="instead: the rows of this party in the simulated split")
    ] = None,
    device: Annotated[str, typer.Option("--device", help=DEVICE_HELP)] = "auto",
    threads: Annotated[int, typer.Option("--threads", min=0, help="CPU threads; 0: torch's own choice")] = 0,
) -> None:
    """Make a site's folder and its key, which never leaves it."""
    _need_flower()
    from moonfed.data.readers.schema import inspect_rows
    from moonfed.federation.pki.site_folder import SiteSettings, make_site_folder

    rows, test_rows = (None if path is None else str(path.resolve()) for path in (data, test))
    left_out = tuple(part.strip() for part in ignore.split(",") if part.strip())
    reading: dict[str, Any] = {"label": label, "text": text, "ignore": left_out, "skip_bad_rows": skip_bad_rows}
    settings = SiteSettings(name, share, rows, **reading, device=device, threads=threads, test=test_rows)
    if rows is None and settings.reader_options != ReaderOptions():
        raise UserError(
            "--label, --text, --ignore and --skip-bad-rows are about a site's own rows; name them with --data"
        )
    with messages_to(print_line):
        said = [inspect_rows(path, settings.reader_options) for path in (rows, test_rows) if path]
    made = make_site_folder(folder, invitation, settings)
    for line in said:
        typer.echo(line)
    typer.echo(f"made {folder}; send {made.public_key_path} to the coordinator, then: moonfed site join {folder}")


@site.command()
def join(folder: Annotated[Path, typer.Argument(metavar="DIR", help="the site's folder")]) -> None:
    """Take part until Ctrl-C: connect, train when asked, reconnect when the connection is lost."""
    _need_flower()
    from moonfed.federation.flower.site_worker import join_federation

    if not (folder / "site.json").exists():
        raise UserError(f"{folder} is not a site's folder; make one with moonfed site init")
    console, stopping = stderr(), [False]

    def stop(number: int, frame: Any) -> None:
        if stopping[0]:
            raise KeyboardInterrupt
        stopping[0] = True
        console.print("stopping; Ctrl-C again does not wait for what this site is doing")

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    with messages_to(lambda line: console.print(line, markup=False)):
        join_federation(folder, lambda: stopping[0])
    console.print("stopped; what this site remembers is in its folder")


def _check_coordinator(folder: Path) -> None:
    if not (folder / "invitation.json").exists():
        raise UserError(f"{folder} is not a coordinator's folder; make one with moonfed federation init")


def _need_flower() -> None:
    from moonfed.federation.flower.processes import need_flower

    need_flower()
