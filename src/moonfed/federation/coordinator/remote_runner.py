"""The coordinator's side of a round: trains cohorts by sending requests to sites and validating their updates.

Updates are sent as delta, buffers and slots and weighted by the coordinator, not by the sites: which replies are
rejected changes the shares of the others, and norms can only be compared before weighting.
"""

import logging
import math
import time
from collections.abc import Sequence

import torch

from moonfed.core.errors import RunFailed
from moonfed.core.types import Tensors
from moonfed.engines import JobResult
from moonfed.federation.coordinator.exchange import Exchange
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.update_validation import EnrolledSite, Reply, UpdateValidator, split_by_norm
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder
from moonfed.federation.protocol.codec import encode_state, expected_loss_names, expected_upload
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.request import TRAIN, Envelope, Request, read_reply, request_envelope
from moonfed.federation.protocol.signing import Claim, digest
from moonfed.training.cohort import Cohort, Participant
from moonfed.training.trial import Trial

logger = logging.getLogger(__name__)
MAX_LOSS = 1e30  # beyond it, means over steps and sites overflow
LOSS = "loss/"  # prefix of the numbers that are parts of the loss


class RemoteRunner:
    """Trains cohorts whose parties are remote sites; implements training's CohortRunner."""

    def __init__(
        self,
        folder: CoordinatorFolder,
        exchange: Exchange,
        settings: FederationSettings,
        run: str,
        config: str,
        encoding: str,
    ) -> None:
        self.key, self.allow_list = folder.private_key(), folder.allow_list()
        self.exchange, self.settings = exchange, settings
        self.run, self.config, self.encoding = run, config, encoding  # sent with every request
        self.names: list[str] = []  # sites by party
        self.accepted: dict[int, int] = {}  # by party: the last round in which its update was used
        self.validator: UpdateValidator | None = None

    def start(self, names: Sequence[str], trial: Trial, accepted: dict[int, int]) -> None:
        """Set which site is which party, and the last accepted round of each."""
        self.names, self.accepted = list(names), dict(accepted)
        self.exchange.last_seen = dict.fromkeys(names, time.monotonic()) | self.exchange.last_seen
        train = trial.config.train
        enrolled = {
            name: EnrolledSite(self.allow_list[name], info.rows, train.epochs * (info.rows // train.batch))
            for name, info in zip(names, trial.spec.infos, strict=True)
            if name in self.allow_list
        }
        self.validator = UpdateValidator(self.run, enrolled, train.momentum)

    def train(self, trials: Sequence[Trial], cohorts: Sequence[Cohort]) -> list[dict[int, JobResult]]:
        """Train the cohort of a trial's next round; a round without quorum is attempted again, then the run fails."""
        (trial,), (cohort,) = trials, cohorts
        round = trial.round + 1
        if not cohort:
            return [{}]
        needed = max(1, math.ceil(self.settings.quorum * len(cohort) - 1e-9))
        for attempt in range(1, self.settings.attempts + 1):
            results = self._attempt(trial, cohort, needed)
            if len(results) >= needed:
                self.accepted |= dict.fromkeys(results, round)
                return [results]
            logger.warning(
                "round %d: %d of %d sites replied, %d are needed (attempt %d)",
                *(round, len(results), len(cohort), needed, attempt),
            )
        raise RunFailed(
            f"round {round} got too few replies in {self.settings.attempts} attempts "
            f"({needed} of {len(cohort)} are needed); rounds up to {trial.round} are saved: "
            "resume with --resume once the sites are back"
        )

    def _attempt(self, trial: Trial, cohort: Cohort, needed: int) -> dict[int, JobResult]:
        """Request a round of the cohort once; return the results that count, by party."""
        assert self.validator is not None
        validator, round, state = self.validator, trial.round + 1, _on_cpu(encode_state(trial.state))
        form = (trial.algorithm.local, trial.state, trial.spec.infos[0], trial.spec.init_model)
        loss_names = expected_loss_names(*form)
        validator.start_round(round, digest(state), expected_upload(*form))
        self.exchange.round = round
        participants = {self.names[who.party]: who for who in cohort}
        envelopes = {site: self._request(who, validator.issue_claim(site), state) for site, who in participants.items()}
        results: dict[str, JobResult] = {}

        def accept(site: str, envelope: Envelope) -> None:
            results[site] = self._read_result(validator, site, envelope, loss_names)

        self.exchange.run(envelopes, accept, lambda: len(results) >= needed)
        if self.settings.norm:
            results = self._within_norm(results, round)
        return {who.party: results[site] for site, who in participants.items() if site in results}

    def _request(self, who: Participant, claim: Claim, state: Tensors) -> Envelope:
        base = self.accepted.get(who.party, 0)
        request = Request(TRAIN, claim, base, who.party, who.work, self.config, encoding=self.encoding)
        return request_envelope(self.key, request, state)

    def _read_result(
        self, validator: UpdateValidator, site: str, envelope: Envelope, loss_names: frozenset[str]
    ) -> JobResult:
        """Validate a reply and turn it into a result; the mean of a loss stands for each of its steps."""
        claim, numbers, signature = read_reply(envelope)
        upload = validator.validate(Reply(site, claim, numbers, envelope.tensors, signature))
        self.exchange.observe_process(site, numbers)
        means = {k.removeprefix(LOSS): float(v) for k, v in numbers.items() if k.startswith(LOSS)}
        if set(means) != loss_names:
            raise Rejection("malformed", "its losses are not those of the algorithm", site, validator.round)
        if any(abs(v) > MAX_LOSS for v in means.values()):
            raise Rejection("impossible loss", f"over {MAX_LOSS:g}", site, validator.round)
        losses = {k: torch.tensor([v]).expand(upload.steps) for k, v in means.items()}
        return JobResult(upload, {}, losses, numbers.get("gamma"))

    def _within_norm(self, results: dict[str, JobResult], round: int) -> dict[str, JobResult]:
        uploads = {site: result.upload for site, result in results.items()}
        kept, rejections = split_by_norm(uploads, self.settings.norm, round)
        for rejection in rejections:
            self.exchange.rejections.record(rejection)
        return {site: results[site] for site in kept}


def _on_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}
