"""A site as a child process: python -m moonfed.federation.flower.join_process DIR PARENT."""

import signal
import sys
from pathlib import Path
from typing import Any

from moonfed.federation.flower.processes import end_with_parent
from moonfed.federation.flower.site_worker import join


def main() -> None:
    """Take part until told to stop, or until the parent is gone."""
    folder, parent = sys.argv[1:]
    stopping = [False]

    def stop(number: int, frame: Any) -> None:
        stopping[0] = True

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    end_with_parent(int(parent))
    join(Path(folder), lambda line: print(line, flush=True), lambda: stopping[0])


if __name__ == "__main__":
    main()
