"""Runs Flower's own servers so that they end with the process that started them, and a node that polls more often.

Run as python -m moonfed.federation.flower.node_process superlink|supernode PARENT ...; what follows PARENT are the
options of flower-superlink and flower-supernode.
"""

import secrets
import sys
import time
from functools import partial
from typing import Any

from moonfed.federation.flower.processes import PROCESS_HEADER, exit_with_parent

MIN_POLL, MAX_POLL = 0.2, 3.0  # seconds between two polls: just after a message, and after a minute without one
LOCAL_POLL = 0.1  # seconds between two polls of the process beside the node, which need no network


class FastPollingClock:
    """Replaces the time module in flower-supernode's loop, whose sleeps Flower has no setting for.

    Flower sleeps three seconds when there is no message and half a second when there is no reply yet. Here the first
    sleep grows with the time since the last message, so that a wait is lengthened by at most a twentieth, and an idle
    site does not poll all the time.
    """

    def __init__(self) -> None:
        self.last_message = time.monotonic()

    def __getattr__(self, name: str) -> object:
        return getattr(time, name)

    def sleep(self, seconds: float) -> None:
        """Sleep until the next poll."""
        now = time.monotonic()
        if seconds < MAX_POLL:
            self.last_message = now
            return time.sleep(min(seconds, LOCAL_POLL))
        return time.sleep(min(MAX_POLL, max(MIN_POLL, (now - self.last_message) / 20)))


class ProcessHeaderInterceptor:
    """Adds the number of this process to the requests that Flower signs.

    Of two processes with copies of one key, Flower lets one in and the other retries. The proxy distinguishes them by
    this number.
    """

    def __init__(self, signer: Any) -> None:
        self.signer, self.number = signer, secrets.token_hex(8)

    def intercept(self, context: Any, call_next: Any) -> Any:
        """Add the number, then sign."""
        context.request.headers[PROCESS_HEADER] = self.number
        return self.signer.intercept(context, call_next)


def main() -> None:
    """Run one of Flower's servers."""
    kind, parent, *options = sys.argv[1:]
    exit_with_parent(int(parent))
    sys.argv = [f"flower-{kind}", *options]
    if kind == "superlink":
        from flwr.superlink.cli import flower_superlink

        flower_superlink()
    else:
        _run_supernode()


def _run_supernode() -> None:
    from flwr.supercore.inflatable.inflatable_utils import pull_objects
    from flwr.supernode import fleet_http_connection as connection
    from flwr.supernode import start_client_internal as loop
    from flwr.supernode.cli import flower_supernode
    from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor

    def intercepted(*keys: Any) -> ProcessHeaderInterceptor:
        return ProcessHeaderInterceptor(NodeAuthHttpInterceptor(*keys))

    replacements: list[tuple[Any, str, Any]] = [
        (loop, "time", FastPollingClock()),
        (loop, "pull_objects", partial(pull_objects, initial_backoff=LOCAL_POLL, backoff_cap=1.0)),
        (connection, "NodeAuthHttpInterceptor", intercepted),
    ]
    for module, name, value in replacements:
        setattr(module, name, value)
    flower_supernode()


if __name__ == "__main__":
    main()
