"""What Python users read: help, and errors that name keywords."""

import copy
import inspect
import pydoc
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from torch import nn

import moonfed as library
from moonfed import Callback, compare, export, fedavg, fedprox, fit, load, moon, partition, predict
from moonfed.api.keywords import by_keyword
from moonfed.core.algorithm import Algorithm, Preset
from moonfed.core.errors import UserError
from moonfed.core.rules import LocalRule, setting
from moonfed.training.config import SECTIONS, flag_of
from moonfed.training.registry import ALGORITHMS

SHORT: dict[str, Any] = {"parties": 4, "rounds": 2, "epochs": 1, "progress": False}
WINE: Any = load_wine()
X, Y = WINE["data"], WINE["target"]
FIT: Any = fit  # with keywords that it does not take
COMPARE: Any = compare
PLAIN: Any = vars(pydoc)["plaintext"]


def test_the_help_of_an_algorithm_has_its_paper_and_every_keyword_with_range_and_default() -> None:
    for name in ALGORITHMS:
        make = getattr(library, name.replace("-", "_"))
        page = pydoc.render_doc(make, renderer=PLAIN)
        assert page.splitlines()[2].startswith(f"{make.__name__}{inspect.signature(make)}"), "the signature is whole"
        assert all(f" {keyword}: " in page for keyword in inspect.signature(make).parameters)
        assert max(map(len, page.splitlines()[3:])) <= 120
        assert copy.deepcopy(make) is make
    page = pydoc.render_doc(moon, renderer=PLAIN)
    assert "MOON (Li, He & Song 2021)" in page
    assert "mu: weight of the contrastive term; >= 0; default 1.0" in page


FLAG = re.compile(r"(?<![\w-])--[a-z]")
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a value out of range": ({"lr": -1}, "lr needs a value > 0.0, got -1"),
    "another kind of value": ({"lr": "x"}, "lr needs a number, got 'x'"),
    "a value that is not listed": ({"engine": "x"}, 'no engine "x"; known: auto, ray, sequential, stacked'),
    "a seed out of range": ({"seeds": -1}, "seeds needs a value >= 0, got -1"),
    "a setting of the algorithm": ({"mu": 2}, "mu is a setting of the algorithm; use algorithm=moonfed.moon.mu=2."),
    "the flag's word for the encoder": ({"model": "cnn"}, "no setting model; use encoder='cnn'"),
    "a setting of own data": ({"label": "x"}, "label is about your own data; name it with data PATH"),
    "too large a batch": ({"batch": 5000}, r"party \d+ has .*; use batch \d+ or smaller, or floor 5000"),
    "too many classes": ({"partition": "shards", "classes_per_party": 50}, "shards needs classes_per_party from 1 to"),
    "no path": ({"out": 5}, "out is the path of a run folder, got 5"),
    "no callback": ({"callbacks": [3]}, "a callback is a function of a round's record, or a Callback object, got 3"),
    "a callback's class": ({"callbacks": [Callback]}, "a callback is a function of a round's record, or a Callback"),
}


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("round", "rounds"), ("seed_", "seeds"), ("epoch", "epochs"), ("party_", "party"), ("learning", None)],
)
def test_an_unknown_keyword_gets_the_suggestion_that_fits(typed: str, meant: str | None) -> None:
    given: dict[str, Any] = {typed: 3}
    with pytest.raises(UserError) as caught:
        fit("mlp", **SHORT | given)
    hint = f"did you mean {meant}? " if meant else ""
    assert str(caught.value).startswith(f'no setting "{typed}"; {hint}known: algorithm, ')


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: FIT(algorithms=["moon"]), r'no setting "algorithms"; did you mean algorithm\? known: algorithm, b'),
        (lambda: COMPARE(["moon"], algorithm="moon"), r'no setting "algorithm"; did you mean algorithms\? known: alg'),
        (
            lambda: FIT(algorithm=fedprox(), mu=2),
            r"mu is a setting of the algorithm; use algorithm=moonfed.fedprox\(mu",
        ),
        (lambda: FIT(algorithm="moon:mu=3", mu=2), r"mu is a setting .* use algorithm=moonfed.moon\(mu=2\)$"),
        (
            lambda: FIT(algorithm=fedavg, mu=2),
            r"fedavg: no setting mu \(fedprox, moon, moon-l2 have it\); use algorithm=",
        ),
        (
            lambda: FIT(server="median"),
            r"server is a setting of the algorithm; use algorithm=moonfed.moon\(server='median'\)",
        ),
        (
            lambda: COMPARE(["fedavg", "fedprox"], mu=2),
            r"mu is .*; give it to one of them, \[moonfed.fedprox\(mu=2\), ...\]",
        ),
        (lambda: COMPARE(["moon"], name="x"), "no setting name; use algorithms='x'"),
        (lambda: partition(Y, kind="foo"), 'no kind "foo"; known: dirichlet, dirichlet-pure, feature-skew, iid'),
        (lambda: partition(Y, seed=-1), "seed needs a value >= 0, got -1"),
        (lambda: partition(Y, beta=-1), r"dirichlet needs beta > 0, got -1.0; use kind iid for an even split"),
        (
            lambda: FIT("mlp", "digit"),
            r'no data set "digit" and no such file or folder; did you mean digits\? known: cifar10',
        ),
        (lambda: FIT("mlp", "digits.csv"), "no file or folder digits.csv; needed: an existing path"),
    ],
)
def test_errors_speak_the_words_of_the_function_that_was_called(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(UserError) as caught:
        call()
    assert re.match(said, str(caught.value)), caught.value
    assert not FLAG.search(str(caught.value))


def test_load_and_predict_speak_of_their_model(tmp_path: Path) -> None:
    fit("mlp", out=tmp_path / "run", **SHORT)
    rows: Any = str(tmp_path / "rows.csv")
    for call in (
        lambda: load(tmp_path / "run", model="a.py:A"),
        lambda: predict(tmp_path / "run", rows, model="a.py:A"),
    ):
        with pytest.raises(UserError, match=r"was run with the encoder mlp of this package; omit model$"):
            call()


def test_a_setting_of_the_users_own_algorithm_is_set_where_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass(frozen=True)
    class Mine(LocalRule):
        strength: float = setting(1.0, "strength of nothing")

    monkeypatch.setitem(ALGORITHMS, "mine-own", Preset("mine-own", Mine))
    with pytest.raises(UserError, match=r"^mine-own: no setting mu \(fedprox, moon, moon-l2 have it\); use algorithm"):
        FIT("mlp", algorithm=Algorithm("mine-own", Mine()), **SHORT | {"mu": 2})
    with pytest.raises(UserError, match="strength is a setting of the algorithm; set it where mine-own is made"):
        FIT("mlp", algorithm=Algorithm("mine-own", Mine()), **SHORT | {"strength": 2})


@pytest.mark.parametrize("case", REFUSED)
def test_errors_name_keywords_and_no_flags(case: str) -> None:
    given, said = REFUSED[case]
    with pytest.raises(UserError) as caught:
        fit("mlp", **SHORT | given)
    assert re.match(said, str(caught.value))
    assert not FLAG.search(str(caught.value))


def test_short_names_get_suggestions_too() -> None:
    with pytest.raises(UserError, match=r'^no setting "nu" of moon; did you mean mu\? known: mu, negatives'):
        moon(nu=3)  # pyright: ignore[reportCallIssue]


def test_a_classifier_needs_parties() -> None:
    with pytest.raises(ValueError, match=r"^parties needs a value >= 1, got 0"):
        library.MoonClassifier(parties=0).fit(X, Y)


def test_every_flag_has_a_keyword() -> None:
    for section, model in SECTIONS.items():
        for name in model.model_fields:
            for flag in flag_of(section, name).split("/"):
                assert by_keyword(f"use {flag} 3 or smaller").startswith("use ")
                assert not FLAG.search(by_keyword(f"use {flag} 3 or smaller"))
    assert by_keyword("get it with --from ARCHIVE") == "get it with --from ARCHIVE", "a flag of another command stays"


@pytest.mark.parametrize("algorithms", ["moon", moon, 5])
def test_compare_needs_a_list(algorithms: Any) -> None:
    with pytest.raises(UserError, match="compare needs a list of algorithms"):
        compare(algorithms, **SHORT)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: partition(Y, parties=0), "parties needs a value >= 1, got 0"),
        (lambda: partition(Y, parties=2.5), "parties needs a whole number"),  # type: ignore[arg-type]
        (lambda: partition(np.eye(3)[Y]), r"one label for each row, got an array of shape \(178, 3\)"),
        (lambda: fit("mlp", (X, Y), seeds="0-2", **SHORT), "seeds needs different whole numbers"),  # type: ignore[arg-type]
        (lambda: fit("mlp", (X, Y), seeds=0.5, **SHORT), "seeds needs different whole numbers"),  # type: ignore[arg-type]
        (lambda: fit("mlp", (X, Y), callbacks=print, **SHORT), "callbacks is a list"),  # type: ignore[arg-type]
        (lambda: export(nn.Linear(2, 2), "x.pt2"), "export takes result.model or what load gives, got Linear"),  # type: ignore[arg-type]
        (lambda: fit("mlp", (X, Y), **SHORT).predict("new.csv"), "the model takes numbers, rows of shape"),
        (lambda: fit("mlp", (X, Y), **SHORT).predict(X.astype(object)), "the model takes numbers, rows of shape"),
    ],
)
def test_a_call_that_makes_no_sense_is_refused_in_one_line(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as refused:
        call()
    assert "\n" not in str(refused.value)


def test_callbacks_may_come_from_a_generator() -> None:
    heard: list[int] = []
    callbacks: Any = (callback for callback in [lambda record: heard.append(record["round"])])
    fit("mlp", "digits", parties=3, rounds=1, epochs=1, callbacks=callbacks, progress=False)
    assert heard == [1]


def test_a_server_that_is_no_name_is_refused():
    with pytest.raises(UserError, match="server takes names of rules, for example"):
        fedavg(server=3)  # type: ignore[call-overload]
