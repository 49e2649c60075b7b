"""The coordinator's side of a round: trains cohorts by sending requests to sites and validating their updates.

Updates are sent as delta, buffers and slots and weighted by the coordinator, not by the sites: which replies are
rejected changes the shares of the others, and norms can only be compared before weighting.
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeAlias, TypeVar

import torch

from moonfed.core.errors import RunFailed
from moonfed.core.phase import Query
from moonfed.core.private_tensors import public_part
from moonfed.core.types import Snapshot, State, Tensors
from moonfed.engines import JobResult
from moonfed.federation.coordinator.exchange import Exchange
from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.update_validation import EnrolledSite, Reply, UpdateValidator, split_by_norm
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder
from moonfed.federation.protocol.codec import (
    TensorSpec,
    encode_state,
    expected_answer,
    expected_loss_names,
    expected_upload,
)
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.request import OWN_TEST, QUERY, TRAIN, Envelope, Request, read_reply, request_envelope
from moonfed.federation.protocol.signing import Claim, Numbers, digest
from moonfed.training.cohort import Cohort, Participant
from moonfed.training.evaluate import Score, ScoreQuery, score_of
from moonfed.training.lr_schedule import round_lr
from moonfed.training.network import build
from moonfed.training.trial import Trial

T = TypeVar("T")
Answer: TypeAlias = tuple[Tensors, Numbers]  # the sums of an answer, and the numbers that came with them
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
        self.answers: dict[str, Mapping[str, TensorSpec]] = {}  # by query: the tensors of an answer

    def start(self, names: Sequence[str], trial: Trial, accepted: dict[int, int]) -> None:
        """Set which site is which party, and the last accepted round of each."""
        self.names, self.accepted = list(names), dict(accepted)
        self.exchange.last_seen = dict.fromkeys(names, time.monotonic()) | self.exchange.last_seen
        train = trial.config.train
        enrolled = {
            name: EnrolledSite(self.allow_list[name], info.rows, train.epochs * max(1, info.rows // train.batch))
            for name, info in zip(names, trial.spec.infos, strict=True)
            if name in self.allow_list
        }
        self.validator = UpdateValidator(self.run, enrolled, train.momentum)
        queries: list[Query] = [phase.query for phase in trial.algorithm.phases]
        for query in queries + ([ScoreQuery()] if trial.algorithm.personal else []):
            net = build(trial.spec.network).to(trial.spec.device).eval()
            self.answers[query.name] = expected_answer(net, trial.spec.evaluation, trial.state.model, query)

    def train(self, trials: Sequence[Trial], cohorts: Sequence[Cohort]) -> list[dict[int, JobResult]]:
        """Train the cohort of a trial's next round; a round without quorum is attempted again, then the run fails."""
        (trial,), (cohort,) = trials, cohorts
        if not cohort:
            return [{}]
        results = self._with_quorum(trial.round + 1, len(cohort), partial(self._attempt, trial, cohort))
        self.accepted |= dict.fromkeys(results, trial.round + 1)
        return [results]

    def query(self, trial: Trial, query: Query) -> Iterator[tuple[int, Tensors]]:
        """Ask all sites about a trial's global model, after its round; quorum and attempts are those of a round."""
        sent = dict.fromkeys(range(len(self.names)), trial.state.model)
        answers = self._with_quorum(trial.round, len(self.names), partial(self._ask, trial, query, sent))
        for party in sorted(answers):
            sums, _ = answers[party]
            yield party, {name: tensor.to(trial.spec.device) for name, tensor in sums.items()}

    def personal_scores(self, trial: Trial) -> dict[int, Score]:
        """Let every site score its own model; the model stays there, and so do the site's own test rows if it has any.

        A site without such rows uses those of the data set, which count by the classes of its training rows.
        """
        models, sites = trial.algorithm.aggregator.party_models(trial.state), len(self.names)
        sent = dict.fromkeys(range(sites), trial.shared_model)
        sent |= {party: public_part(model, trial.spec.private) for party, model in models.items()}
        answers = self._with_quorum(trial.round, sites, partial(self._ask, trial, ScoreQuery(), sent))
        scores: dict[int, Score] = {}
        for party, (sums, numbers) in sorted(answers.items()):
            scores[party] = _of_party(score_of(sums), party, sites if numbers.get(OWN_TEST) else None)
        return scores

    def _with_quorum(self, round: int, sites: int, attempt: Callable[[int], dict[int, T]]) -> dict[int, T]:
        """Attempt an exchange until enough of its sites have replied; return the replies by party."""
        needed = max(1, math.ceil(self.settings.quorum * sites - 1e-9))
        for number in range(1, self.settings.attempts + 1):
            replies = attempt(needed)
            if len(replies) >= needed:
                return replies
            logger.warning(
                "round %d: %d of %d sites replied, %d are needed (attempt %d)",
                *(round, len(replies), sites, needed, number),
            )
        raise RunFailed(
            f"round {round} got too few replies in {self.settings.attempts} attempts "
            f"({needed} of {sites} are needed); rounds up to {round - 1} are saved: "
            "resume with --resume once the sites are back"
        )

    def _ask(self, trial: Trial, query: Query, sent: Mapping[int, Snapshot], needed: int) -> dict[int, Answer]:
        """Send every site a query once, with a model by party; return the answers that count, by party."""
        assert self.validator is not None
        validator, expected = self.validator, self.answers[query.name]
        distinct = {id(model): model for model in sent.values()}  # one for all sites, unless each has its own
        encoded = {key: _on_cpu(encode_state(State(model, {}, {}))) for key, model in distinct.items()}
        digests = {key: digest(model) for key, model in encoded.items()}
        by_site = {self.names[party]: digests[id(model)] for party, model in sent.items()}
        validator.start_round(trial.round, "", expected, by_site)
        self.exchange.round = trial.round
        size, envelopes = sum(spec.nbytes for spec in expected.values()), dict[str, Envelope]()
        for party, site in enumerate(self.names):
            claim, base = validator.issue_claim(site), self.accepted.get(party, 0)
            request = Request(QUERY, claim, base, party, 1.0, self.config, self.encoding, query=query.name)
            model = encoded[id(sent[party])]
            envelopes[site] = request_envelope(self.key, request, model)._replace(reply_bytes=size)
        answers: dict[int, Answer] = {}

        def accept(site: str, envelope: Envelope) -> None:
            party, (claim, numbers, signature) = self.names.index(site), read_reply(envelope)
            info = trial.spec.infos[party]
            reply = Reply(site, claim, numbers, envelope.tensors, signature)
            answers[party] = validator.validate_sums(reply, lambda total: query.contradiction(total, info)), numbers
            self.exchange.observe_process(site, numbers)

        self.exchange.run(envelopes, accept, lambda: len(answers) >= needed)
        return answers

    def _attempt(self, trial: Trial, cohort: Cohort, needed: int) -> dict[int, JobResult]:
        """Request a round of the cohort once; return the results that count, by party."""
        assert self.validator is not None
        validator, round, aggregator = self.validator, trial.round + 1, trial.algorithm.aggregator
        participants = {self.names[who.party]: who for who in cohort}
        sent = aggregator.send(trial.state, trial.spec.infos[0])  # the same for all, unless each has its own model
        private = trial.spec.private
        state, own = _on_cpu(encode_state(_public(sent, private))), dict[str, Tensors]()
        if aggregator.party_models(trial.state):
            infos = {site: trial.spec.infos[who.party] for site, who in participants.items()}
            states = {site: _public(aggregator.send(trial.state, info), private) for site, info in infos.items()}
            own = {site: _on_cpu(encode_state(of_site)) for site, of_site in states.items()}
        form = (trial.algorithm.local, sent, trial.spec.infos[0], trial.spec.init_model)
        loss_names = expected_loss_names(*form)
        digests = {site: digest(tensors) for site, tensors in own.items()}
        validator.start_round(round, digest(state), expected_upload(*form, private), digests)
        self.exchange.round = round
        envelopes = {
            site: self._request(who, validator.issue_claim(site), own.get(site, state))
            for site, who in participants.items()
        }
        results: dict[str, JobResult] = {}
        lr = round_lr(trial.config.train, trial.round)

        def accept(site: str, envelope: Envelope) -> None:
            results[site] = self._read_result(validator, site, envelope, loss_names, lr)

        self.exchange.run(envelopes, accept, lambda: len(results) >= needed)
        if self.settings.norm:
            results = self._within_norm(results, round)
        return {who.party: results[site] for site, who in participants.items() if site in results}

    def _request(self, who: Participant, claim: Claim, state: Tensors) -> Envelope:
        base = self.accepted.get(who.party, 0)
        request = Request(TRAIN, claim, base, who.party, who.work, self.config, encoding=self.encoding)
        return request_envelope(self.key, request, state)

    def _read_result(
        self, validator: UpdateValidator, site: str, envelope: Envelope, loss_names: frozenset[str], lr: float
    ) -> JobResult:
        """Validate a reply and turn it into a result; the mean of a loss stands for each of its steps."""
        claim, numbers, signature = read_reply(envelope)
        upload = validator.validate(Reply(site, claim, numbers, envelope.tensors, signature))._replace(lr=lr)
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


def _public(state: State, private: frozenset[str]) -> State:
    """Take a party's private tensors out of what it is sent."""
    return state._replace(model=public_part(state.model, private)) if private else state


def _of_party(score: Score, party: int, parties: int | None) -> Score:
    """Say that the rows of a score are a party's own; without a number of parties they are everybody's."""
    assert score.parties is not None
    if parties is None:
        return replace(score, parties=None)
    counts = torch.zeros(parties, 2, dtype=torch.int64)
    counts[party] = score.parties.sum(0)
    return replace(score, parties=counts)


def _on_cpu(tensors: Tensors) -> Tensors:
    return {name: tensor.detach().cpu() for name, tensor in tensors.items()}
