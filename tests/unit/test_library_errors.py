"""What Python users read: help, and errors that name keywords."""

import copy
import inspect
import pydoc
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_wine
from torch import nn

import moonfed as library
from moonfed import Callback, compare, export, fit, moon, partition
from moonfed.api.keywords import ARGUMENTS, by_keyword
from moonfed.core.errors import UserError
from moonfed.training.config import SECTIONS, flag_of
from moonfed.training.registry import ALGORITHMS

SHORT: dict[str, Any] = {"parties": 4, "rounds": 2, "epochs": 1, "progress": False}
WINE: Any = load_wine()
X, Y = WINE["data"], WINE["target"]
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
    "a value that is not listed": ({"engine": "x"}, 'no engine "x"; known: auto, sequential, stacked'),
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


def test_what_fit_and_compare_take_by_name_is_what_can_be_suggested() -> None:
    for function in (fit, compare):
        own = {name for name, parameter in inspect.signature(function).parameters.items() if parameter.kind != 4}
        assert own - set(ARGUMENTS) == set()
    assert set(ARGUMENTS) <= {*inspect.signature(fit).parameters, *inspect.signature(compare).parameters}


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
