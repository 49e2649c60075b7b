"""The beginning of a run: every site says what it holds, and is told where it cannot take part."""

import math
import secrets
import time
from collections.abc import Sequence
from statistics import median_low

from moonfed.core.errors import RunFailed, UserError
from moonfed.core.types import PartyInfo
from moonfed.federation.coordinator.remote_runner import GONE, LATE, POLL, SILENT, Sites
from moonfed.federation.coordinator.update_validation import NONCE_BYTES
from moonfed.federation.protocol.rejection import Refused
from moonfed.federation.protocol.request import ENROL, TELL, Ask, Note, ask_note, read_reply
from moonfed.federation.protocol.signing import Claim, digest, verify

TELLING = 5.0  # seconds that a site which is not taken is given to hear why


def enrol(sites: Sites, names: Sequence[str], classes: int, batch: int, encoding: str = "") -> list[PartyInfo]:
    """Ask every site for its rows and how many there are of each class; with the encoding, as text, if there is one."""
    found: dict[str, PartyInfo] = {}

    def take(site: str, note: Note, asked: Claim) -> None:
        claim, numbers, signature = read_reply(note)
        if claim != asked:
            raise Refused("not asked", "this is no reply to this ask")
        verify(sites.allowed[site], claim, numbers, {}, signature)
        counts = tuple(numbers.get(f"class{i}", -1) for i in range(classes))
        if not all(type(n) is int and n >= 0 for n in counts) or sum(counts) != numbers.get("rows"):
            raise Refused("impossible rows", f"the {classes} classes do not add up to the rows")
        found[site] = PartyInfo(names.index(site), int(sum(counts)), tuple(map(int, counts)))
        sites.answered_by(site, numbers)
        sites.say(f"{site} is here with {found[site].rows} rows")

    claims = {name: _claim(sites, name) for name in names}
    notes: dict[str, Note] = {}
    for name in names:
        note = ask_note(sites.key, Ask(ENROL, claims[name], config=sites.config, encoding=sites.encoding), {})
        notes[name] = Note({**note.words, "encoding": encoding}, {}) if encoding else note
    refused = sites.exchange(notes, lambda site, note: take(site, note, claims[site]), lambda: False)
    judged = {site: refusal.detail for site, refusal in refused.items() if refusal.reason != SILENT}
    tell(sites, {site: f"what it said of its rows cannot be: {detail}" for site, detail in judged.items()})
    if refused:
        raise RunFailed(_not_enrolled(refused, sites.settings.deadline))
    _check_rows(sites, {name: found[name].rows for name in names}, batch)
    return [found[name] for name in names]


def _check_rows(sites: Sites, rows: dict[str, int], batch: int) -> None:
    """Refuse a site with too few rows for a step, and one with so many that nobody else would count.

    Rows are weight in the mean, and only the site knows them.
    """
    usual, most = max(1, median_low(rows.values())), sites.settings.rows
    for name, own in rows.items():
        if own < batch:
            tell(sites, {name: f"its {own} rows are fewer than a batch of {batch}"})
            advice = f"use --batch {own} or smaller" if own else "take its key off the allow-list"
            raise UserError(f"site {name} has {own} rows, fewer than a batch of {batch}; {advice}")
        if own > most * usual:
            limit = f"over {most:g} times the median of the sites, and would outweigh them"
            tell(sites, {name: f"its {own} rows are {limit}"})
            advice = f"if that is true, use --rows-limit {math.ceil(own / usual)}"
            raise RunFailed(f"{name} says that it holds {own} rows, {limit}; {advice}")


def tell(sites: Sites, said: dict[str, str]) -> None:
    """Tell sites why they are not taken, those that are there to hear it."""
    here = sites.post.present() if said else {}
    waiting = {site for site in said if site in here}
    for site in waiting:
        sites.post.send(site, ask_note(sites.key, Ask(TELL, _claim(sites, site), said=said[site]), {}))
    ends = time.monotonic() + TELLING
    while waiting and time.monotonic() < ends:
        waiting -= {site for site, _ in sites.post.collect()}
        time.sleep(POLL)
    sites.post.forget()


def _claim(sites: Sites, site: str) -> Claim:
    return Claim(sites.run, 0, secrets.token_hex(NONCE_BYTES), digest({}), site)


def _not_enrolled(refused: dict[str, Refused], seconds: float) -> str:
    """Say who is not there, and who is there and cannot take part."""
    away = [site for site, refusal in refused.items() if refusal.detail in (GONE, LATE)]
    parts = [f"{site} cannot take part: {refusal.detail}" for site, refusal in refused.items() if site not in away]
    if away:
        parts.append(f"{', '.join(away)} did not enrol within {seconds:g} s; start them with moonfed site join")
    return "; ".join(parts) + ", or take their keys off the allow-list"
