"""Who was turned away at the door, in a file that does not grow without end."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from moonfed.federation.protocol.rejection import printable

KINDS = 200  # different refusals that are written down after a start


class Book:
    """Keeps who was turned away: the first of each kind is said, each that differs is written once, up to a number."""

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self.path, self.say = path, say
        self.kinds, self.seen = set[str](), set[str]()

    def note(self, kind: str, what: str, address: str) -> None:
        """Write a refusal down, unless the like of it is there."""
        line = printable(f"{kind}: {what}")
        if line in self.seen or len(self.seen) >= KINDS:
            return
        self.seen.add(line)
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as file:
            file.write(f"turned away {address}: {line}\n")
        if kind not in self.kinds:
            self.kinds.add(kind)
            self.say(f"turned away {address} at the door: {line}")
