"""None of the replies that must be refused is averaged: the model is that of the honest sites alone."""

import json
import math
from dataclasses import replace

import pytest
import torch
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from sites import ROUND, RUN, Federation
from test_seal import flipped
from worlds import bench_for, gap, same_bits, settings

from moonfed.algorithms import ALGORITHMS
from moonfed.core.tree import scale
from moonfed.core.types import Upload
from moonfed.federation.flat import expected_upload, flat_state, flat_upload, rebuilt_state, rebuilt_upload
from moonfed.federation.gate import Reply, within_norm
from moonfed.federation.seal import Claim, Refused, digest, sign
from moonfed.run.parties import make_jobs
from moonfed.run.trial import resolve, set_up

BAD = "site2"


@pytest.fixture(scope="module")
def fed():
    return Federation("fedavg", model__norm="batch", model__model="cnn")


def changed(tensors, name, value):
    return tensors | {name: value(tensors[name].clone())}


def put(value):
    def into(tensor):
        tensor.view(-1)[tensor.numel() // 2] = value
        return tensor

    return into


WEIGHT, VARIANCE, COUNT = (
    "delta/head.weight",
    "buffers/encoder.convolutions.1.running_var",
    "buffers/encoder.convolutions.1.num_batches_tracked",
)

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
    assert {s: (u.steps, u.mass) for s, u in taken.items()} == {s: (u.steps, u.mass) for s, u in fed.uploads.items()}


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


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_what_a_party_of_any_algorithm_sends_has_the_expected_form_and_comes_back_whole(name, norm):
    config = settings(name, model__norm=norm, model__model="cnn")
    bench = bench_for(config)
    trial = set_up(resolve(config, bench.data), bench)
    done = bench.engine.run_cohort(make_jobs(trial, bench)[:1])[0].upload
    expected = expected_upload(trial.algorithm.local, trial.state, trial.facts[0], trial.fresh)
    flat = flat_upload(done)
    assert {k: (tuple(v.shape), v.dtype) for k, v in flat.items()} == expected
    back = rebuilt_upload(flat, {"steps": done.steps, "mass": done.mass})
    assert same_bits((done.delta, done.buffers, done.slots), (back.delta, back.buffers, back.slots))
    assert (back.steps, back.mass, back.slots.keys()) == (done.steps, done.mass, done.slots.keys())
    sent = rebuilt_state(flat_state(trial.state))
    assert same_bits((trial.state.model, trial.state.sent), (sent.model, sent.sent))


def test_scaffolds_controls_are_measured_by_themselves():
    fed = Federation("scaffold")
    gate = fed.gate()

    def wild(tensors):
        return {k: v * 100 if "control_change" in k else v for k, v in tensors.items()}

    asks = {site: gate.ask(site) for site in fed.sites}
    replies = [
        fed.reply(ask, **({"tensors": wild(fed.reply(ask).tensors)} if site == BAD else {}))
        for site, ask in asks.items()
    ]
    taken, refusals = fed.judged(gate, replies)
    assert [(r.site, r.reason) for r in refusals] == [(BAD, "norm")]
    assert "control_change" in refusals[0].detail
    assert same_bits(fed.after(taken), fed.after({s: u for s, u in fed.uploads.items() if s != BAD}))


def test_a_variance_that_its_rule_corrects_may_be_negative():
    fed = Federation("scaffold-niid", model__norm="batch", model__model="cnn")
    gate = fed.gate()
    ask = gate.ask(BAD)
    tensors = changed(fed.reply(ask).tensors, VARIANCE, put(-1e-3))
    assert float(gate.admit(fed.reply(ask, tensors=tensors)).buffers[VARIANCE.removeprefix("buffers/")].min()) < 0


def long(norm):
    return Upload({"w": torch.tensor([norm * 0.6, norm * 0.8])}, {}, {}, 1, 1.0)


@pytest.mark.parametrize(
    ("norms", "out"),
    [
        ([5.0], []),  # nothing to be measured by
        ([1.0, 10.0], []),
        ([1.0, 10.1], [1]),  # by the smaller one
        ([1.0, 2.0, 21.0], [2]),
        ([1.0, 2.0, 19.9], []),
        ([1.0, 1.0, 99.0, 99.0], [2, 3]),  # half of the sites do not lift the lower median
        ([1.0, 2.0, 3.0, 1e30], [3]),
        ([0.0, 0.0, 1.0], [2]),
        ([0.0, 0.0, 0.0], []),
    ],
)
def test_the_limit_is_a_multiple_of_the_lower_median(norms, out):
    uploads = {f"site{i}": long(norm) for i, norm in enumerate(norms)}
    within, refused = within_norm(uploads, 10.0, 1)
    assert [r.site for r in refused] == [f"site{i}" for i in out]
    assert within.keys() == uploads.keys() - {f"site{i}" for i in out}


def test_a_site_that_did_more_work_may_have_gone_further_by_as_much():
    """Honest sites of very unequal size: thirty times the steps, thirty times the way."""
    small = {f"site{i}": long(1.0) for i in range(4)}
    for norm, refused in ((30.0, []), (299.0, []), (301.0, ["large"])):
        uploads = small | {"large": long(norm)._replace(mass=30.0)}
        assert [r.site for r in within_norm(uploads, 10.0, 1)[1]] == refused
    lazy = small | {"little": long(10.1)._replace(mass=0.1)}
    assert [r.site for r in within_norm(lazy, 10.0, 1)[1]] == ["little"], "less work gives no less room, and no more"


@pytest.mark.parametrize(("dtype", "entry"), [(torch.float16, 6e3), (torch.float32, 3e37)])
def test_norms_beyond_the_range_of_their_own_type_are_told_apart_all_the_same(dtype, entry):
    sent = {site: torch.full((400,), entry, dtype=dtype) for site in ("a", "b", "c")}
    sent["d"] = sent["c"] * 10
    uploads = {site: Upload({"w": w}, {}, {}, 1, 1.0) for site, w in sent.items()}
    assert not torch.isfinite(torch.linalg.vector_norm(sent["c"]))
    assert [r.site for r in within_norm(uploads, 5.0, 1)[1]] == ["d"]


def test_no_site_at_all_is_no_error():
    assert within_norm({}, 10.0, 1) == ({}, [])


def test_the_sum_of_poisoned_updates_within_the_norm_is_bounded_by_it(fed):
    """What the norm leaves open: one site of n moves the mean by its share of the multiple at most."""
    gate = fed.gate()
    asks = {site: gate.ask(site) for site in fed.sites}
    pushed = {k: v * 3 if k.startswith("delta/") else v for k, v in fed.reply(asks[BAD]).tensors.items()}
    replies = [fed.reply(ask, **({"tensors": pushed} if site == BAD else {})) for site, ask in asks.items()]
    taken, refusals = fed.judged(gate, replies)
    assert not refusals
    share = fed.rows[BAD] / sum(fed.rows.values())
    moved = scale(fed.uploads[BAD].delta, 2 * share)
    after, honest = (fed.after(u).model.weights for u in (taken, fed.uploads))
    assert gap({k: after[k] - honest[k] for k in after}, moved) < 1e-6


def test_behind_the_gate_a_median_keeps_every_weight_within_what_the_honest_sites_say():
    fed = Federation("moon", algorithm__server="median")
    gate = fed.gate()
    asks = {site: gate.ask(site) for site in fed.sites}
    turned = {k: v * -6 if k.startswith("delta/") else v for k, v in fed.reply(asks[BAD]).tensors.items()}
    replies = [fed.reply(ask, **({"tensors": turned} if site == BAD else {})) for site, ask in asks.items()]
    taken, refusals = fed.judged(gate, replies)
    assert not refusals, "it hides within the norm"
    after = fed.after(taken).model.weights
    for name, old in fed.trial.state.model.weights.items():
        said = torch.stack([old + upload.delta[name] for site, upload in fed.uploads.items() if site != BAD])
        assert bool(((after[name] >= said.amin(0)) & (after[name] <= said.amax(0))).all()), name


def test_the_asks_name_run_round_model_and_site(fed):
    ask = fed.gate().ask(BAD)
    assert ask == Claim(RUN, ROUND, ask.nonce, fed.model, BAD)
    assert len(ask.nonce) == 32
