"""None of the replies that must be refused is averaged: the model is that of the honest sites alone."""

import json
import math
from dataclasses import replace

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from sites import BAD, COUNT, ROUND, RUN, VARIANCE, WEIGHT, Federation, changed, put
from test_seal import flipped
from worlds import same_bits

from moonfed.federation.coordinator.update_validation import Reply
from moonfed.federation.protocol.codec import flat_state
from moonfed.federation.protocol.rejection import Refused
from moonfed.federation.protocol.signing import Claim, digest, sign


@pytest.fixture(scope="module")
def fed():
    return Federation("fedavg", model__norm="batch", model__model="cnn")


TENSORS = {  # what a hostile site signs with its own good key
    "a weight that is not a number": (lambda t: changed(t, WEIGHT, put(math.nan)), "not finite"),
    "an infinite weight": (lambda t: changed(t, WEIGHT, put(-math.inf)), "not finite"),
    "a variance below zero": (lambda t: changed(t, VARIANCE, put(-1e-3)), "negative variance"),
    "an infinite buffer": (lambda t: changed(t, VARIANCE, put(math.inf)), "not finite"),
    "a transposed weight": (lambda t: changed(t, WEIGHT, torch.t), "wrong shape"),
    "a flattened weight": (lambda t: changed(t, WEIGHT, torch.flatten), "wrong shape"),
    "a weight with an axis more": (lambda t: changed(t, WEIGHT, lambda w: w[None]), "wrong shape"),
    "a single number for all": (lambda t: changed(t, WEIGHT, torch.sum), "wrong shape"),
    "no entries at all": (lambda t: changed(t, WEIGHT, lambda w: w[:0]), "wrong shape"),
    "a missing weight": (lambda t: {k: v for k, v in t.items() if k != WEIGHT}, "missing tensor"),
    "a missing buffer": (lambda t: {k: v for k, v in t.items() if k != VARIANCE}, "missing tensor"),
    "nothing": (lambda t: {}, "missing tensor"),
    "an extra tensor": (lambda t: t | {"delta/more": torch.zeros(1)}, "extra tensor"),
    "an extra slot": (lambda t: t | {"slots/control_change/tensors/w": torch.zeros(1)}, "extra tensor"),
    "double precision": (lambda t: changed(t, WEIGHT, torch.Tensor.double), "wrong type"),
    "half precision": (lambda t: changed(t, WEIGHT, torch.Tensor.half), "wrong type"),
    "a counter as a float": (lambda t: changed(t, COUNT, torch.Tensor.float), "wrong type"),
    "a hundred times the median": (
        lambda t: {k: v * 100 if k.startswith("delta/") else v for k, v in t.items()},
        "norm",
    ),
    "buffers a thousand times the median": (
        lambda t: {k: v * 1000 if k.startswith("buffers/") else v for k, v in t.items()},
        "norm",
    ),
}

NUMBERS = {
    "no steps": ({"steps": 0}, "impossible steps"),
    "negative steps": ({"steps": -4}, "impossible steps"),
    "more steps than rows give": ({"steps": 10**6}, "impossible steps"),
    "steps that are no whole number": ({"steps": 1.5}, "malformed"),
    "steps that are a truth": ({"steps": True}, "malformed"),
    "steps beyond all measure": ({"steps": 10**400}, "malformed"),
    "negative mass": ({"mass": -1.0}, "impossible mass"),
    "no mass": ({"mass": 0.0}, "impossible mass"),
    "a mass that blows FedNova up": ({"mass": 1e-30}, "impossible mass"),
    "a mass that is not a number": ({"mass": math.nan}, "not finite"),
    "infinite mass": ({"mass": math.inf}, "not finite"),
    "a loss that is not a number": ({"loss/supervised": math.nan}, "not finite"),
    "more rows than at enrolment": ({"rows": 10**6}, "impossible rows"),
    "a word for a number": ({"mass": "1.0"}, "malformed"),
}

CLAIMS = {
    "of another round": ({"round": ROUND - 1}, "another round"),
    "of a round to come": ({"round": ROUND + 1}, "another round"),
    "of another run": ({"run": "run-2"}, "another run"),
    "from another model": ({"model": "00" * 32}, "stale model"),
    "under a nonce of its own": ({"nonce": "00" * 16}, "not asked"),
    "in the name of another site": ({"site": "site0"}, "foreign"),
    "of a round that is no number": ({"round": "4"}, "malformed"),
}


def check(fed, gate, bad, reason):
    """The bad reply is refused for its reason and by its name; the model is that of the others, to the bit."""
    good = [fed.reply(gate.ask(site)) for site in fed.sites if site != BAD]
    taken, refusals = fed.judged(gate, [good[0], bad, *good[1:]])
    assert [(r.site, r.reason, r.round) for r in refusals] == [(bad.site, reason, ROUND)]
    said = json.loads(refusals[0].line())
    assert (said["refused"], said["reason"], bool(said["detail"])) == (bad.site, reason, True)
    honest = {site: upload for site, upload in fed.uploads.items() if site != BAD}
    assert taken.keys() == honest.keys()
    assert same_bits(fed.after(taken), fed.after(honest))


def test_honest_sites_are_all_taken_and_give_the_model_of_the_simulation(fed):
    gate = fed.gate()
    taken, refusals = fed.judged(gate, [fed.reply(gate.ask(site)) for site in fed.sites])
    assert not refusals
    assert same_bits(fed.after(taken), fed.after(fed.uploads))
    assert {s: (u.steps, u.effective_steps) for s, u in taken.items()} == {
        s: (u.steps, u.effective_steps) for s, u in fed.uploads.items()
    }


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_that_cannot_be_are_refused_though_their_site_signed_them(fed, name):
    make, reason = TENSORS[name]
    gate = fed.gate()
    ask = gate.ask(BAD)
    check(fed, gate, fed.reply(ask, tensors=make(fed.reply(ask).tensors)), reason)


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_cannot_be_are_refused_though_their_site_signed_them(fed, name):
    change, reason = NUMBERS[name]
    gate = fed.gate()
    good = fed.reply(gate.ask(BAD))
    numbers = good.numbers | change
    signable = all(type(value) in (int, float) and abs(value) < 1e300 for value in change.values())
    bad = fed.reply(good.claim, numbers=numbers) if signable else replace(good, numbers=numbers)
    if reason == "not finite":
        bad = replace(bad, signature=sign(fed.keys[BAD], bad.claim, bad.numbers, bad.tensors))
    check(fed, gate, bad, reason)


@pytest.mark.parametrize("name", CLAIMS)
def test_an_update_that_was_not_asked_for_is_refused_though_its_site_signed_it(fed, name):
    change, reason = CLAIMS[name]
    gate = fed.gate()
    good = fed.reply(gate.ask(BAD))
    claim = replace(good.claim, **change)
    bad = replace(good, claim=claim)
    if reason != "malformed":
        bad = replace(bad, signature=sign(fed.keys[BAD], claim, bad.numbers, bad.tensors))
    check(fed, gate, bad, reason)


def test_a_tensor_tampered_with_on_the_way_is_refused(fed):
    gate = fed.gate()
    good = fed.reply(gate.ask(BAD))
    for name, tensor in good.tensors.items():
        bits = 8 * tensor.numel() * tensor.element_size()
        for bit in {0, bits - 1, *range(7, bits, max(bits // 9, 1))}:
            with pytest.raises(Refused, match="altered"):
                gate.admit(replace(good, tensors=flipped(good.tensors, name, bit)))
    check(fed, gate, replace(good, tensors=flipped(good.tensors, WEIGHT, 30)), "altered")


def test_a_number_tampered_with_on_the_way_is_refused(fed):
    gate = fed.gate()
    good = fed.reply(gate.ask(BAD))
    for name, value in good.numbers.items():
        other = value + 1 if isinstance(value, int) else math.nextafter(value, math.inf)
        with pytest.raises(Refused, match="altered"):
            gate.admit(replace(good, numbers=good.numbers | {name: other}))
    check(fed, gate, replace(good, numbers=good.numbers | {"rows": good.numbers["rows"] * 9}), "altered")


def test_an_update_under_the_wrong_key_is_refused(fed):
    gate = fed.gate()
    good = fed.reply(gate.ask(BAD))
    stranger = sign(generate_private_key(SECP384R1()), good.claim, good.numbers, good.tensors)
    neighbour = sign(fed.keys["site0"], good.claim, good.numbers, good.tensors)
    for signature in (stranger, b""):
        with pytest.raises(Refused, match="altered"):
            gate.admit(replace(good, signature=signature))
    check(fed, gate, replace(good, signature=neighbour), "altered")


def test_a_site_without_a_key_on_the_allow_list_is_refused(fed):
    gate = fed.gate()
    good = fed.reply(gate.ask(BAD))
    claim = replace(good.claim, site="mallory")
    signature = sign(generate_private_key(SECP384R1()), claim, good.numbers, good.tensors)
    check(fed, gate, Reply("mallory", claim, good.numbers, good.tensors, signature), "foreign")


def test_a_reply_in_the_name_of_another_site_is_refused_by_either_name(fed):
    gate = fed.gate()
    honest = fed.reply(gate.ask("site0"))
    with pytest.raises(Refused, match="foreign"):
        gate.admit(replace(honest, site=BAD))
    assert gate.admit(honest).steps == fed.uploads["site0"].steps


def test_a_replayed_update_is_refused_in_its_round_and_in_the_next(fed):
    gate = fed.gate()
    reply = fed.reply(gate.ask(BAD))
    gate.admit(reply)
    with pytest.raises(Refused, match="replayed"):
        gate.admit(reply)
    gate.open(ROUND + 1, fed.model, fed.expected)
    for old in (reply, replace(reply, claim=replace(reply.claim, round=ROUND + 1))):
        with pytest.raises(Refused, match=r"replayed|altered"):
            gate.admit(old)


def test_an_answer_that_comes_after_its_round_is_refused(fed):
    gate = fed.gate()
    late = fed.reply(gate.ask(BAD))
    gate.open(ROUND + 1, fed.model, fed.expected)
    with pytest.raises(Refused, match="another round"):
        gate.admit(late)


def test_a_site_that_is_asked_twice_and_answers_twice_counts_once(fed):
    gate = fed.gate()
    replies = [fed.reply(gate.ask(BAD)) for _ in range(2)]
    rest = [fed.reply(gate.ask(site)) for site in fed.sites if site != BAD]
    taken, refusals = fed.judged(gate, [*replies, *rest])
    assert [(r.site, r.reason) for r in refusals] == [(BAD, "replayed")]
    assert same_bits(fed.after(taken), fed.after(fed.uploads))


def test_a_refused_reply_does_not_use_the_ask_up(fed):
    gate = fed.gate()
    good = fed.reply(gate.ask(BAD))
    with pytest.raises(Refused):
        gate.admit(replace(good, tensors=flipped(good.tensors, WEIGHT, 3)))
    gate.admit(good)


def test_nonces_are_never_the_same_and_a_gate_that_was_restarted_takes_no_answer_to_an_old_ask(fed):
    gate = fed.gate()
    before = fed.reply(gate.ask(BAD))
    assert len({gate.ask(BAD).nonce for _ in range(1000)}) == 1000
    again = fed.gate()
    with pytest.raises(Refused, match="not asked"):
        again.admit(before)
    again.admit(fed.reply(again.ask(BAD)))


def test_a_model_that_was_exchanged_on_its_way_to_the_site_is_found_by_its_digest(fed):
    """The site signs the digest of what it got, not of what it was told."""
    gate = fed.gate()
    got = flipped(flat_state(fed.trial.state), "model/weights/head.weight", 5)
    claim = replace(gate.ask(BAD), model=digest(got))
    check(fed, gate, fed.reply(claim), "stale model")


def test_the_asks_name_run_round_model_and_site(fed):
    ask = fed.gate().ask(BAD)
    assert ask == Claim(RUN, ROUND, ask.nonce, fed.model, BAD)
    assert len(ask.nonce) == 32
