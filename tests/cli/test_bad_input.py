"""Bad input gets one line that says what was needed, and costs nobody a byte."""

import re
from pathlib import Path

import pytest
import torch
from commands import SMALL, moonfed, refuse


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--algorithm", "mooon"], 'no algorithm "mooon"; did you mean moon?'),
        (["--dataset", "digit"], 'no data set "digit"; did you mean digits?'),
        (["--partition", "dirichelt"], 'no partition "dirichelt"; did you mean dirichlet?'),
        (["--model", "cn"], 'no encoder "cn"; did you mean cnn?'),
        (["--server", "fedavgn"], 'no server rule or phase "fedavgn"; did you mean fedavg'),
        (["--engine", "stackd"], 'no run.engine "stackd"; did you mean stacked?'),
        (["--norm", "grup"], 'no model.norm "grup"; did you mean group?'),
        (["--sampling", "by-row"], 'no cohort.sampling "by-row"; did you mean by-rows?'),
        (["--algorithm", "fedavgm", "--momentum-form", "plan"], 'did you mean plain?'),
        (["--set", "algorithm.temprature=1"], 'no setting "temprature" of moon; did you mean temperature?'),
        (["--set", "train.epoch=1"], 'no setting "epoch" in [train]; did you mean epochs?'),
        (["--set", "trian.lr=1"], 'no section of settings "trian"; did you mean train?'),
    ],
)  # fmt: skip
def test_an_unknown_name_is_refused_with_the_nearest_known_one(arguments: list[str], line: str, place: Path) -> None:
    assert line in refuse(place, "run", *arguments)


def test_a_flag_that_names_another_algorithm_is_refused(place: Path) -> None:
    words = ["--algorithm", "fedacg", "--feddecorr.beta", "0.5"]
    assert "--feddecorr.beta is a setting of feddecorr, the algorithm is fedacg" in refuse(place, "run", *words)
    assert "of feddecorr, the algorithm is moon;" in refuse(place, "run", "--feddecorr.beta", "0.5")
    assert moonfed("run", *SMALL, "--algorithm", "fedacg+moon", "--fedacg.beta", "0.2", "--out", "x").code == 0


def test_two_local_rules_are_written_the_other_way_round(place: Path) -> None:
    line = refuse(place, "run", "--algorithm", "moon+fedprox")
    assert "fedprox is a local rule, as moon is; write fedprox+moon to add moon's term to it" in line


def test_one_model_cannot_be_kept_where_every_party_has_its_own(place: Path) -> None:
    for flag in (["--patience", "2"], ["--calibrate"]):
        line = refuse(place, "run", "--topology", "ring", *flag)
        assert f"{flag[0]} needs one global model, moon+gossip trains one per party; omit {flag[0]}" in line


def test_an_unknown_name_in_a_comparison_is_refused_the_same_way(place: Path) -> None:
    assert "did you mean moon?" in refuse(place, "compare", "mooon", "fedavg")
    assert "did you mean mu?" in refuse(place, "compare", "moon:muu=1")


@pytest.mark.parametrize(
    "arguments",
    [
        ["nothing"],
        ["run", "--nothing"],
        ["run", "surplus"],
        ["run", "--mu"],
        ["run", "--gamma=3"],
        ["compare"],
        ["compare", "moon", "moon"],
        ["compare", "moon", "--seeds", ""],
        ["compare", "moon", "--seeds", "a"],
        ["compare", "moon", "--seeds", "0,0"],
        ["compare", "moon", "--seeds", "0,4-2"],
        ["compare", "moon", "--seeds", "0-99999999999"],
        ["compare", "moon", "--seeds", "9" * 5000],
        ["compare", "moon", "--seeds", str(2**32)],
        ["compare", "moon", "--seeds", "1", "--seed", "1"],
        ["compare", "moon", "--set", "algorithm.mu=1"],
        ["compare", "moon:mu"],
        ["compare", "moon:mu=1,"],
        ["compare", "moon+nothing"],
        ["compare", "scaffold+fedavg"],
        ["run", "--algorithm", "two\nlines"],
        ["run", "--rounds", "9" * 5000],
        ["run", "--set", "train.rounds=" + "9" * 5000],
        ["run", "--set", "train.lr=" + "[" * 3000],
        ["run", "--straggler-work", "0.9-0.1"],
        ["run", "--straggler-work", "half"],
        ["run", "--device", "gpu"],
        ["run", "--device", "cuda:" + "9" * 20],
        ["partition", "--plot", "picture.gif"],
        ["partition", "--plot", "no/such/folder/picture.png"],
        ["partition", "--seed", "x"],
        ["runs", "nowhere"],
    ],
    ids=lambda arguments: " ".join(arguments)[:40],
)
def test_a_command_that_makes_no_sense_is_refused_in_one_line(arguments: list[str], place: Path) -> None:
    refuse(place, *arguments)


@pytest.mark.parametrize(
    "methods",
    [
        ["moon:mu=1", "moon:mu=1.0"],
        ["moon", "moon:temperature=0.5"],
        ["fedavg", "moon", "fedavg+fedavg"],
        ["fedavgm", "fedavgm:server-momentum=7e-1"],
        ["moon:mu=1,temperature=1", "moon:temperature=1,mu=1"],
    ],
    ids=" ".join,
)
def test_methods_that_are_the_same_by_value_are_refused(methods: list[str], place: Path) -> None:
    line = refuse(place, "compare", *methods)
    assert f"{methods[0]} and {methods[-1]} are the same method; give each method once" in line


@pytest.mark.parametrize("command", ["sweep", "tune"])
def test_values_that_are_the_same_number_are_refused(command: str, place: Path) -> None:
    assert "two of these settings are the same" in refuse(place, command, "--mu", "1,1.0")


@pytest.mark.parametrize("value", ["mu=1", "train", "train.lr", ".lr=1", "=", "train=1"])
def test_an_assignment_without_section_name_and_value_is_refused(value: str, place: Path) -> None:
    assert "SECTION.NAME=VALUE" in refuse(place, "run", "--set", value)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('[train]\nlr = "fast"', "train.lr needs a number, got 'fast'"),
        ("[train]\nlr = true", "train.lr needs"),
        ("[train]\nlr = [0.1]", "train.lr needs a number"),
        ("[train]\nlr = 2020-01-01", "train.lr needs a number"),
        ("[train]\nlr = nan", "train.lr needs a finite number"),
        ("[train]\nrounds = 2.5", "train.rounds needs a whole number, got 2.5"),
        ("[train]\nrounds = true", "train.rounds needs"),
        ("[train.rounds]\nmost = 2", "train.rounds needs a whole number"),
        ('[run]\ngamma = "maybe"', "run.gamma needs true or false, got 'maybe'"),
        ("[run]\ngamma = 2.5", "run.gamma needs true or false"),
        ("[algorithm]\nname = 3", "algorithm.name needs a word, got 3"),
        ("[algorithm]\nmu = true", "moon.mu needs a number, got True"),
        ("[algorithm]\nmu = [1]", "moon.mu needs a number, got [1]"),
        ("[algorithm]\nnegatives = 1.5", "moon.negatives needs a whole number, got 1.5"),
        ("[algorithm]\nmu = inf", "moon.mu needs a finite number"),
        ("train = 3", "train stands outside a section"),
        ("lr = 0.1", "lr stands outside a section"),
        ("[train]\nlearning_rate = 0.1", 'no setting "learning_rate" in [train]'),
        ("[trian]\nlr = 0.1", 'no section of settings "trian"; did you mean train?'),
        ("[train]\nlr = 0.1\nlr = 0.2", "is not TOML"),
        ("[train\nlr = 0.1", "is not TOML"),
        ("train: {lr: 0.1}", "is not TOML"),
        ("[train]\nlr = " + "[" * 3000, "is not TOML"),
        ("[train]\nlr = " + "9" * 5000, "is not TOML"),
        ("[train]\nlr = " + "{a=" * 3000, "is not TOML"),
        (
            "[train]\nlr = '" + "x" * 10_000_000 + "'",
            "has 10,000,015 bytes, a TOML file of settings has at most 30,000",
        ),
        ("a." * 14_000 + "b = 1", 'no section of settings "a"'),
        ("[" + ".".join("a" * 5000) + "]", 'no section of settings "a"'),
        ('[train]\n"a\\nb" = 1', 'no setting "a b" in [train]'),
        ('[data]\ndataset = "a\\u0000b"', "no data set"),
        ("[[train]]\nlr = 0.1", "train is a list in settings.toml; write [train] once"),
        ("[run]\nseed = 2020-01-01", "run.seed needs a whole number"),
        ("[train]\nlr = 1e308", "train.lr needs a value <= 1e+38"),
    ],
)
def test_a_config_file_that_is_wrong_is_refused_with_what_is_wrong(text: str, line: str, place: Path) -> None:
    (place / "settings.toml").write_text(text)
    assert line in refuse(place, "run", "--config", "settings.toml")


def test_a_config_file_that_cannot_be_read_is_refused(place: Path) -> None:
    line = refuse(place, "run", "--config", "nowhere.toml")
    assert "cannot read nowhere.toml: No such file or directory; --config needs an existing TOML file" in line
    assert "Is a directory" in refuse(place, "run", "--config", str(place))
    (place / "binary.toml").write_bytes(bytes(range(256)))
    assert "is not TOML" in refuse(place, "run", "--config", "binary.toml")
    with (place / "huge.toml").open("wb") as file:
        file.truncate(2**40)
    assert moonfed("run", "--config", "huge.toml").err.startswith("moonfed: huge.toml has 1,099,511,627,776 bytes")


def test_more_parties_than_rows_are_refused(place: Path) -> None:
    assert "the data has 1415" in refuse(place, "run", "--parties", "1416", "--floor", "1")
    assert "the data has 1415" in refuse(place, "partition", "--parties", "200", "--floor", "10")


def test_a_batch_larger_than_a_party_is_refused_and_the_one_that_is_named_works(place: Path) -> None:
    many = ["run", "--model", "mlp", "--epochs", "1", "--rounds", "1", "--parties", "10", "--out", "run"]
    line = refuse(place, *many, "--batch", "300")
    found = re.search(r"party \d+ has (\d+) rows, fewer than a batch of 300; use --batch (\d+)", line)
    assert found is not None
    assert found[1] == found[2]
    above = refuse(place, *many, "--batch", str(int(found[2]) + 1))
    assert f"use --batch {found[2]} " in above
    assert moonfed(*many, "--batch", found[2]).code == 0


@pytest.mark.parametrize("partition", ["dirichlet", "dirichlet-pure", "quantity", "feature-skew"])
def test_a_floor_that_no_split_holds_ends_the_search(partition: str, place: Path) -> None:
    impossible = ["--partition", partition, "--parties", "20", "--beta", "0.01", "--floor", "60"]
    assert "no split in 1000 draws" in refuse(place, "partition", *impossible)
    assert "needs beta > 0" in refuse(place, "partition", "--partition", partition, "--beta", "0")


def test_a_class_must_find_a_party_that_holds_it(place: Path) -> None:
    few = ["--partition", "shards", "--parties", "4", "--classes-per-party", "2"]
    assert "no class is left out" in refuse(place, "partition", *few)


@pytest.mark.parametrize(
    ("local", "server"),
    [("moon", "scaffold"), ("scaffold", "fedavg"), ("scaffold", "fednova"), ("fedavg", "scaffold-niid")],
)
def test_two_rules_that_do_not_fit_are_refused_by_name(local: str, server: str, place: Path) -> None:
    line = refuse(place, "run", "--algorithm", local, "--server", server)
    assert f"{local}+{server} does not fit" in line
    assert "control" in line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["--algorithm", "moon+"],
            "moon+ needs a server rule, a term or a phase behind every plus (--server), got nothing",
        ),
        (["--algorithm", "fedavg++moon"], "a term or a phase behind every plus (--server), got nothing"),
        (["--algorithm", "fedntd:beta=0.1"], "use --algorithm fedntd and --fedntd.beta 0.1"),
        (["--algorithm", "fedadam:server-lr=0.1,server_tau=1"], "and --server-lr 0.1 --server-tau 1"),
        (["--algorithm", "solo+fedavg"], "its parties share no model, so there is nothing to combine; omit what"),
        (["--algorithm", "fedbn+fedma", "--norm", "batch"], "layers that stay at the parties keep the order"),
        (["--algorithm", "fednova+median"], "fednova+median names two aggregators, fednova and median"),
        (["--algorithm", "fedadam+yogi"], "fedadam+yogi names two server optimisers, fedadam and yogi"),
        (["--algorithm", "fedavg+fednova+median"], "names two aggregators, fednova and median"),
        (["--algorithm", "fedavg+fedntd"], "fedntd is a local rule and fedavg has one; use one of them alone"),
        (["--algorithm", "moon+fedntd"], "write fedntd+moon to add moon's term to it"),
        (["--algorithm", "fedavg+ccvr", "--samples", "0"], "ccvr.samples needs a value >= 1, got 0"),
        (["--algorithm", "fedprox+moon", "--moon-mu", "-1"], "fedprox+moon.moon_mu needs a value >= 0"),
        (["--algorithm", "moon+fednova+adam", "--server-lr", "-1"], "adam.server_lr needs a value > 0"),
        (["--set", "algorithm.server=3"], "algorithm.server needs"),
        (["--set", 'algorithm.server=["a"]'], "algorithm.server needs"),
    ],
)
def test_combinations_that_cannot_be_are_refused_in_one_line(words: list[str], said: str, place: Path) -> None:
    assert said in refuse(place, "run", *words)


@pytest.mark.parametrize("partition", ["dirichlet", "dirichlet-pure", "iid", "quantity", "auto"])
def test_classes_per_party_without_shards_is_refused(partition: str, place: Path) -> None:
    line = refuse(place, "run", "--partition", partition, "--classes-per-party", "11")
    assert "--classes-per-party 11 is for --partition shards, the partition is" in line
    assert "is for --partition shards" in refuse(
        place, "partition", "--partition", partition, "--classes-per-party", "3"
    )


def test_a_setting_of_another_algorithm_is_refused_and_says_whose_it_is(place: Path) -> None:
    line = refuse(place, "run", "--algorithm", "fedavg", "--mu", "1")
    assert "fedavg has no setting mu (fedprox, moon, moon-l2 have it)" in line
    assert "scaffold has no setting server_momentum (fedavgm has it)" in refuse(
        place, "compare", "scaffold:server_momentum=0.9"
    )


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_gpu_that_is_not_there_is_refused(device: str, place: Path) -> None:
    assert "use --device cpu" in refuse(place, "run", *SMALL, "--device", device)
