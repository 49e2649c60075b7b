"""No reply that must be rejected is averaged: the model is that of the honest sites alone."""

import json
import math
from dataclasses import replace

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from test_signing import flipped
from trained_sites import BAD, COUNT, ROUND, RUN, VARIANCE, WEIGHT, Federation, changed, put
from worlds import same_bits

from moonfed.federation.coordinator.update_validation import Reply
from moonfed.federation.protocol.codec import encode_state
from moonfed.federation.protocol.rejection import Rejection
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
    "steps that are a boolean": ({"steps": True}, "malformed"),
    "steps beyond 64 bits": ({"steps": 10**400}, "malformed"),
    "negative effective steps": ({"mass": -1.0}, "impossible effective steps"),
    "no effective steps": ({"mass": 0.0}, "impossible effective steps"),
    "effective steps that make FedNova diverge": ({"mass": 1e-30}, "impossible effective steps"),
    "effective steps that are not a number": ({"mass": math.nan}, "not finite"),
    "infinite effective steps": ({"mass": math.inf}, "not finite"),
    "a loss that is not a number": ({"loss/supervised": math.nan}, "not finite"),
    "more rows than at enrolment": ({"rows": 10**6}, "impossible rows"),
    "text for a number": ({"mass": "1.0"}, "malformed"),
}

CLAIMS = {
    "of another round": ({"round": ROUND - 1}, "wrong round"),
    "of a round to come": ({"round": ROUND + 1}, "wrong round"),
    "of another run": ({"run": "run-2"}, "wrong run"),
    "from another model": ({"model": "00" * 32}, "stale model"),
    "under a nonce of its own": ({"nonce": "00" * 16}, "not requested"),
    "in the name of another site": ({"site": "site0"}, "wrong sender"),
    "of a round that is no number": ({"round": "4"}, "malformed"),
}


def check(fed, validator, bad, reason):
    """The bad reply is rejected with its reason and site; the model is that of the others, to the bit."""
    good = [fed.reply(validator.issue_claim(site)) for site in fed.sites if site != BAD]
    accepted, rejections = fed.validate(validator, [good[0], bad, *good[1:]])
    assert [(r.site, r.reason, r.round) for r in rejections] == [(bad.site, reason, ROUND)]
    said = json.loads(rejections[0].to_json())
    assert (said["refused"], said["reason"], bool(said["detail"])) == (bad.site, reason, True)
    honest = {site: upload for site, upload in fed.uploads.items() if site != BAD}
    assert accepted.keys() == honest.keys()
    assert same_bits(fed.after(accepted), fed.after(honest))


def test_honest_sites_are_all_accepted_and_give_the_model_of_the_simulation(fed):
    validator = fed.validator()
    accepted, rejections = fed.validate(validator, [fed.reply(validator.issue_claim(site)) for site in fed.sites])
    assert not rejections
    assert same_bits(fed.after(accepted), fed.after(fed.uploads))
    assert {s: (u.steps, u.effective_steps) for s, u in accepted.items()} == {
        s: (u.steps, u.effective_steps) for s, u in fed.uploads.items()
    }


@pytest.mark.parametrize("name", TENSORS)
def test_impossible_tensors_are_rejected_though_their_site_signed_them(fed, name):
    make, reason = TENSORS[name]
    validator = fed.validator()
    claim = validator.issue_claim(BAD)
    check(fed, validator, fed.reply(claim, tensors=make(fed.reply(claim).tensors)), reason)


@pytest.mark.parametrize("name", NUMBERS)
def test_impossible_numbers_are_rejected_though_their_site_signed_them(fed, name):
    change, reason = NUMBERS[name]
    validator = fed.validator()
    good = fed.reply(validator.issue_claim(BAD))
    numbers = good.numbers | change
    signable = all(type(value) in (int, float) and abs(value) < 1e300 for value in change.values())
    bad = fed.reply(good.claim, numbers=numbers) if signable else replace(good, numbers=numbers)
    if reason == "not finite":
        bad = replace(bad, signature=sign(fed.keys[BAD], bad.claim, bad.numbers, bad.tensors))
    check(fed, validator, bad, reason)


@pytest.mark.parametrize("name", CLAIMS)
def test_an_update_that_was_not_requested_is_rejected_though_its_site_signed_it(fed, name):
    change, reason = CLAIMS[name]
    validator = fed.validator()
    good = fed.reply(validator.issue_claim(BAD))
    claim = replace(good.claim, **change)
    bad = replace(good, claim=claim)
    if reason != "malformed":
        bad = replace(bad, signature=sign(fed.keys[BAD], claim, bad.numbers, bad.tensors))
    check(fed, validator, bad, reason)


def test_a_tensor_tampered_with_on_the_way_is_rejected(fed):
    validator = fed.validator()
    good = fed.reply(validator.issue_claim(BAD))
    for name, tensor in good.tensors.items():
        bits = 8 * tensor.numel() * tensor.element_size()
        for bit in {0, bits - 1, *range(7, bits, max(bits // 9, 1))}:
            with pytest.raises(Rejection, match="altered"):
                validator.validate(replace(good, tensors=flipped(good.tensors, name, bit)))
    check(fed, validator, replace(good, tensors=flipped(good.tensors, WEIGHT, 30)), "altered")


def test_a_number_tampered_with_on_the_way_is_rejected(fed):
    validator = fed.validator()
    good = fed.reply(validator.issue_claim(BAD))
    for name, value in good.numbers.items():
        other = value + 1 if isinstance(value, int) else math.nextafter(value, math.inf)
        with pytest.raises(Rejection, match="altered"):
            validator.validate(replace(good, numbers=good.numbers | {name: other}))
    check(fed, validator, replace(good, numbers=good.numbers | {"rows": good.numbers["rows"] * 9}), "altered")


def test_an_update_under_the_wrong_key_is_rejected(fed):
    validator = fed.validator()
    good = fed.reply(validator.issue_claim(BAD))
    stranger = sign(generate_private_key(SECP384R1()), good.claim, good.numbers, good.tensors)
    neighbour = sign(fed.keys["site0"], good.claim, good.numbers, good.tensors)
    for signature in (stranger, b""):
        with pytest.raises(Rejection, match="altered"):
            validator.validate(replace(good, signature=signature))
    check(fed, validator, replace(good, signature=neighbour), "altered")


def test_a_site_without_a_key_on_the_allow_list_is_rejected(fed):
    validator = fed.validator()
    good = fed.reply(validator.issue_claim(BAD))
    claim = replace(good.claim, site="mallory")
    signature = sign(generate_private_key(SECP384R1()), claim, good.numbers, good.tensors)
    check(fed, validator, Reply("mallory", claim, good.numbers, good.tensors, signature), "wrong sender")


def test_a_reply_in_the_name_of_another_site_is_rejected_by_either_name(fed):
    validator = fed.validator()
    honest = fed.reply(validator.issue_claim("site0"))
    with pytest.raises(Rejection, match="wrong sender"):
        validator.validate(replace(honest, site=BAD))
    assert validator.validate(honest).steps == fed.uploads["site0"].steps


def test_a_replayed_update_is_rejected_in_its_round_and_in_the_next(fed):
    validator = fed.validator()
    reply = fed.reply(validator.issue_claim(BAD))
    validator.validate(reply)
    with pytest.raises(Rejection, match="replayed"):
        validator.validate(reply)
    validator.start_round(ROUND + 1, fed.model, fed.expected)
    for old in (reply, replace(reply, claim=replace(reply.claim, round=ROUND + 1))):
        with pytest.raises(Rejection, match=r"replayed|altered"):
            validator.validate(old)


def test_a_reply_that_comes_after_its_round_is_rejected(fed):
    validator = fed.validator()
    late = fed.reply(validator.issue_claim(BAD))
    validator.start_round(ROUND + 1, fed.model, fed.expected)
    with pytest.raises(Rejection, match="wrong round"):
        validator.validate(late)


def test_a_site_that_replies_to_two_requests_counts_once(fed):
    validator = fed.validator()
    replies = [fed.reply(validator.issue_claim(BAD)) for _ in range(2)]
    rest = [fed.reply(validator.issue_claim(site)) for site in fed.sites if site != BAD]
    accepted, rejections = fed.validate(validator, [*replies, *rest])
    assert [(r.site, r.reason) for r in rejections] == [(BAD, "replayed")]
    assert same_bits(fed.after(accepted), fed.after(fed.uploads))


def test_a_rejected_reply_does_not_use_up_the_request(fed):
    validator = fed.validator()
    good = fed.reply(validator.issue_claim(BAD))
    with pytest.raises(Rejection):
        validator.validate(replace(good, tensors=flipped(good.tensors, WEIGHT, 3)))
    validator.validate(good)


def test_nonces_are_unique_and_a_new_validator_accepts_no_reply_to_an_old_request(fed):
    validator = fed.validator()
    before = fed.reply(validator.issue_claim(BAD))
    assert len({validator.issue_claim(BAD).nonce for _ in range(1000)}) == 1000
    again = fed.validator()
    with pytest.raises(Rejection, match="not requested"):
        again.validate(before)
    again.validate(fed.reply(again.issue_claim(BAD)))


def test_a_model_that_was_replaced_on_its_way_to_the_site_is_detected_by_its_digest(fed):
    """The site signs the digest of the model it received, not the digest in the request."""
    validator = fed.validator()
    got = flipped(encode_state(fed.trial.state), "model/weights/head.weight", 5)
    claim = replace(validator.issue_claim(BAD), model=digest(got))
    check(fed, validator, fed.reply(claim), "stale model")


def test_claims_name_run_round_model_and_site(fed):
    claim = fed.validator().issue_claim(BAD)
    assert claim == Claim(RUN, ROUND, claim.nonce, fed.model, BAD)
    assert len(claim.nonce) == 32
