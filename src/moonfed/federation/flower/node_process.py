"""Flower's own servers, started so that they end with whoever started them, and a node that polls more often.

Run as python -m moonfed.federation.flower.node_process superlink|supernode PARENT ...; what follows PARENT are the
options of flower-superlink and flower-supernode.
"""

import secrets
import sys
import time
from functools import partial
from typing import Any

from moonfed.federation.flower.processes import PROCESS_HEADER, end_with_parent

SOON, LATER = 0.2, 3.0  # seconds between two polls: just after a message, and after a minute without one
LOCAL = 0.1  # seconds between two looks for the reply of the process beside it; no network is asked


class Hasty:
    """The clock of flower-supernode's loop, for whose sleeps Flower has no setting.

    Flower sleeps three seconds where there was no message and half a one where there is no reply yet. Here the first
    grows with the time since the last message, so that a wait costs a twentieth of itself at most, and a site that is
    not asked for hours does not call every moment.
    """

    def __init__(self) -> None:
        self.last = time.monotonic()

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep until the next poll."""
        now = time.monotonic()
        if seconds < LATER:
            self.last = now
            return time.sleep(min(seconds, LOCAL))
        return time.sleep(min(LATER, max(SOON, (now - self.last) / 20)))


class Named:
    """Flower's signature of a node's requests, with the number of this process beside it.

    Of two processes with copies of one key Flower lets one in, and the other tries again and again: it is by this
    number that the door tells them apart.
    """

    def __init__(self, signs: Any) -> None:
        self.signs, self.number = signs, secrets.token_hex(8)

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Name the process and sign."""
        context.request.headers[PROCESS_HEADER] = self.number
        return self.signs.intercept(context, call_next)


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
        from flwr.supernode import fleet_http_connection as connection
        from flwr.supernode import start_client_internal as loop
        from flwr.supernode.cli import flower_supernode
        from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

        hurried = partial(pull_objects, initial_backoff=LOCAL, backoff_cap=1.0)
        for name, value in (("time", Hasty()), ("pull_objects", hurried)):
            setattr(loop, name, value)
        setattr(connection, "NodeAuthHttpInterceptor", lambda *keys: Named(NodeAuthHttpInterceptor(*keys)))  # noqa: B010
        flower_supernode()


if __name__ == "__main__":
    main()
