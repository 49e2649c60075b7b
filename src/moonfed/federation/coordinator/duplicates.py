"""Which process of a site answers: two at a time mean that its key is in use at two places."""

from moonfed.federation.protocol.request import PROCESS, Words

LINE = "{} answers from two places: its key is in use twice, by a copy of its folder for one"
REMEMBERED = 64  # processes of one site


class Whereabouts:
    """Notices a site of which a process is heard again after another one of the same name.

    A site that is started anew is another process, and the old one is not heard of again; a stored reply, sent by the
    new one, bears the number of the old one, and comes before any reply that the new one makes.
    """

    def __init__(self) -> None:
        self.processes: dict[str, list[int | bytes]] = {}  # of each site, the one that answered last at the end
        self.noticed: set[str] = set()

    def doubled(self, site: str, said: Words) -> bool:
        """Take what a reply says; True when it shows, for the first time, that a site is at two places."""
        process, known = said.get(PROCESS), self.processes.setdefault(site, [])
        if not isinstance(process, int | bytes) or (known and known[-1] == process):
            return False
        again = process in known and site not in self.noticed
        if again:
            self.noticed.add(site)
        self.processes[site] = [*known, process][-REMEMBERED:]
        return again
