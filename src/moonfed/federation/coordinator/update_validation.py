"""Judges the replies of a round: what is taken is signed, asked for, whole, finite and possible."""

import math
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from moonfed.core.tree import finite, leaves, vector_norm
from moonfed.core.types import Tensors, Upload
from moonfed.engines.step import effective_steps_of
from moonfed.federation.protocol.codec import Like, rebuilt_upload
from moonfed.federation.protocol.rejection import SHOWN, Refused
from moonfed.federation.protocol.signing import Claim, Numbers, verify

NONCE_BYTES = 16
CHANGE = "the change of the weights"
VARIANCE = ".running_var"  # as BatchNorm calls its buffer


@dataclass(frozen=True)
class Enrolled:
    """What the coordinator knows of a site from its enrolment."""

    public: EllipticCurvePublicKey
    rows: int
    steps: int  # the most that it can take in a round


@dataclass(frozen=True)
class Reply:
    """What a site sends back, as it came off the wire."""

    site: str  # whose connection it came by
    claim: Claim
    numbers: Numbers  # steps, mass and rows; whatever else there is must be finite
    tensors: Tensors
    signature: bytes


class Gate:
    """The gate of one run: opened for a round, it hands out asks and takes each answer once."""

    def __init__(self, run: str, sites: Mapping[str, Enrolled], momentum: float) -> None:
        self.run, self.sites, self.momentum = run, dict(sites), momentum
        self.used: set[str] = set()  # nonces of answers that were taken
        self.asks: dict[str, Claim] = {}  # by nonce: the asks of the open round
        self.answered: set[str] = set()  # sites whose answer of the open round was taken
        self.round, self.model, self.expected = -1, "", dict[str, Like]()

    def open(self, round: int, model: str, expected: Mapping[str, Like]) -> None:
        """Open the door for a round: from which model the updates start and what form they have."""
        self.round, self.model, self.expected = round, model, dict(expected)
        self.asks, self.answered = {}, set()

    def ask(self, site: str) -> Claim:
        """Make the claim that a site has to answer with, under a nonce that nobody could have known before."""
        claim = Claim(self.run, self.round, secrets.token_hex(NONCE_BYTES), self.model, site)
        self.asks[claim.nonce] = claim
        return claim

    def admit(self, reply: Reply) -> Upload:
        """Take a reply, or refuse it; nothing of a refused reply stays."""
        try:
            site = self.sites.get(reply.site)
            if site is None:
                raise Refused("foreign", "no site of this name is on the allow-list")
            if reply.claim.site != reply.site:
                raise Refused("foreign", f"it came by this site's connection and says it is of {reply.claim.site!r}")
            _check_kinds(reply)
            verify(site.public, reply.claim, reply.numbers, reply.tensors, reply.signature)
            self._check_claim(reply.claim)
            _check_form(reply.tensors, self.expected)
            _check_finite(reply.tensors, reply.numbers)
            self._check_work(reply.numbers, site)
        except Refused as refusal:
            raise Refused(refusal.reason, refusal.detail, reply.site, self.round) from None
        self.used.add(reply.claim.nonce)
        self.answered.add(reply.site)
        return rebuilt_upload(reply.tensors, reply.numbers)

    def _check_claim(self, claim: Claim) -> None:
        if claim.run != self.run:
            raise Refused("another run", f"it is of run {claim.run!r}, this is {self.run!r}")
        if claim.nonce in self.used:
            raise Refused("replayed", "this very answer was taken before")
        if claim.round != self.round:
            raise Refused("another round", f"it is of round {claim.round}, this is {self.round}")
        if claim.model != self.model:
            raise Refused("stale model", f"it starts from {claim.model[:12]!r}, this round from {self.model[:12]!r}")
        if self.asks.get(claim.nonce) != claim:
            raise Refused("not asked", "this site was not asked under this nonce")
        if claim.site in self.answered:
            raise Refused("replayed", "the site's answer of this round was taken already")

    def _check_work(self, numbers: Numbers, site: Enrolled) -> None:
        rows, steps, effective_steps = numbers["rows"], numbers["steps"], numbers["mass"]
        if rows != site.rows:
            raise Refused("impossible rows", f"{rows} rows, {site.rows} at enrolment")
        if not 1 <= steps <= site.steps:
            raise Refused("impossible steps", f"{steps} steps; {site.rows} rows make 1 to {site.steps}")
        possible = effective_steps_of(int(steps), self.momentum)
        if not math.isclose(effective_steps, possible, rel_tol=1e-6):
            raise Refused("impossible mass", f"mass {effective_steps:g}; {steps} steps make {possible:g}")


def within_norm(uploads: Mapping[str, Upload], multiple: float, round: int) -> tuple[dict[str, Upload], list[Refused]]:
    """Part a round's updates into those within a multiple of the median norm and refusals of the others.

    The change of the weights, the buffers and each slot are measured by themselves; a site that did more than the
    median work, by its mass, may have changed the weights by as much more. Of an even number of sites the lower of the
    two middle norms is the median: half of the sites can be wild and do not lift it. Two sites are measured by the
    smaller one; one site has nothing to be measured by and passes.
    """
    lengths = {site: _lengths(upload) for site, upload in uploads.items()}
    effective_steps = median_low(upload.effective_steps for upload in uploads.values()) if uploads else 1.0
    refused: dict[str, Refused] = {}
    for part in dict.fromkeys(name for own in lengths.values() for name in own):
        median = median_low(own[part] for own in lengths.values())
        for site, own in lengths.items():
            work = max(1.0, uploads[site].effective_steps / effective_steps) if part == CHANGE else 1.0
            if site not in refused and own[part] > multiple * work * median:
                detail = f"the norm of {part} is {own[part]:.3g}, over {multiple:g} times the median {median:.3g}"
                more = f" and its {work:.3g} times the work" if work > 1 else ""
                refused[site] = Refused("norm", detail + more, site, round)
    return {site: upload for site, upload in uploads.items() if site not in refused}, list(refused.values())


def _lengths(upload: Upload) -> dict[str, float]:
    parts: dict[str, Any] = {CHANGE: upload.delta, "the buffers": upload.buffers}
    parts |= {f"slot {name}": value for name, value in upload.slots.items()}
    return {name: _length(leaves(tree)) for name, tree in parts.items()}


def _length(tensors: Iterable[torch.Tensor]) -> float:
    norms = [vector_norm(t, dtype=torch.float64) for t in tensors if t.is_floating_point() and t.numel()]
    return float(vector_norm(torch.stack(norms))) if norms else 0.0


def _check_kinds(reply: Reply) -> None:
    """Refuse what could not even be signed: a claim or numbers of the wrong kind."""
    claim, numbers = reply.claim, reply.numbers
    words = (claim.run, claim.nonce, claim.model, claim.site)
    if not all(isinstance(word, str) for word in words) or type(claim.round) is not int:
        raise Refused("malformed", "run, nonce, model and site are words, the round is a whole number")
    if not isinstance(reply.signature, bytes):
        raise Refused("malformed", "no signature")
    for name, value in numbers.items():
        whole = type(value) is int and abs(value) < 2**63
        if not (whole or (type(value) is float and name not in ("steps", "rows"))):
            raise Refused("malformed", f"{name[:SHOWN]} is no number of its kind")
    missing = {"steps", "mass", "rows"} - set(numbers)
    if missing:
        raise Refused("malformed", f"no {', '.join(sorted(missing))}")


def _check_form(tensors: Tensors, expected: Mapping[str, Like]) -> None:
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing:
        raise Refused("missing tensor", _first(missing))
    if extra:
        raise Refused("extra tensor", _first(extra))
    for name, like in expected.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != like.shape:
            raise Refused("wrong shape", f"{name} is {list(tensor.shape)}, not {list(like.shape)}")
        if tensor.dtype != like.dtype:
            raise Refused("wrong type", f"{name} is {tensor.dtype}, not {like.dtype}")


def _check_finite(tensors: Tensors, numbers: Numbers) -> None:
    bad = [name for name, value in numbers.items() if not math.isfinite(value)]
    bad += [name for name, tensor in tensors.items() if not finite(tensor)]
    if bad:
        raise Refused("not finite", _first(bad))
    bad = [name for name, tensor in tensors.items() if _is_variance(name, tensors) and bool((tensor < 0).any())]
    if bad:  # averaged in, it could make a network that says nothing but NaN
        raise Refused("negative variance", _first(bad))


def _is_variance(name: str, tensors: Tensors) -> bool:
    """Whether a buffer must not be negative; one that its rule corrects, as scaffold-niid does, honestly may be."""
    corrected = any(slot.startswith("slots/") and slot.endswith(name) for slot in tensors)
    return name.startswith("buffers/") and name.endswith(VARIANCE) and not corrected


def _first(names: list[str]) -> str:
    return names[0][:SHOWN] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
