"""Validation of updates: only signed, requested, complete, finite and plausible replies are used."""

import math
import secrets
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Any

import torch
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey

from moonfed.core.tree import finite, leaves, vector_norm
from moonfed.core.types import Tensors, Upload
from moonfed.engines.party_round import effective_steps_of
from moonfed.federation.protocol.codec import TensorSpec, decode_upload
from moonfed.federation.protocol.rejection import MAX_LOGGED_CHARS, Rejection
from moonfed.federation.protocol.request import EFFECTIVE_STEPS, ROWS, STEPS
from moonfed.federation.protocol.signing import Claim, Numbers, verify

NONCE_BYTES = 16
WEIGHT_CHANGE = "the change of the weights"
MAX_SUM = 1e30  # of an entry in an answer to a query: single precision holds sums over all sites
VARIANCE = ".running_var"  # BatchNorm's name for its buffer


@dataclass(frozen=True)
class EnrolledSite:
    """What the coordinator knows of a site since its enrolment."""

    public: EllipticCurvePublicKey
    rows: int
    steps: int  # the most that it can take in a round


@dataclass(frozen=True)
class Reply:
    """A reply as it came from the network."""

    site: str  # whose connection it came by
    claim: Claim
    numbers: Numbers  # steps, effective steps, rows and others, all of which must be finite
    tensors: Tensors
    signature: bytes


class UpdateValidator:
    """Issues the claims of a run's rounds and validates the replies to them, each once."""

    def __init__(self, run: str, sites: Mapping[str, EnrolledSite], momentum: float) -> None:
        self.run, self.sites, self.momentum = run, dict(sites), momentum
        self.used: set[str] = set()  # nonces of accepted replies
        self.claims: dict[str, Claim] = {}  # of the current round, by nonce
        self.accepted: set[str] = set()  # sites whose reply of the current round was accepted
        self.round, self.model, self.expected = -1, "", dict[str, TensorSpec]()
        self.models: dict[str, str] = {}  # by site, where each starts from its own model

    def start_round(
        self, round: int, model: str, expected: Mapping[str, TensorSpec], models: Mapping[str, str] | None = None
    ) -> None:
        """Start a round: the digest of the model that updates start from, and the tensors they must have.

        models has the digests of the sites whose updates start from a model of their own.
        """
        self.round, self.model, self.expected, self.models = round, model, dict(expected), dict(models or {})
        self.claims, self.accepted = {}, set()

    def issue_claim(self, site: str) -> Claim:
        """Make the claim that a site must reply with, under an unpredictable nonce."""
        claim = Claim(self.run, self.round, secrets.token_hex(NONCE_BYTES), self._model_of(site), site)
        self.claims[claim.nonce] = claim
        return claim

    def validate(self, reply: Reply) -> Upload:
        """Accept an update, or reject it without a trace."""
        self._accept(reply, {STEPS, EFFECTIVE_STEPS, ROWS}, lambda site: self._check_work(reply.numbers, site))
        return decode_upload(reply.tensors, reply.numbers)

    def validate_sums(self, reply: Reply, contradiction: Callable[[Tensors], str | None]) -> Tensors:
        """Accept the answer to a query, or reject it without a trace."""

        def check(site: EnrolledSite) -> None:
            _check_rows(reply.numbers, site)
            large = [name for name, tensor in reply.tensors.items() if float(tensor.abs().max()) > MAX_SUM]
            if large:
                raise Rejection("impossible sums", f"{_first(large)} is over {MAX_SUM:g}")
            if (detail := contradiction(reply.tensors)) is not None:
                raise Rejection("impossible sums", detail)

        self._accept(reply, {ROWS}, check)
        return reply.tensors

    def _accept(self, reply: Reply, needed: set[str], plausible: Callable[[EnrolledSite], None]) -> None:
        """Check the sender, the form and the signature of a reply, what it answers, and whether it is plausible."""
        try:
            site = self.sites.get(reply.site)
            if site is None:
                raise Rejection("wrong sender", "no site of this name is on the allow-list")
            if reply.claim.site != reply.site:
                raise Rejection("wrong sender", f"sent by this site, but claims to be from {reply.claim.site!r}")
            _check_types(reply, needed)
            verify(site.public, reply.claim, reply.numbers, reply.tensors, reply.signature)
            self._check_claim(reply.claim)
            _check_tensors(reply.tensors, self.expected)
            _check_finite(reply.tensors, reply.numbers)
            plausible(site)
        except Rejection as rejection:
            raise Rejection(rejection.reason, rejection.detail, reply.site, self.round) from None
        self.used.add(reply.claim.nonce)
        self.accepted.add(reply.site)

    def _check_claim(self, claim: Claim) -> None:
        if claim.run != self.run:
            raise Rejection("wrong run", f"it is for run {claim.run!r}, this is {self.run!r}")
        if claim.nonce in self.used:
            raise Rejection("replayed", "this reply was accepted before")
        if claim.round != self.round:
            raise Rejection("wrong round", f"it is for round {claim.round}, this is {self.round}")
        if claim.model != (model := self._model_of(claim.site)):
            raise Rejection("stale model", f"it starts from {claim.model[:12]!r}, this round from {model[:12]!r}")
        if self.claims.get(claim.nonce) != claim:
            raise Rejection("not requested", "no request with this nonce was sent to this site")
        if claim.site in self.accepted:
            raise Rejection("replayed", "a reply of this site was accepted in this round already")

    def _model_of(self, site: str) -> str:
        return self.models.get(site, self.model)

    def _check_work(self, numbers: Numbers, site: EnrolledSite) -> None:
        steps, effective_steps = numbers[STEPS], numbers[EFFECTIVE_STEPS]
        _check_rows(numbers, site)
        if not 1 <= steps <= site.steps:
            raise Rejection("impossible steps", f"{steps} steps, but {site.rows} rows allow 1 to {site.steps}")
        possible = effective_steps_of(int(steps), self.momentum)
        if not math.isclose(effective_steps, possible, rel_tol=1e-6):
            detail = f"{effective_steps:g} effective steps, but {steps} steps give {possible:g}"
            raise Rejection("impossible effective steps", detail)


def split_by_norm(
    uploads: Mapping[str, Upload], multiple: float, round: int
) -> tuple[dict[str, Upload], list[Rejection]]:
    """Split a round's updates into those within a multiple of the median norm, and rejections of the others.

    - The change of the weights, the buffers and each slot are measured separately.
    - A site that did more than the median number of effective steps may have changed the weights by as much more.
    - With an even number of sites the median is the lower of the two middle norms, so that half of the sites cannot
      raise it. Two sites are measured by the smaller one; a single site always passes.
    """
    norms = {site: _norms(upload) for site, upload in uploads.items()}
    typical_steps = median_low(upload.effective_steps for upload in uploads.values()) if uploads else 1.0
    rejected: dict[str, Rejection] = {}
    for part in dict.fromkeys(name for own in norms.values() for name in own):
        median = median_low(own[part] for own in norms.values())
        for site, own in norms.items():
            work = max(1.0, uploads[site].effective_steps / typical_steps) if part == WEIGHT_CHANGE else 1.0
            if site not in rejected and own[part] > multiple * work * median:
                detail = f"the norm of {part} is {own[part]:.3g}, over {multiple:g} times the median {median:.3g}"
                more = f" and its {work:.3g} times the steps" if work > 1 else ""
                rejected[site] = Rejection("norm", detail + more, site, round)
    return {site: upload for site, upload in uploads.items() if site not in rejected}, list(rejected.values())


def _norms(upload: Upload) -> dict[str, float]:
    parts: dict[str, Any] = {WEIGHT_CHANGE: upload.delta, "the buffers": upload.buffers}
    parts |= {f"slot {name}": value for name, value in upload.slots.items()}
    return {name: _norm(leaves(tree)) for name, tree in parts.items()}


def _norm(tensors: Iterable[torch.Tensor]) -> float:
    norms = [vector_norm(t, dtype=torch.float64) for t in tensors if t.is_floating_point() and t.numel()]
    return float(vector_norm(torch.stack(norms))) if norms else 0.0


def _check_rows(numbers: Numbers, site: EnrolledSite) -> None:
    if numbers[ROWS] != site.rows:
        raise Rejection("impossible rows", f"{numbers[ROWS]} rows, but {site.rows} at enrolment")


def _check_types(reply: Reply, needed: set[str]) -> None:
    """Reject what could not be signed: a claim or numbers of the wrong type."""
    claim, numbers = reply.claim, reply.numbers
    texts = (claim.run, claim.nonce, claim.model, claim.site)
    if not all(isinstance(text, str) for text in texts) or type(claim.round) is not int:
        raise Rejection("malformed", "run, nonce, model and site must be text, the round an integer")
    if not isinstance(reply.signature, bytes):
        raise Rejection("malformed", "the signature is missing")
    for name, value in numbers.items():
        whole = type(value) is int and abs(value) < 2**63
        if not (whole or (type(value) is float and name not in (STEPS, ROWS))):
            raise Rejection("malformed", f"{name[:MAX_LOGGED_CHARS]} is a number of the wrong type")
    missing = needed - set(numbers)
    if missing:
        raise Rejection("malformed", f"{', '.join(sorted(missing))} is missing")


def _check_tensors(tensors: Tensors, expected: Mapping[str, TensorSpec]) -> None:
    missing, extra = sorted(expected.keys() - tensors.keys()), sorted(tensors.keys() - expected.keys())
    if missing:
        raise Rejection("missing tensor", _first(missing))
    if extra:
        raise Rejection("extra tensor", _first(extra))
    for name, spec in expected.items():
        tensor = tensors[name]
        if tuple(tensor.shape) != spec.shape:
            raise Rejection("wrong shape", f"{name} is {list(tensor.shape)}, not {list(spec.shape)}")
        if tensor.dtype != spec.dtype:
            raise Rejection("wrong type", f"{name} is {tensor.dtype}, not {spec.dtype}")


def _check_finite(tensors: Tensors, numbers: Numbers) -> None:
    bad = [name for name, value in numbers.items() if not math.isfinite(value)]
    bad += [name for name, tensor in tensors.items() if not finite(tensor)]
    if bad:
        raise Rejection("not finite", _first(bad))
    bad = [name for name, tensor in tensors.items() if _is_variance(name, tensors) and bool((tensor < 0).any())]
    if bad:  # averaged in, it could make a network whose outputs are all NaN
        raise Rejection("negative variance", _first(bad))


def _is_variance(name: str, tensors: Tensors) -> bool:
    """Whether a buffer must not be negative; one that its rule corrects, as scaffold-niid does, may be."""
    corrected = any(slot.startswith("slots/") and slot.endswith(name) for slot in tensors)
    return name.startswith("buffers/") and name.endswith(VARIANCE) and not corrected


def _first(names: list[str]) -> str:
    return names[0][:MAX_LOGGED_CHARS] + (f" and {len(names) - 1} more" if len(names) > 1 else "")
