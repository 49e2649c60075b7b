"""The command line."""

import os
import signal
from importlib import import_module
from pathlib import Path
from types import FrameType

from platformdirs import user_cache_dir

# Before torch is loaded: threads that wait should soon sleep. Spinning ones take the cores from each other as soon as
# the machine has anything else to do (with a second run on two cores a round took ten times as long), and waking one
# up between any two operations costs a plain training loop a third of its speed.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# What was compiled for a GPU stays on disk, beside the data sets, and not in a folder that is emptied at night.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(user_cache_dir("moonfed")) / "compiled"))


def main() -> None:
    """Load the commands, which takes a second or two, and run them; Ctrl-C meanwhile ends in a line."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where Ctrl-C is to be ignored
        signal.signal(signal.SIGINT, _stop)
    commands = import_module("moonfed.cli.main")
    signal.signal(signal.SIGINT, before)
    commands.main()


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun, and an exception in the middle of an import ends as all kinds of others."""
    os.write(2, b"moonfed: stopped\n")
    os._exit(1)
