"""Queries between sites: the answers of a simulation, for the run's own queries only, and no answer that is false."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import rows
from federations import weights
from in_process import InProcessTransport, World, capture, log_of, recording

from moonfed.core.errors import RunFailed
from moonfed.core.types import Tensors
from moonfed.federation.protocol.request import (
    QUERY,
    Envelope,
    read_reply,
    read_request,
    reply_envelope,
    request_envelope,
)
from moonfed.federation.protocol.signing import sign
from moonfed.federation.site.trainer import SiteTrainer


def kind(envelope: Envelope) -> str:
    return json.loads(str(envelope.fields["ask"]))["kind"]


@pytest.mark.parametrize("algorithm", ["fedavg+ccvr", "scaffold+ccvr", "moon+fednova+adam+ccvr"])
def test_a_phase_between_sites_is_that_of_the_simulation(
    tmp_path: Path, algorithm: str, caplog: pytest.LogCaptureFixture
):
    capture(caplog)
    world = World(tmp_path, algorithm)
    world.federate(InProcessTransport(world.folders))
    assert weights(tmp_path / "run") == world.simulated()
    pairs = list(zip(rows(tmp_path / "run"), rows(tmp_path / "here"), strict=True))
    for name in ("accuracy", "test_loss", "bytes_up", "bytes_down"):
        assert all(one[name] == other[name] for one, other in pairs), name
    said = [line for line in log_of("s1", caplog) if "answered the query class-moments" in line]
    assert len(said) == 3


def test_interrupted_and_resumed_between_sites_is_never_interrupted_with_a_phase(tmp_path: Path):
    world = World(tmp_path, "scaffold+ccvr")

    def silent(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        lost = kind(request) == QUERY and json.loads(str(request.fields["ask"]))["claim"]["round"] == 2
        return [] if lost else [reply]

    with pytest.raises(RunFailed, match=r"round 2 got too few replies .* rounds up to 1 are saved"):
        world.federate(InProcessTransport(world.folders, silent))
    world.federate(InProcessTransport(world.folders), resume=True)
    assert weights(tmp_path / "run") == world.simulated()


@pytest.mark.parametrize(
    ("algorithm", "query"), [("fedavg+ccvr", "class-sums"), ("fedavg+ccvr", "os.system"), ("fedavg", "class-moments")]
)
def test_a_site_answers_only_the_queries_of_the_runs_algorithm(tmp_path: Path, algorithm: str, query: str):
    world = World(tmp_path, algorithm, 1)
    requests: list[Envelope] = []
    world.federate(InProcessTransport(world.folders, recording(requests)), rounds=1)
    key, last = world.coordinator.private_key(), requests[-1]
    request = replace(read_request(key.public_key(), last), kind=QUERY, query=query)
    reply = SiteTrainer(world.folders["s2"]).answer(request_envelope(key, request, last.tensors))
    assert f"the algorithm of this run asks no query {query!r}" in str(reply.fields["refused"])


def test_a_request_without_a_query_is_what_it_was_before_there_were_queries(tmp_path: Path):
    world = World(tmp_path, "fedavg", 1)
    requests: list[Envelope] = []
    world.federate(InProcessTransport(world.folders, recording(requests)), rounds=1)
    assert all("query" not in json.loads(str(request.fields["ask"])) for request in requests)
    assert all(request.reply_bytes == 0 for request in requests)


def changed(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Tensors], Tensors]:
    return lambda tensors: tensors | {name: change(tensors[name])}


FALSE_ANSWERS = {  # what a hostile site signs with its own good key
    "another number of rows of a class": (changed("rows", lambda t: t.roll(1) + torch.arange(10)), "impossible sums"),
    "sums that are not numbers": (changed("sum", lambda t: t * torch.nan), "not finite"),
    "infinite squares": (changed("square", lambda t: t / 0), "not finite"),
    "sums that overflow": (changed("square", lambda t: t + 1e50), "impossible sums"),
    "sums larger than squares allow": (changed("sum", lambda t: t * 100), "impossible sums"),
    "negative squares": (changed("square", torch.Tensor.neg), "impossible sums"),
    "sums of a class without rows": (lambda t: t | {"sum": t["sum"] + (t["rows"] == 0)[:, None]}, "impossible sums"),
    "squares of a class without rows": (
        lambda t: t | {"square": t["square"] + (t["rows"] == 0)[:, None]},
        "impossible sums",
    ),
    "single precision": (changed("square", torch.Tensor.float), "wrong type"),
    "a whole matrix": (changed("square", lambda t: t[..., None]), "wrong shape"),
    "no sum": (lambda tensors: {k: v for k, v in tensors.items() if k != "sum"}, "missing tensor"),
    "more than was asked": (lambda tensors: tensors | {"more": torch.zeros(1)}, "extra tensor"),
}


def test_the_largest_sums_that_are_possible_spoil_the_released_layer_and_not_the_run(tmp_path: Path):
    """Squares of 1e30 and sums as large as they allow: finite models in every round, trained weights as without."""
    world = World(tmp_path, "fedavg+ccvr", 2)
    key = world.folders["s1"].private_key()

    def exaggerate(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site != "s1" or kind(request) != QUERY:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        held = (reply.tensors["rows"] > 0)[:, None]
        tensors = reply.tensors | {
            "sum": torch.where(held, 1e15, reply.tensors["sum"]),
            "square": torch.where(held, 1e30, reply.tensors["square"]),
        }
        return [reply_envelope(claim, numbers, tensors, sign(key, claim, numbers, tensors))]

    found = world.federate(InProcessTransport(world.folders, exaggerate), rounds=2)
    assert [row["round"] for row in found] == [1, 2]
    assert not (tmp_path / "run" / "refused.jsonl").exists() or not world.rejections(), "it is possible"
    plain = World(tmp_path / "plain", "fedavg+ccvr", 2)
    plain.federate(InProcessTransport(plain.folders), rounds=2)
    spoilt, whole = (weights(path / "run") for path in (tmp_path, tmp_path / "plain"))
    assert {name for name in whole if spoilt[name] != whole[name]} == {"head.weight", "head.bias"}


@pytest.mark.parametrize("case", FALSE_ANSWERS)
def test_a_false_answer_is_left_out_and_the_others_count(tmp_path: Path, case: str):
    change, reason = FALSE_ANSWERS[case]
    world = World(tmp_path, "fedavg+ccvr", 1)
    key = world.folders["s1"].private_key()

    def lie(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site != "s1" or kind(request) != QUERY:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        tensors = change(reply.tensors)
        return [reply_envelope(claim, numbers, tensors, sign(key, claim, numbers, tensors))]

    (row,) = world.federate(InProcessTransport(world.folders, lie), rounds=1, quorum=0.5)
    assert row["cohort"] == [0, 1, 2], "its update counts"
    (entry,) = [json.loads(line) for line in world.rejections().splitlines()]
    assert (entry["refused"], entry["round"], entry["reason"]) == ("s1", 1, reason)


def test_an_update_is_no_answer_and_an_answer_to_one_site_none_of_another(tmp_path: Path):
    world = World(tmp_path, "fedavg+ccvr", 1)
    replies: dict[str, Envelope] = {}

    def confuse(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if kind(request) == "train":
            replies[site] = reply
        if kind(request) != QUERY:
            return [reply]
        replies.setdefault("first answer", reply)
        return [{"s1": replies["s1"], "s2": replies["first answer"]}.get(site, reply)]

    world.federate(InProcessTransport(world.folders, confuse), rounds=1, quorum=0.1)
    reasons = {line["refused"]: line["reason"] for line in map(json.loads, world.rejections().splitlines())}
    assert reasons == {"s1": "replayed", "s2": "wrong sender"}
