"""The command line."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
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
    """Run the command line."""
    with quiet_interrupts():
        commands = import_module("moonfed.cli.main")
    commands.main()


@contextmanager
def quiet_interrupts() -> Iterator[None]:
    """Import something that may take a second or two; Ctrl-C meanwhile ends in a line."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # not where Ctrl-C is to be ignored
        signal.signal(signal.SIGINT, _stop)
    try:
        yield
    finally:
        if before is signal.default_int_handler:
            signal.signal(signal.SIGINT, before)


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: nothing has begun, and an exception in the middle of an import ends as all kinds of others."""
    os.write(2, b"moonfed: stopped\n")
    os._exit(1)
