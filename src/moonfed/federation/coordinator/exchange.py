"""One exchange with the sites: requests go out, replies come in, until a deadline."""

import json
import logging
import math
import time
from collections.abc import Callable
from typing import Protocol, TypeAlias

from moonfed.core.errors import RunFailed
from moonfed.federation.coordinator.audit_log import RejectionLog
from moonfed.federation.coordinator.duplicates import DUPLICATE, DuplicateDetector
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.request import PROCESS, REFUSED, Envelope, Fields

logger = logging.getLogger(__name__)
POLL_SECONDS, PRESENCE_SECONDS = 0.1, 0.5  # between two polls for replies, and for who is connected
NO_REPLY, DISCONNECTED, LATE = "no reply", "it is not connected", "not before the deadline"

Accept: TypeAlias = Callable[[str, Envelope], None]  # takes a site's reply, or raises a Rejection


class Transport(Protocol):
    """Carries envelopes to sites and back."""

    def connected(self) -> dict[str, str]:
        """Return the connected sites, each with a session name that changes when it reconnects."""
        ...

    def send(self, site: str, envelope: Envelope) -> None:
        """Send an envelope to a connected site."""
        ...

    def receive(self) -> list[tuple[str, Envelope | str]]:
        """Return new replies: the site whose connection each came by, and the envelope or what is wrong with it."""
        ...

    def discard_pending(self) -> None:
        """Stop waiting for replies that have not come."""
        ...


class Exchange:
    """Sends requests and collects replies for one run."""

    def __init__(
        self,
        transport: Transport,
        settings: FederationSettings,
        rejections: RejectionLog,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.transport, self.settings, self.rejections, self.stopping = transport, settings, rejections, stopping
        self.round = 0  # to which rejections are attributed; 0 is the enrolment
        self.last_seen: dict[str, float] = {}  # when a site was last connected
        self.duplicates = DuplicateDetector()

    def run(self, envelopes: dict[str, Envelope], accept: Accept, enough: Callable[[], bool]) -> dict[str, Rejection]:
        """Send each site its envelope, pass replies to accept, and return the rejections by site.

        Ends when all sites have replied, when only disconnected sites are missing and enough() is true, or at the
        deadline. A site that reconnects meanwhile is sent the same envelope again.
        """
        rejected: dict[str, Rejection] = {}
        deadline = time.monotonic() + self.settings.deadline
        waiting, sessions, connected = dict(envelopes), dict[str, str](), dict[str, str]()
        gone, polled = list[str](), -math.inf
        while waiting and (now := time.monotonic()) < deadline:
            if now - polled >= PRESENCE_SECONDS:
                connected, polled = self.transport.connected(), now
                self.last_seen |= dict.fromkeys(connected, now)
                self._send(waiting, connected, sessions)
            for site, envelope in self.transport.receive():
                if site not in waiting:
                    self.rejections.append(self._rejection("repeated", "it had replied already", site).to_json())
                    continue
                if (rejection := self._take(site, envelope, accept)) is not None:
                    rejected[site] = rejection
                del waiting[site]
            away = [site for site in waiting if site not in connected]
            if away and self.stopping():
                raise RunFailed(f"stopped without waiting for {', '.join(away)} to return; resume with --resume")
            gone = [site for site in away if now - self.last_seen.get(site, now) > self.settings.patience]
            if len(gone) == len(waiting) and enough():
                break
            time.sleep(POLL_SECONDS)
        for site in waiting:
            rejected[site] = self._rejection(NO_REPLY, DISCONNECTED if site in gone else LATE, site)
            self.rejections.record(rejected[site])
        self.transport.discard_pending()
        return rejected

    def _send(self, waiting: dict[str, Envelope], connected: dict[str, str], sessions: dict[str, str]) -> None:
        """Send to every connected site that was not sent its envelope in its present session."""
        for site in [site for site in waiting if site in connected and sessions.get(site) != connected[site]]:
            self.transport.send(site, waiting[site])
            sessions[site] = connected[site]

    def _take(self, site: str, envelope: Envelope | str, accept: Accept) -> Rejection | None:
        """Pass a reply to accept; return the rejection if it is not accepted."""
        try:
            if isinstance(envelope, str):
                raise Rejection(NO_REPLY, envelope)
            if REFUSED in envelope.fields:
                self.observe_process(site, envelope.fields)
                raise Rejection(NO_REPLY, str(envelope.fields[REFUSED]))
            accept(site, envelope)
        except Exception as error:  # a reply comes from outside: whatever is in it must not end the coordinator
            cause = error if isinstance(error, Rejection) else Rejection("malformed", type(error).__name__)
            rejection = self._rejection(cause.reason, cause.detail, site, cause.round)
            self.rejections.record(rejection)
            return rejection
        return None

    def observe_process(self, site: str, fields: Fields) -> None:
        """Note which process of a site a reply came from, and report a duplicate."""
        if self.duplicates.observe(site, fields.get(PROCESS)):
            line = DUPLICATE.format(site)
            entry = {"noticed": site, "round": self.round, "reason": "duplicate process", "detail": line}
            self.rejections.append(json.dumps(entry))
            logger.warning(line)

    def _rejection(self, reason: str, detail: str, site: str, round: int | None = None) -> Rejection:
        return Rejection(reason, detail, site, self.round if round is None else round)
