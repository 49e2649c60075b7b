"""A federation without a network: sites that really train and sign, and the gate that judges what they send."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from worlds import bench_for, settings

from moonfed.core.tree import add, tree_map
from moonfed.core.types import PartyInfo, State, Tensors, Upload
from moonfed.federation.coordinator.update_validation import Enrolled, Gate, Reply, within_norm
from moonfed.federation.protocol.codec import expected_upload, flat_state, flat_upload
from moonfed.federation.protocol.rejection import Refused
from moonfed.federation.protocol.signing import Claim, digest, sign
from moonfed.training.runner import make_jobs
from moonfed.training.trial import resolve, set_up

RUN, ROUND = "run-1", 4
BAD = "site2"
WEIGHT, VARIANCE, COUNT = (
    "delta/head.weight",
    "buffers/encoder.convolutions.1.running_var",
    "buffers/encoder.convolutions.1.num_batches_tracked",
)


class Federation:
    """Five sites, trained for one round, at the gate of that round."""

    def __init__(self, algorithm: str = "fedavg", parties: int = 5, **changes: Any) -> None:
        config = settings(algorithm, data__parties=parties, data__floor=16, **changes)
        bench = bench_for(config)
        self.trial = set_up(resolve(config, bench.data), bench)
        self.sites = [f"site{party}" for party in range(parties)]
        self.keys = {site: generate_private_key(SECP384R1()) for site in self.sites}
        jobs = make_jobs(self.trial, bench)
        done = bench.engine.run_cohort(jobs)
        self.uploads = {site: result.upload for site, result in zip(self.sites, done, strict=True)}
        self.rows = {site: fact.rows for site, fact in zip(self.sites, self.trial.facts, strict=True)}
        self.momentum = config.train.momentum
        local, state = self.trial.algorithm.local, self.trial.state
        self.expected = expected_upload(local, state, self.trial.facts[0], self.trial.fresh)

    def gate(self) -> Gate:
        """Open the door for the round, with nothing taken yet."""
        enrolled = {
            site: Enrolled(self.keys[site].public_key(), self.rows[site], self.uploads[site].steps)
            for site in self.sites
        }
        gate = Gate(RUN, enrolled, self.momentum)
        gate.open(ROUND, self.model, self.expected)
        return gate

    @property
    def model(self) -> str:
        """The digest of what the sites were sent."""
        return digest(flat_state(self.trial.state))

    def reply(self, claim: Claim, **changed: Any) -> Reply:
        """Answer an ask as the site of its name does; changed parts are the site's own doing and so are signed."""
        site, upload = claim.site, self.uploads[claim.site]
        numbers = {
            "steps": upload.steps,
            "mass": upload.effective_steps,
            "rows": self.rows[site],
            "loss/supervised": 1.5,
        }
        tensors: Tensors = tree_map(lambda t: t.clone(), flat_upload(upload))
        reply = replace(Reply(site, claim, numbers, tensors, b""), **changed)
        return replace(reply, signature=sign(self.keys[site], reply.claim, reply.numbers, reply.tensors))

    def judged(
        self, gate: Gate, replies: Sequence[Reply], multiple: float = 10.0
    ) -> tuple[dict[str, Upload], list[Refused]]:
        """Take a round's replies as a server does: each by itself, then all by their norms."""
        taken: dict[str, Upload] = {}
        refused: list[Refused] = []
        for reply in replies:
            try:
                taken[reply.site] = gate.admit(reply)
            except Refused as refusal:
                refused.append(refusal)
        within, beyond = within_norm(taken, multiple, ROUND)
        return within, refused + beyond

    def after(self, uploads: dict[str, Upload]) -> State:
        """Say where the server rule goes with some of the sites' updates."""
        server, total = self.trial.algorithm.server, dict[str, Any]()
        if not server.linear:
            by_party = {self.sites.index(site): upload for site, upload in uploads.items()}
            return server.combine(self.trial.state, by_party, self.trial.population)
        for site in sorted(uploads):
            part = server.contribute(uploads[site], PartyInfo(0, self.rows[site], ()), float(self.rows[site]))
            total = add(total, part) if total else part
        return server.step(self.trial.state, total, self.trial.population)


def changed(tensors: Tensors, name: str, value: Callable[[Any], Any]) -> Tensors:
    """Change one tensor of an update."""
    return tensors | {name: value(tensors[name].clone())}


def put(value: float) -> Callable[[Any], Any]:
    """Put a number into the middle of a tensor."""

    def into(tensor: Any) -> Any:
        tensor.view(-1)[tensor.numel() // 2] = value
        return tensor

    return into
