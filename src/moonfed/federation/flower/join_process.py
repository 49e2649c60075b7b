"""A site as a child process: python -m moonfed.federation.flower.join_process DIR PARENT."""

import signal
import sys
from pathlib import Path
from typing import Any

from moonfed.federation.flower.processes import exit_with_parent, log_to
from moonfed.federation.flower.site_worker import join_federation


def main() -> None:
    """Take part until stopped, or until the parent is gone."""
    folder, parent = sys.argv[1:]
    stopping = [False]

    def stop(number: int, frame: Any) -> None:
        stopping[0] = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    exit_with_parent(int(parent))
    log_to(sys.stdout)
    join_federation(Path(folder), lambda: stopping[0])


if __name__ == "__main__":
    main()
