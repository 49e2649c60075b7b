"""A federation without a network: sites that really train and sign, and the validator of their updates."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from worlds import context_for, settings

from moonfed.core.tree import add, tree_map
from moonfed.core.types import PartyInfo, ReceivedUpload, State, Tensors, Upload
from moonfed.federation.coordinator.update_validation import EnrolledSite, Reply, UpdateValidator, split_by_norm
from moonfed.federation.protocol.codec import encode_state, encode_upload, expected_upload
from moonfed.federation.protocol.rejection import Rejection
from moonfed.federation.protocol.signing import Claim, digest, sign
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial

RUN, ROUND = "run-1", 4
BAD = "site2"
WEIGHT, VARIANCE, COUNT = (
    "delta/head.weight",
    "buffers/encoder.convolutions.1.running_var",
    "buffers/encoder.convolutions.1.num_batches_tracked",
)


class Federation:
    """Five sites that have trained one round, and the validator of that round."""

    def __init__(self, algorithm: str = "fedavg", parties: int = 5, **changes: Any) -> None:
        config = settings(algorithm, data__parties=parties, data__floor=16, **changes)
        bench = context_for(config)
        self.trial = new_trial(resolve(config, bench.data), bench)
        self.sites = [f"site{party}" for party in range(parties)]
        self.keys = {site: generate_private_key(SECP384R1()) for site in self.sites}
        jobs = make_jobs(self.trial, bench)
        done = bench.engine.run_cohort(jobs)
        self.uploads = {site: result.upload for site, result in zip(self.sites, done, strict=True)}
        self.rows = {site: fact.rows for site, fact in zip(self.sites, self.trial.spec.infos, strict=True)}
        self.momentum = config.train.momentum
        local, state = self.trial.algorithm.local, self.trial.state
        self.expected = expected_upload(local, state, self.trial.spec.infos[0], self.trial.spec.init_model)

    def validator(self) -> UpdateValidator:
        """A validator in that round, with no reply accepted yet."""
        enrolled = {
            site: EnrolledSite(self.keys[site].public_key(), self.rows[site], self.uploads[site].steps)
            for site in self.sites
        }
        validator = UpdateValidator(RUN, enrolled, self.momentum)
        validator.start_round(ROUND, self.model, self.expected)
        return validator

    @property
    def model(self) -> str:
        """The digest of what the sites were sent."""
        return digest(encode_state(self.trial.state))

    def reply(self, claim: Claim, **changed: Any) -> Reply:
        """Reply to a claim as its site does; the site itself makes the changes, so they are signed."""
        site, upload = claim.site, self.uploads[claim.site]
        numbers = {
            "steps": upload.steps,
            "mass": upload.effective_steps,
            "rows": self.rows[site],
            "loss/supervised": 1.5,
        }
        tensors: Tensors = tree_map(lambda t: t.clone(), encode_upload(upload))
        reply = replace(Reply(site, claim, numbers, tensors, b""), **changed)
        return replace(reply, signature=sign(self.keys[site], reply.claim, reply.numbers, reply.tensors))

    def validate(
        self, validator: UpdateValidator, replies: Sequence[Reply], multiple: float = 10.0
    ) -> tuple[dict[str, Upload], list[Rejection]]:
        """Validate a round's replies as a server does: each by itself, then all by their norms."""
        accepted: dict[str, Upload] = {}
        rejected: list[Rejection] = []
        for reply in replies:
            try:
                accepted[reply.site] = validator.validate(reply)
            except Rejection as rejection:
                rejected.append(rejection)
        within, beyond = split_by_norm(accepted, multiple, ROUND)
        return within, rejected + beyond

    def after(self, uploads: dict[str, Upload]) -> State:
        """The state that the server rule makes of some of the sites' updates."""
        aggregator, state, total = self.trial.algorithm.aggregator, self.trial.state, dict[str, Any]()
        if aggregator.linear:
            for site in sorted(uploads):
                part = aggregator.contribute(uploads[site], PartyInfo(0, self.rows[site], ()), float(self.rows[site]))
                total = add(total, part) if total else part
            update = aggregator.update(state, total, self.trial.spec.population)
        else:
            facts = {site: (float(rows), PartyInfo(0, rows, ())) for site, rows in self.rows.items()}
            by_party = {
                self.sites.index(site): ReceivedUpload(upload, *facts[site]) for site, upload in uploads.items()
            }
            update = aggregator.reduce(state, by_party, self.trial.spec.population)
        assert update is not None
        return self.trial.algorithm.server_optimizer.step(state, update)


def changed(tensors: Tensors, name: str, value: Callable[[Any], Any]) -> Tensors:
    """Change one tensor of an update."""
    return tensors | {name: value(tensors[name].clone())}


def put(value: float) -> Callable[[Any], Any]:
    """Put a number into the middle of a tensor."""

    def into(tensor: Any) -> Any:
        tensor.view(-1)[tensor.numel() // 2] = value
        return tensor

    return into
