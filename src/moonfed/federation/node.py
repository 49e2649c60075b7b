"""Flower's own servers, started so that they end with whoever started them, and a node that polls more often.

python -m moonfed.federation.node superlink PARENT ... and ... supernode PARENT ...: what follows are the options of
flower-superlink and flower-supernode.
"""

import sys
import time
from functools import partial

from moonfed.federation.processes import end_with_parent

POLL = 0.2  # seconds; flower-supernode sleeps three where there was no message and half a one for a reply


class Hasty:
    """The clock of flower-supernode's loop, whose sleeps are shorter: Flower has no setting for them."""

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep as long as was asked for, but never longer than a poll."""
        time.sleep(min(seconds, POLL))


def main() -> None:
    """Run one of Flower's servers."""
    kind, parent, *words = sys.argv[1:]
    end_with_parent(int(parent))
    sys.argv = [f"flower-{kind}", *words]
    if kind == "superlink":
        from flwr.superlink.cli import flower_superlink

        flower_superlink()
    else:
        from flwr.supercore.inflatable.inflatable_utils import pull_objects
        from flwr.supernode import start_client_internal as loop
        from flwr.supernode.cli import flower_supernode

        hurried = partial(pull_objects, initial_backoff=POLL / 4, backoff_cap=1.0)
        for name, value in (("time", Hasty()), ("pull_objects", hurried)):
            setattr(loop, name, value)
        flower_supernode()


if __name__ == "__main__":
    main()
