"""The coordinator's side of a round: asks go out, replies come in, and those that are taken settle it.

Updates travel as they are, delta, buffers and slots, and are weighed by the coordinator: which replies are refused
changes the shares of the others, and norms can be compared before weighing only.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import torch

from moonfed.core.errors import RunFailed
from moonfed.core.types import Tensors
from moonfed.engines import JobResult
from moonfed.federation.coordinator.duplicates import LINE, Whereabouts
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.update_validation import Enrolled, Gate, Reply, within_norm
from moonfed.federation.pki.coordinator_folder import Home
from moonfed.federation.protocol.codec import expected_losses, expected_upload, flat_state
from moonfed.federation.protocol.rejection import Refused
from moonfed.federation.protocol.request import TRAIN, Ask, Note, Words, ask_note, read_reply
from moonfed.federation.protocol.signing import digest
from moonfed.training.cohort import Participant
from moonfed.training.trial import Trial

MOST_LOSS = 1e30  # beyond it a mean over steps and sites is no number any more
POLL, LOOK = 0.1, 0.5  # seconds between two looks for replies, and for who is there
SILENT, GONE, LATE = "no answer", "it is not connected", "not in time"


class Post(Protocol):
    """Carries notes to sites and back."""

    def present(self) -> dict[str, str]:
        """Name the sites that are connected, each with a word that changes when it comes anew."""
        ...

    def send(self, site: str, note: Note) -> None:
        """Send a note to a site that is present."""
        ...

    def collect(self) -> list[tuple[str, Note | str]]:
        """Take what has come: of each reply the site whose connection it came by, and the note or what went wrong."""
        ...

    def forget(self) -> None:
        """Wait no longer for what has not come."""
        ...


class Sites:
    """Parties at other sites."""

    def __init__(
        self,
        home: Home,
        post: Post,
        settings: FederationSettings,
        run: str,
        log: Callable[[str], None],
        say: Callable[[str], None],
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.key, self.allowed, self.post = home.key(), home.allowed(), post
        self.settings, self.run, self.log, self.say, self.stopping = settings, run, log, say, stopping
        self.seen: dict[str, float] = {}  # when a site was last connected
        self.names: list[str] = []  # sites by party
        self.accepted: dict[int, int] = {}  # by party: its last round that counted
        self.gate: Gate | None = None
        self.config, self.encoding = "{}", ""  # what goes with every ask
        self.whereabouts = Whereabouts()

    def ready(self, names: Sequence[str], trial: Trial, accepted: dict[int, int]) -> None:
        """Say who is which party and which rounds of each have counted."""
        self.names, self.accepted = list(names), dict(accepted)
        self.seen = dict.fromkeys(names, time.monotonic()) | self.seen
        train = trial.config.train
        assert train.batch is not None
        enrolled = {
            name: Enrolled(self.allowed[name], fact.rows, train.epochs * (fact.rows // train.batch))
            for name, fact in zip(names, trial.facts, strict=True)
            if name in self.allowed
        }
        self.gate = Gate(self.run, enrolled, train.momentum)

    def train(self, trials: Sequence[Trial]) -> list[dict[int, JobResult]]:
        """Train the cohort of a trial's next round; a round without quorum is asked for again, then it fails."""
        (trial,) = trials
        seats, round = trial.cohorts.seats(trial.round), trial.round + 1
        if not seats:
            return [{}]
        needed = max(1, math.ceil(self.settings.quorum * len(seats) - 1e-9))
        for attempt in range(1, self.settings.attempts + 1):
            done = self._round(trial, seats, needed)
            if len(done) >= needed:
                self.accepted |= dict.fromkeys(done, round)
                return [done]
            self.say(f"round {round}: {len(done)} of {len(seats)} replies, {needed} are needed (attempt {attempt})")
        raise RunFailed(
            f"round {round} got too few replies {self.settings.attempts} times ({needed} of {len(seats)} are needed); "
            f"what was done up to round {trial.round} is saved: go on with --resume once the sites are back"
        )

    def _round(self, trial: Trial, seats: Sequence[Participant], needed: int) -> dict[int, JobResult]:
        assert self.gate is not None
        gate, round, flat = self.gate, trial.round + 1, _on_cpu(flat_state(trial.state))
        like = expected_upload(trial.algorithm.local, trial.state, trial.facts[0], trial.fresh)
        named = expected_losses(trial.algorithm.local, trial.state, trial.facts[0], trial.fresh)
        gate.open(round, digest(flat), like)
        seat_of = {self.names[seat.party]: seat for seat in seats}
        notes: dict[str, Note] = {}
        for site, seat in seat_of.items():
            base = self.accepted.get(seat.party, 0)
            ask = Ask(TRAIN, gate.ask(site), base, seat.party, seat.work, self.config, encoding=self.encoding)
            notes[site] = ask_note(self.key, ask, flat)
        taken: dict[str, JobResult] = {}

        def take(site: str, note: Note) -> None:
            claim, numbers, signature = read_reply(note)
            upload = gate.admit(Reply(site, claim, numbers, note.tensors, signature))
            self.answered_by(site, numbers)
            steps = upload.steps  # the mean of a loss stands for each of its steps, so that the cohort's mean is right
            parts = {k.removeprefix("loss/"): float(v) for k, v in numbers.items() if k.startswith("loss/")}
            if set(parts) != named:
                raise Refused("malformed", "its losses have other names than those of the algorithm", site, round)
            if any(abs(v) > MOST_LOSS for v in parts.values()):
                raise Refused("impossible loss", f"over {MOST_LOSS:g}", site, round)
            losses = {k: torch.tensor([v]).expand(steps) for k, v in parts.items()}
            taken[site] = JobResult(upload, {}, losses, numbers.get("gamma"))

        self.exchange(notes, take, lambda: len(taken) >= needed)
        if self.settings.norm:
            kept, refused = within_norm({k: v.upload for k, v in taken.items()}, self.settings.norm, round)
            for refusal in refused:
                self._refuse(refusal)
            taken = {site: taken[site] for site in kept}
        return {seat.party: taken[site] for site, seat in seat_of.items() if site in taken}

    def exchange(
        self, notes: dict[str, Note], take: Callable[[str, Note], None], enough: Callable[[], bool]
    ) -> dict[str, Refused]:
        """Send notes and take replies until all have answered, or the gone alone are missing and enough did, or late.

        A site that comes anew while it is waited for is asked the very same again. Returned is who was refused.
        """
        refused: dict[str, Refused] = {}
        ends = time.monotonic() + self.settings.deadline
        waiting, asked, gone, looked = dict(notes), dict[str, str](), list[str](), -math.inf
        here: dict[str, str] = {}
        while waiting and (now := time.monotonic()) < ends:
            if now - looked >= LOOK:
                here, looked = self.post.present(), now
                self.seen |= dict.fromkeys(here, now)
                for site in [site for site in waiting if site in here and asked.get(site) != here[site]]:
                    self.post.send(site, waiting[site])
                    asked[site] = here[site]
            for site, note in self.post.collect():
                if site not in waiting:
                    self._note_second(site)
                    continue
                if (refusal := self._taken(site, note, take)) is not None:
                    refused[site] = refusal
                del waiting[site]
            left = [site for site in waiting if site not in here]
            if left and self.stopping():
                raise RunFailed(f"stopped, without waiting for {', '.join(left)} to come back; go on with --resume")
            gone = [site for site in left if now - self.seen.get(site, now) > self.settings.patience]
            if len(gone) == len(waiting) and enough():
                break
            time.sleep(POLL)
        for site in waiting:
            refused[site] = Refused(SILENT, GONE if site in gone else LATE, site, self._now())
            self._refuse(refused[site])
        self.post.forget()
        return refused

    def _taken(self, site: str, note: Note | str, take: Callable[[str, Note], None]) -> Refused | None:
        """Take a reply, or say why not: it must not end the coordinator, whatever is in it."""
        try:
            if isinstance(note, str):
                raise Refused(SILENT, note)
            if "refused" in note.words:
                self.answered_by(site, note.words)
                raise Refused(SILENT, str(note.words["refused"]))
            take(site, note)
        except Exception as error:
            why = error if isinstance(error, Refused) else Refused("malformed", type(error).__name__)
            refusal = Refused(why.reason, why.detail, site, why.round if why.round is not None else self._now())
            self._refuse(refusal)
            return refusal
        return None

    def answered_by(self, site: str, said: Words) -> None:
        """Take note of which process of a site an answer came from."""
        if self.whereabouts.doubled(site, said):
            line = LINE.format(site)
            self.log(json.dumps({"noticed": site, "round": self._now(), "reason": "two places", "detail": line}))
            self.say(line)

    def _note_second(self, site: str) -> None:
        """Write down that a reply was dropped because its site had answered: no harm, but no silence either."""
        self.log(Refused("repeated", "it had answered this ask already", site, self._now()).line())

    def _now(self) -> int:
        return self.gate.round if self.gate else 0

    def _refuse(self, refusal: Refused) -> None:
        self.log(refusal.line())
        self.say(f"without {refusal}")


def appended(path: Path) -> Callable[[str], None]:
    """Make the log of refusals: a line each."""

    def write(line: str) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    return write


def _on_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}
