"""Why a message is rejected, in a form that is safe to log. Imports no torch: Flower's processes use it."""

import json

SHOWN = 120  # characters of a word from outside that go into a log


class Refused(Exception):
    """A reply that is not taken: whose it was, one word for the kind of refusal, and a sentence."""

    def __init__(self, reason: str, detail: str = "", site: str = "", round: int | None = None) -> None:
        detail, site = (printable(text) for text in (detail, site))  # it may be a stranger's, and goes to a terminal
        super().__init__(f"{site or 'a site'}: {reason}" + (f": {detail}" if detail else ""))
        self.reason, self.detail, self.site, self.round = reason, detail, site, round

    def line(self) -> str:
        """Put the refusal on one line of JSON, for the log."""
        said = {"refused": self.site[:SHOWN], "round": self.round, "reason": self.reason, "detail": self.detail}
        return json.dumps(said, allow_nan=False)


def printable(text: str) -> str:
    """Make a word from outside fit for a log and a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text[: 4 * SHOWN])
