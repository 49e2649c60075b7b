"""Flower's plain way in: a ServerApp and a ClientApp for flwr run, flower-superlink and flower-supernode.

The options are run-config's home, out, config and resume at the coordinator, and node-config's site at each site:
folders and files of the machine that reads them.
"""

import sys
import tomllib
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.listener import Listener
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.flower.site_worker import reply_to
from moonfed.federation.flower.transport import GridPost
from moonfed.federation.pki.coordinator_folder import Home
from moonfed.federation.pki.site_folder import SitePlace
from moonfed.federation.site.trainer import Site
from moonfed.training.config import make_config

server = ServerApp()
site = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation whose settings are in a file at the coordinator."""
    given = context.run_config
    file = Path(str(given["config"]))
    config = make_config(tomllib.loads(file.read_text(encoding="utf-8")))
    home, settings = Home(Path(str(given["home"]))), FederationSettings()  # type: ignore[call-arg]
    post = GridPost(grid, home.allowed(), settings.deadline)  # type: ignore[arg-type]
    out, resume = Path(str(given["out"])), bool(given["resume"])
    outcome = serve(config, out, resume, home, post, settings, Listener(after_round=_told, say=_say))
    if outcome.failure is not None:
        raise RunFailed(outcome.failure)


@site.train()
def train(message: Message, context: Context) -> Message:
    """Answer one ask in a process of its own, started for it."""
    folder = context.node_config.get("site")
    if not isinstance(folder, str):
        raise UserError("this node needs --node-config 'site=\"FOLDER\"', the folder that moonfed site init made")
    return reply_to(message, Site(SitePlace(Path(folder)), _say))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _told(round: int, rows: list[dict[str, object]]) -> bool:
    for row in rows:
        _say(f"round {round}: accuracy {row['accuracy']}")
    return True
