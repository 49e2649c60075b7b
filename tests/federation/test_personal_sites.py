"""Personal models between sites: what is private never leaves, and each site judges its own model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import moonfed, refused, rows
from in_process import InProcessTransport, World, capture, log_of, recording
from user_rows import people

from moonfed import load
from moonfed.core.errors import RunFailed
from moonfed.core.files import read_tensors, write_tensors
from moonfed.core.types import Tensors
from moonfed.data.catalog.digits import digits
from moonfed.experiments.execute import execute
from moonfed.federation.coordinator.federation_config import make_federation_settings
from moonfed.federation.coordinator.serve import serve
from moonfed.federation.pki.coordinator_folder import make_coordinator_folder
from moonfed.federation.pki.site_folder import SiteSettings, make_site_folder
from moonfed.federation.protocol.request import QUERY, Envelope, read_reply, reply_envelope
from moonfed.federation.protocol.signing import sign
from moonfed.training.config import Config, make_config
from moonfed.training.registry import ALGORITHMS
from moonfed.training.setup import set_up

PERSONAL = {"fedper": "head.", "fedrep": "head.", "fedbn": ".1.", "ditto": None, "fedbn+gossip": ".1."}


def test_every_method_with_personal_models_is_tried_between_sites():
    known = {name for name, preset in ALGORITHMS.items() if preset.personal and preset.local.own_rows}
    assert known <= {*PERSONAL}


class PersonalWorld(World):
    """Sites whose network has batch normalisation."""

    def settings(self, rounds: int) -> Config:
        values = super().settings(rounds).model_dump()
        return make_config(values | {"model": {"model": "mlp", "norm": "batch"}})

    def personal_model(self, site: str) -> Tensors:
        (folder,) = (self.path / site / "memory").iterdir()
        return read_tensors(folder / "personal.safetensors")[0]


def final(folder: Path) -> Tensors:
    return read_tensors(folder / "final.safetensors")[0]


@pytest.mark.parametrize("algorithm", PERSONAL)
def test_a_personal_method_between_sites_is_that_of_the_simulation(tmp_path: Path, algorithm: str):
    world = PersonalWorld(tmp_path, algorithm)
    world.federate(InProcessTransport(world.folders))
    execute(*set_up([world.config]), [tmp_path / "here"])
    simulated, federated = final(tmp_path / "here"), final(tmp_path / "run")
    for i in range(3):
        own = world.personal_model(f"s{i}")
        assert {f"party{i}/{k}" for k in own} == {k for k in simulated if k.startswith(f"party{i}/")}
        assert all(torch.equal(value, simulated[f"party{i}/{k}"]) for k, value in own.items())
    for one, other in zip(rows(tmp_path / "run"), rows(tmp_path / "here"), strict=True):
        for name in ("accuracy", "accuracy_std", "accuracy_by_party", "test_loss", "bytes_up", "bytes_down"):
            assert one[name] == pytest.approx(other[name], rel=1e-12), name
    evaluation = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert evaluation["accuracy"] == rows(tmp_path / "run")[-1]["accuracy"]
    role = PERSONAL[algorithm]
    if role is not None:
        assert not any(role in name for name in federated), "the coordinator has no private tensor to save"


@pytest.mark.parametrize(("algorithm", "role"), [("fedper", "head."), ("fedbn", ".1.")])
def test_no_message_holds_a_private_tensor(tmp_path: Path, algorithm: str, role: str):
    world = PersonalWorld(tmp_path, algorithm)
    messages: list[Envelope] = []

    def keep(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        messages.extend([request, reply])
        return [reply]

    world.federate(InProcessTransport(world.folders, keep))
    names = {name for message in messages for name in message.tensors}
    assert any(name.startswith("delta/") for name in names)
    assert not any(role in name for name in names)
    (folder,) = (tmp_path / "s1" / "memory").iterdir()
    assert any(role in name for name in read_tensors(folder / "slots-3.safetensors")[0])


def test_interrupted_and_resumed_is_never_interrupted_and_the_folders_are_equal(tmp_path: Path):
    world, whole = (PersonalWorld(tmp_path / name, "fedper") for name in ("cut", "whole"))

    def silent(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        asked = json.loads(str(request.fields["ask"]))
        return [] if asked["kind"] == QUERY and asked["claim"]["round"] == 2 else [reply]

    with pytest.raises(RunFailed, match=r"round 2 got too few replies .* rounds up to 1 are saved"):
        world.federate(InProcessTransport(world.folders, silent))
    world.federate(InProcessTransport(world.folders), resume=True)
    whole.federate(InProcessTransport(whole.folders))
    one, other = (json.loads((w.path / "run" / "evaluation.json").read_text()) for w in (world, whole))
    assert one == other
    assert all(torch.equal(v, final(whole.path / "run")[k]) for k, v in final(world.path / "run").items())
    for site in ("s0", "s1", "s2"):
        mine = whole.personal_model(site)
        assert all(torch.equal(value, mine[k]) for k, value in world.personal_model(site).items())


def test_a_site_that_does_not_answer_is_left_out_of_the_mean_by_name(tmp_path: Path):
    world = PersonalWorld(tmp_path, "fedper", 1)

    def silent(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        return [] if site == "s1" and json.loads(str(request.fields["ask"]))["kind"] == QUERY else [reply]

    (row,) = world.federate(InProcessTransport(world.folders, silent), rounds=1, quorum=0.5)
    first, lost, last = row["accuracy_by_party"]
    assert lost is None
    assert row["accuracy"] == pytest.approx((first + last) / 2)
    assert row["cohort"] == [0, 1, 2], "its update counts"


FALSE_SCORES: dict[str, Any] = {  # what a hostile site signs with its own good key
    "negative counts": lambda t: t | {"confusion": t["confusion"] - 10**6},
    "no rows": lambda t: {k: v * 0 for k, v in t.items()},
    "more right rows than there are": lambda t: t | {"by_party": t["by_party"] + 1},
    "a negative loss": lambda t: t | {"loss": -t["loss"]},
    "too many rows": lambda t: {k: v * 10**15 for k, v in t.items()},
    "counts whose sum wraps to 70": lambda t: t | {"confusion": wrapping(), "by_party": torch.tensor([[0, 70]])},
}


def wrapping() -> torch.Tensor:
    """Counts that sum to 70 modulo 2**64, 70 of them on the diagonal."""
    counts = torch.diag(torch.full((10,), 7))
    counts[0, 1] = counts[0, 2] = counts[1, 0] = counts[1, 2] = 2**62
    return counts


@pytest.mark.parametrize("case", FALSE_SCORES)
def test_a_false_score_is_refused_and_the_others_count(tmp_path: Path, case: str):
    world = PersonalWorld(tmp_path, "fedper", 1)
    key = world.folders["s1"].private_key()

    def lie(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site != "s1" or json.loads(str(request.fields["ask"]))["kind"] != QUERY:
            return [reply]
        claim, numbers, _ = read_reply(reply)
        tensors = FALSE_SCORES[case](reply.tensors)
        return [reply_envelope(claim, numbers, tensors, sign(key, claim, numbers, tensors))]

    (row,) = world.federate(InProcessTransport(world.folders, lie), rounds=1, quorum=0.5)
    assert [value is None for value in row["accuracy_by_party"]] == [False, True, False]
    (entry,) = [json.loads(line) for line in world.rejections().splitlines()]
    assert (entry["refused"], entry["reason"]) == ("s1", "impossible sums")


def test_a_replayed_query_is_refused_and_changes_nothing(tmp_path: Path):
    world = PersonalWorld(tmp_path, "fedper")
    queries: list[Envelope] = []

    def keep(site: str, count: int, request: Envelope, reply: Envelope) -> list[Envelope]:
        if site == "s1" and json.loads(str(request.fields["ask"]))["kind"] == QUERY:
            queries.append(request)
        return [reply]

    transport = InProcessTransport(world.folders, keep)
    world.federate(transport)
    before = world.personal_model("s1")
    reply = transport.trainers["s1"].answer(queries[1])
    assert "round 2 is over, this site has trained round 3" in str(reply.fields["refused"])
    assert all(torch.equal(value, before[k]) for k, value in world.personal_model("s1").items())


def test_a_sites_model_is_used_with_the_run_that_it_is_of_and_with_no_other(tmp_path: Path):
    np.savez(tmp_path / "new.npz", x=digits().test_inputs[:20].numpy(), y=digits().test_labels[:20].numpy())
    files: dict[str, Path] = {}
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        world = PersonalWorld(tmp_path / name, "fedper", 1)
        world.federate(InProcessTransport(world.folders), rounds=1)
        (memory,) = (tmp_path / name / "s1" / "memory").iterdir()
        files[name] = memory / "personal.safetensors"
    run = tmp_path / "one" / "run"
    own = moonfed("predict", run, tmp_path / "new.npz", "--party", files["one"], "--json").value
    net = load(run, party=str(files["one"]))
    assert [row["predicted"] for row in own["rows"]] == [str(k) for k in net.predict(digits().test_inputs[:20])]
    foreign = refused(moonfed("predict", run, tmp_path / "new.npz", "--party", files["other"]))
    assert f"is not of the run in {run}; name the file in memory/ of this run" in foreign
    tensors, facts = read_tensors(files["one"])
    wide = tmp_path / "wide.safetensors"
    write_tensors(wide, {k: torch.cat([v, v]) if v.dim() else v for k, v in tensors.items()}, **facts)
    said = refused(moonfed("predict", run, tmp_path / "new.npz", "--party", wide))
    assert "wide.safetensors holds another network than the run's settings say" in said
    renamed = files["one"].rename(tmp_path / "mine.safetensors")
    assert "mine.safetensors is damaged: its content or its name does" in refused(
        moonfed("predict", run, tmp_path / "new.npz", "--party", renamed)
    )


def test_a_site_scores_its_model_for_personal_algorithms_only(tmp_path: Path):
    world = World(tmp_path, "fedavg", 1)
    requests: list[Envelope] = []
    world.federate(InProcessTransport(world.folders, recording(requests)), rounds=1)
    assert all(json.loads(str(request.fields["ask"]))["kind"] != QUERY for request in requests)


def own_rows_federation(path: Path, test: bool) -> tuple[Any, InProcessTransport]:
    home = make_coordinator_folder(path / "coordinator", "127.0.0.1", 9443, 1)
    folders = {}
    for i, name in enumerate(("north", "south")):
        data, judged = people(path / f"{name}.csv", 60 + 20 * i), people(path / f"{name}-test.csv", 30 + i)
        settings = SiteSettings(name, data=str(data), label="kind", test=str(judged) if test else None)
        folders[name] = make_site_folder(path / name, home.invitation, settings)
        home.admit(name, folders[name].public_key_path)
    return home, InProcessTransport(folders)


def own_rows_config(path: Path) -> Config:
    return make_config(
        {
            "algorithm": {"name": "fedper"},
            "data": {"path": str(people(path / "reference.csv", 80)), "label": "kind"},
            "train": {"rounds": 2, "epochs": 1},
        }
    )


def test_own_rows_are_judged_on_test_rows_that_stay_at_the_site(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    capture(caplog)
    home, transport = own_rows_federation(tmp_path, test=True)
    settings = make_federation_settings({"deadline": 0.5, "patience": 0, "attempts": 1})
    serve(own_rows_config(tmp_path), tmp_path / "run", False, home, transport, settings)
    for site, count in (("north", 30), ("south", 31)):
        assert f"answered the query score over {count} rows" in log_of(site, caplog)[-1]
    last = rows(tmp_path / "run")[-1]
    for accuracy, count in zip(last["accuracy_by_party"], (30, 31), strict=True):
        assert accuracy * count == pytest.approx(round(accuracy * count)), "a whole number of its own rows"


def images_federation(path: Path, own_test: bool) -> tuple[Any, InProcessTransport, Config]:
    """Sites with images like the digits; the first one brings 31 test rows of its own, if asked."""
    home, data, folders = make_coordinator_folder(path / "coordinator", "127.0.0.1", 9443, 1), digits(), {}
    np.savez(path / "test.npz", x=data.inputs[:31].numpy(), y=data.labels[:31].numpy())
    for i in range(2):
        mine = slice(100 * i, 100 * (i + 1))
        np.savez(path / f"{i}.npz", x=data.inputs[mine].numpy(), y=data.labels[mine].numpy())
        test = str(path / "test.npz") if own_test and i == 0 else None
        settings = SiteSettings(f"s{i}", data=str(path / f"{i}.npz"), test=test)
        folders[f"s{i}"] = make_site_folder(path / f"s{i}", home.invitation, settings)
        home.admit(f"s{i}", folders[f"s{i}"].public_key_path)
    train = {"rounds": 1, "epochs": 1, "batch": 20}
    values = {"algorithm": {"name": "fedper"}, "data": {"parties": 2}, "model": {"model": "mlp"}, "train": train}
    return home, InProcessTransport(folders), make_config(values)


def test_test_rows_of_a_sites_own_count_as_they_are_also_beside_a_built_in_data_set(tmp_path: Path):
    """Those of the data set are weighted by the site's classes: the other site, which brings none, has them."""
    home, transport, config = images_federation(tmp_path, own_test=True)
    settings = make_federation_settings({"deadline": 0.5, "patience": 0, "attempts": 1})
    serve(config, tmp_path / "run", False, home, transport, settings)
    first, second = rows(tmp_path / "run")[-1]["accuracy_by_party"]
    assert first * 31 == pytest.approx(round(first * 31)), "a whole number of its own rows"
    assert second * 31 != pytest.approx(round(second * 31))


def test_a_file_of_test_rows_is_read_only_for_methods_that_need_it(tmp_path: Path):
    home, transport, config = images_federation(tmp_path, own_test=True)
    (tmp_path / "test.npz").unlink()
    settings = make_federation_settings({"deadline": 0.5, "patience": 0, "attempts": 1})
    with pytest.raises(RunFailed, match="s0 cannot take part"):
        serve(config, tmp_path / "personal", False, home, transport, settings)
    plain = make_config(config.model_dump() | {"algorithm": {"name": "fedavg"}})
    serve(plain, tmp_path / "plain", False, home, transport, settings)
    assert len(rows(tmp_path / "plain")) == 1


def test_a_site_without_test_rows_says_so_when_it_enrols(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    capture(caplog)
    home, transport = own_rows_federation(tmp_path, test=False)
    settings = make_federation_settings({"deadline": 0.5, "patience": 0, "attempts": 1})
    with pytest.raises(RunFailed, match="north cannot take part"):
        serve(own_rows_config(tmp_path), tmp_path / "run", False, home, transport, settings)
    assert "judges this site's own model on test rows of this site, and it has none" in " ".join(
        log_of("north", caplog)
    )
