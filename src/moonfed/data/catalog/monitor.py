"""Progress of a transfer, and the error of a source that fails."""


class TransferMonitor:
    """Receives the progress of downloading and converting; this base class ignores it."""

    def update(self, what: str, done: int, total: int, unit: str) -> None:
        """Take note that `done` of `total` units are complete; a total of 0 means that it is unknown."""


SILENT = TransferMonitor()


class SourceError(Exception):
    """A source failed to provide a data set, for a reason of one line; the next source is tried."""
