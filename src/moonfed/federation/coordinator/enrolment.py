"""Enrolment: every site reports its rows before the first round, or is told why it cannot take part."""

import logging
import math
import secrets
import time
from collections.abc import Sequence
from statistics import median_low

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.types import PartyInfo
from moonfed.federation.coordinator.exchange import DISCONNECTED, LATE, NO_REPLY, POLL_SECONDS
from moonfed.federation.coordinator.remote_runner import RemoteRunner
from moonfed.federation.coordinator.update_validation import NONCE_BYTES
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.request import (
    ENROL,
    REJECT,
    ROWS,
    Envelope,
    Request,
    read_reply,
    request_envelope,
)
from moonfed.federation.protocol.signing import Claim, digest, verify

logger = logging.getLogger(__name__)
REJECT_SECONDS = 5.0  # that a rejected site is given to receive the reason


def enrol(runner: RemoteRunner, names: Sequence[str], classes: int, encoding: str = "") -> list[PartyInfo]:
    """Request every site's number of rows, in total and per class; send the data encoding if there is one."""
    enrolled: dict[str, PartyInfo] = {}
    claims = {name: _claim(runner, name) for name in names}

    def accept(site: str, envelope: Envelope) -> None:
        claim, numbers, signature = read_reply(envelope)
        if claim != claims[site]:
            raise Rejection("not requested", "this does not reply to the enrolment request")
        verify(runner.allow_list[site], claim, numbers, {}, signature)
        counts = tuple(numbers.get(f"class{i}", -1) for i in range(classes))
        if not all(type(n) is int and n >= 0 for n in counts) or sum(counts) != numbers.get(ROWS):
            raise Rejection("impossible rows", f"the {classes} classes do not add up to the rows")
        enrolled[site] = PartyInfo(names.index(site), int(sum(counts)), tuple(map(int, counts)))
        runner.exchange.observe_process(site, numbers)
        logger.info("%s enrolled with %d rows", site, enrolled[site].rows)

    envelopes: dict[str, Envelope] = {}
    for name in names:
        request = Request(ENROL, claims[name], config=runner.config, encoding=runner.encoding)
        envelope = request_envelope(runner.key, request, {})
        envelopes[name] = Envelope({**envelope.fields, "encoding": encoding}, {}) if encoding else envelope
    rejected = runner.exchange.run(envelopes, accept, lambda: False)
    invalid = {site: rejection.detail for site, rejection in rejected.items() if rejection.reason != NO_REPLY}
    send_rejections(runner, {site: f"its enrolment is invalid: {detail}" for site, detail in invalid.items()})
    if rejected:
        raise RunFailed(_describe(rejected, runner.settings.deadline))
    _check_rows(runner, {name: enrolled[name].rows for name in names})
    return [enrolled[name] for name in names]


def _check_rows(runner: RemoteRunner, rows: dict[str, int]) -> None:
    """Reject a site without rows, and one with so many that it would dominate the mean.

    Rows are weights in the mean, and only the site knows them.
    """
    median, limit = max(1, median_low(rows.values())), runner.settings.rows
    for name, count in rows.items():
        if not count:
            send_rejections(runner, {name: "it has no rows to train on"})
            raise UserError(f"site {name} has no rows to train on; remove its key from the allow-list")
        if count > limit * median:
            excess = f"more than {limit:g} times the median of the sites"
            send_rejections(runner, {name: f"its {count} rows are {excess}"})
            advice = f"if the number is right, use --rows-limit {math.ceil(count / median)}"
            raise RunFailed(f"{name} reports {count} rows, {excess}, and would dominate the mean; {advice}")


def send_rejections(runner: RemoteRunner, reasons: dict[str, str]) -> None:
    """Tell connected sites why they cannot take part."""
    transport = runner.exchange.transport
    connected = transport.connected() if reasons else {}
    waiting = {site for site in reasons if site in connected}
    for site in waiting:
        request = Request(REJECT, _claim(runner, site), said=reasons[site])
        transport.send(site, request_envelope(runner.key, request, {}))
    deadline = time.monotonic() + REJECT_SECONDS
    while waiting and time.monotonic() < deadline:
        waiting -= {site for site, _ in transport.receive()}
        time.sleep(POLL_SECONDS)
    transport.discard_pending()


def _claim(runner: RemoteRunner, site: str) -> Claim:
    return Claim(runner.run, 0, secrets.token_hex(NONCE_BYTES), digest({}), site)


def _describe(rejected: dict[str, Rejection], seconds: float) -> str:
    """Say which sites did not reply and which cannot take part."""
    absent = [site for site, rejection in rejected.items() if rejection.detail in (DISCONNECTED, LATE)]
    parts = [f"{site} cannot take part: {rejected[site].detail}" for site in rejected if site not in absent]
    if absent:
        parts.append(f"{', '.join(absent)} did not enrol within {seconds:g} s; start them with moonfed site join")
    return "; ".join(parts) + ", or remove their keys from the allow-list"
