"""A site as a process of somebody who runs several on one machine: python -m moonfed.federation.join DIR PARENT."""

import signal
import sys
from pathlib import Path
from typing import Any

from moonfed.federation.processes import end_with_parent
from moonfed.federation.worker import join


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
