"""Accepted updates have the form of their algorithm and a norm in proportion, which bounds what they can hide."""

import pytest
import torch
from trained_sites import BAD, VARIANCE, Federation, changed, put
from worlds import context_for, gap, same_bits, settings

from moonfed.core.tree import scale
from moonfed.core.types import Upload
from moonfed.federation.coordinator.update_validation import split_by_norm
from moonfed.federation.protocol.codec import decode_state, decode_upload, encode_state, encode_upload, expected_upload
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve
from moonfed.training.runner import make_jobs
from moonfed.training.trial import new_trial


@pytest.fixture(scope="module")
def fed():
    return Federation("fedavg", model__norm="batch", model__model="cnn")


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_what_a_party_of_any_algorithm_sends_has_the_expected_form_and_comes_back_whole(name, norm):
    config = settings(name, model__norm=norm, model__model="cnn")
    bench = context_for(config)
    trial = new_trial(resolve(config, bench.data), bench)
    done = bench.engine.run_cohort(make_jobs(trial, bench)[:1])[0].upload
    spec = trial.spec
    expected = expected_upload(trial.algorithm.local, trial.state, spec.infos[0], spec.init_model, spec.private)
    flat = encode_upload(done)
    assert {k: (tuple(v.shape), v.dtype) for k, v in flat.items()} == expected
    back = decode_upload(flat, {"steps": done.steps, "mass": done.effective_steps})
    assert same_bits((done.delta, done.buffers, done.slots), (back.delta, back.buffers, back.slots))
    assert (back.steps, back.effective_steps, back.slots.keys()) == (
        done.steps,
        done.effective_steps,
        done.slots.keys(),
    )
    sent = decode_state(encode_state(trial.state))
    assert same_bits((trial.state.model, trial.state.sent), (sent.model, sent.sent))


def test_scaffolds_controls_are_measured_by_themselves():
    fed = Federation("scaffold")
    validator = fed.validator()

    def wild(tensors):
        return {k: v * 100 if "control_change" in k else v for k, v in tensors.items()}

    claims = {site: validator.issue_claim(site) for site in fed.sites}
    replies = [
        fed.reply(claim, **({"tensors": wild(fed.reply(claim).tensors)} if site == BAD else {}))
        for site, claim in claims.items()
    ]
    taken, refusals = fed.validate(validator, replies)
    assert [(r.site, r.reason) for r in refusals] == [(BAD, "norm")]
    assert "control_change" in refusals[0].detail
    assert same_bits(fed.after(taken), fed.after({s: u for s, u in fed.uploads.items() if s != BAD}))


def test_a_variance_that_its_rule_corrects_may_be_negative():
    fed = Federation("scaffold-niid", model__norm="batch", model__model="cnn")
    validator = fed.validator()
    claim = validator.issue_claim(BAD)
    tensors = changed(fed.reply(claim).tensors, VARIANCE, put(-1e-3))
    upload = validator.validate(fed.reply(claim, tensors=tensors))
    assert float(upload.buffers[VARIANCE.removeprefix("buffers/")].min()) < 0


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
    within, refused = split_by_norm(uploads, 10.0, 1)
    assert [r.site for r in refused] == [f"site{i}" for i in out]
    assert within.keys() == uploads.keys() - {f"site{i}" for i in out}


def test_a_site_that_did_more_work_may_have_gone_further_by_as_much():
    """Honest sites of very unequal size: thirty times the steps, thirty times the way."""
    small = {f"site{i}": long(1.0) for i in range(4)}
    for norm, refused in ((30.0, []), (299.0, []), (301.0, ["large"])):
        uploads = small | {"large": long(norm)._replace(effective_steps=30.0)}
        assert [r.site for r in split_by_norm(uploads, 10.0, 1)[1]] == refused
    lazy = small | {"little": long(10.1)._replace(effective_steps=0.1)}
    assert [r.site for r in split_by_norm(lazy, 10.0, 1)[1]] == ["little"], "less work gives no less room, and no more"


@pytest.mark.parametrize(("dtype", "entry"), [(torch.float16, 6e3), (torch.float32, 3e37)])
def test_norms_beyond_the_range_of_their_own_type_are_told_apart_all_the_same(dtype, entry):
    sent = {site: torch.full((400,), entry, dtype=dtype) for site in ("a", "b", "c")}
    sent["d"] = sent["c"] * 10
    uploads = {site: Upload({"w": w}, {}, {}, 1, 1.0) for site, w in sent.items()}
    assert not torch.isfinite(torch.linalg.vector_norm(sent["c"]))
    assert [r.site for r in split_by_norm(uploads, 5.0, 1)[1]] == ["d"]


def test_no_site_at_all_is_no_error():
    assert split_by_norm({}, 10.0, 1) == ({}, [])


def test_the_sum_of_poisoned_updates_within_the_norm_is_bounded_by_it(fed):
    """What the norm leaves open: one site of n moves the mean by its share of the multiple at most."""
    validator = fed.validator()
    claims = {site: validator.issue_claim(site) for site in fed.sites}
    pushed = {k: v * 3 if k.startswith("delta/") else v for k, v in fed.reply(claims[BAD]).tensors.items()}
    replies = [fed.reply(claim, **({"tensors": pushed} if site == BAD else {})) for site, claim in claims.items()]
    taken, refusals = fed.validate(validator, replies)
    assert not refusals
    share = fed.rows[BAD] / sum(fed.rows.values())
    moved = scale(fed.uploads[BAD].delta, 2 * share)
    after, honest = (fed.after(u).model.weights for u in (taken, fed.uploads))
    assert gap({k: after[k] - honest[k] for k in after}, moved) < 1e-6


def test_behind_the_gate_a_median_keeps_every_weight_within_what_the_honest_sites_say():
    fed = Federation("moon", algorithm__server="median")
    validator = fed.validator()
    claims = {site: validator.issue_claim(site) for site in fed.sites}
    turned = {k: v * -6 if k.startswith("delta/") else v for k, v in fed.reply(claims[BAD]).tensors.items()}
    replies = [fed.reply(claim, **({"tensors": turned} if site == BAD else {})) for site, claim in claims.items()]
    taken, refusals = fed.validate(validator, replies)
    assert not refusals, "it hides within the norm"
    after = fed.after(taken).model.weights
    for name, old in fed.trial.state.model.weights.items():
        said = torch.stack([old + upload.delta[name] for site, upload in fed.uploads.items() if site != BAD])
        assert bool(((after[name] >= said.amin(0)) & (after[name] <= said.amax(0))).all()), name
