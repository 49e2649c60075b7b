"""MoonClassifier is a scikit-learn classifier."""

from typing import Any

import numpy as np
import pytest
from custom_encoders import batch_norm
from sklearn.base import clone as cloned
from sklearn.datasets import load_digits, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PowerTransformer
from sklearn.utils.estimator_checks import check_estimator

from moonfed import MoonClassifier, moon

IRIS: Any = load_iris()
X, Y = IRIS["data"], IRIS["target"]
QUICK = MoonClassifier(parties=2, rounds=2, epochs=6, batch=32, lr=0.1, projection=16)
EXPECTED_TO_FAIL: dict[str, str] = {}  # check: reason
MAY_BE_SKIPPED = {"check_array_api_input"}  # runs only where SCIPY_ARRAY_API is set before SciPy is loaded


def clone(model: MoonClassifier) -> MoonClassifier:
    """The same settings, not fitted."""
    return cloned(model)  # type: ignore[return-value]


def test_scikit_learns_own_checks_pass() -> None:
    results = check_estimator(QUICK, on_skip=None, on_fail=None, expected_failed_checks=EXPECTED_TO_FAIL)
    assert results is not None
    bad = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not bad
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= MAY_BE_SKIPPED
    assert len(results) > 40


def test_it_learns_and_searches_and_stands_in_a_pipeline() -> None:
    longer = clone(QUICK).set_params(rounds=6, batch=8)
    assert cross_val_score(make_pipeline(PowerTransformer(), longer), X, Y, cv=3).mean() > 0.85
    search = GridSearchCV(QUICK, {"lr": [0.1, 1e-6]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"lr": 0.1}


def test_parties_may_be_given() -> None:
    whose = np.array(["a", "b", "c"])[np.arange(len(Y)) % 3]
    one, two = (clone(QUICK).fit(X, Y, party=party) for party in (whose, None))
    assert one.parties_ == ["a", "b", "c"]
    assert two.parties_ == ["0", "1"]
    assert one.score(X, Y) > 0.85
    with pytest.raises(ValueError, match="party needs one value for each of the 150 rows"):
        clone(QUICK).fit(X, Y, party=whose[:9])


def test_it_takes_an_algorithm_an_encoder_and_pictures() -> None:
    found: Any = load_digits()
    images, labels = found["data"], found["target"]
    pictures = images.reshape(-1, 1, 8, 8)[:600]
    model = MoonClassifier(batch_norm, moon(mu=0.1), parties=4, rounds=4, epochs=3, lr=0.05)
    assert clone(model).get_params()["algorithm"] == moon(mu=0.1)
    assert model.fit(pictures, labels[:600]).score(pictures, labels[:600]) > 0.8
    assert model.n_features_in_ == 1
    with pytest.raises(ValueError, match=r"takes rows of shape \[1, 8, 8\]"):
        model.predict(pictures[:, :, :4])


def test_what_is_wrong_is_a_value_error_as_scikit_learn_wants_it() -> None:
    for changes in ({"rounds": 0}, {"algorithm": "mooon"}, {"encoder": "cnn"}, {"beta": -1}):
        with pytest.raises(ValueError, match=r"needs|no algorithm|takes images"):
            clone(QUICK).set_params(**changes).fit(X, Y)
