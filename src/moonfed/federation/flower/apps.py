"""A ServerApp and a ClientApp for Flower's own commands: flwr run, flower-superlink and flower-supernode.

Options: run-config's home, out, config and resume at the coordinator, node-config's site at each site. All of them
name folders and files of the machine that reads them.
"""

import logging
import sys
import tomllib
from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp

from moonfed.core.errors import RunFailed, UserError
from moonfed.federation.coordinator.federation_config import make_federation_settings
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.flower.processes import log_to
from moonfed.federation.flower.site_worker import reply_to
from moonfed.federation.flower.transport import GridTransport
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder
from moonfed.federation.pki.site_folder import SiteFolder
from moonfed.federation.site.trainer import SiteTrainer
from moonfed.training.callbacks import FunctionCallback
from moonfed.training.config import make_config
from moonfed.training.records import RoundRecord

logger = logging.getLogger(__name__)
server = ServerApp()
site = ClientApp()


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Run a federation whose settings are in a file at the coordinator."""
    log_to(sys.stderr)
    given = context.run_config
    file = Path(str(given["config"]))
    asked = tomllib.loads(file.read_text(encoding="utf-8"))
    settings, config = make_federation_settings(asked.pop("federation", {})), make_config(asked)
    folder = CoordinatorFolder(Path(str(given["home"])))
    transport = GridTransport(grid, folder.allow_list(), settings.deadline)  # type: ignore[arg-type]
    out, resume = Path(str(given["out"])), bool(given["resume"])
    outcome = serve(config, out, resume, folder, transport, settings, [FunctionCallback(_log_round)])
    if outcome.failure is not None:
        raise RunFailed(outcome.failure)


@site.train()
def train(message: Message, context: Context) -> Message:
    """Answer one request in a process that Flower started for it."""
    log_to(sys.stderr)
    folder = context.node_config.get("site")
    if not isinstance(folder, str):
        raise UserError("this node needs --node-config 'site=\"FOLDER\"', the folder that moonfed site init made")
    return reply_to(message, SiteTrainer(SiteFolder(Path(folder))))


def _log_round(record: RoundRecord) -> None:
    logger.info("round %d: accuracy %s", record["round"], record["accuracy"])
