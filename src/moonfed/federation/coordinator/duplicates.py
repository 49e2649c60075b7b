"""Detection of two processes that use one site's key at the same time."""

DUPLICATE = "two processes are using {}'s key; was its folder copied to another machine?"
MAX_PROCESSES = 64  # remembered per site


class DuplicateDetector:
    """Detects a site of which a process is heard again after another one was heard.

    A site that restarts has a new process number and its old one is not heard again. A reply that the new process sends
    from its disk has the old number, but it comes before any reply that the new process makes.
    """

    def __init__(self) -> None:
        self.processes: dict[str, list[int | bytes]] = {}  # per site, the one that was heard last at the end
        self.reported: set[str] = set()

    def observe(self, site: str, process: object) -> bool:
        """Record which process a message came from; return True when it first shows a duplicate of the site."""
        known = self.processes.setdefault(site, [])
        if not isinstance(process, int | bytes) or (known and known[-1] == process):
            return False
        duplicate = process in known and site not in self.reported
        if duplicate:
            self.reported.add(site)
        self.processes[site] = [*known, process][-MAX_PROCESSES:]
        return duplicate
