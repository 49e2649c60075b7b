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
QUICK = MoonClassifier(parties=2, rounds=2, epochs=6, batch=32, lr=0.05, projection=16, partition="iid")
LONGER = {"rounds": 5, "batch": 16}  # on iris 0.94 to 0.97 in cross-validation, over ten seeds
EXPECTED_TO_FAIL: dict[str, str] = {}  # check: reason
MAY_BE_SKIPPED = {"check_array_api_input"}  # runs only where SCIPY_ARRAY_API is set before SciPy is loaded


def clone(model: MoonClassifier) -> MoonClassifier:
    """The same settings, not fitted."""
    return cloned(model)  # type: ignore[return-value]


@pytest.mark.trains  # one of the checks asks for an accuracy of 0.83
def test_scikit_learns_own_checks_pass() -> None:
    results = check_estimator(QUICK, on_skip=None, on_fail=None, expected_failed_checks=EXPECTED_TO_FAIL)
    assert results is not None
    bad = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    assert not bad
    assert {r["check_name"] for r in results if r["status"] == "skipped"} <= MAY_BE_SKIPPED
    assert len(results) > 40


@pytest.mark.trains
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_it_learns_in_a_pipeline(seed: int) -> None:
    model = clone(QUICK).set_params(**LONGER, random_state=seed)
    assert cross_val_score(make_pipeline(PowerTransformer(), model), X, Y, cv=3).mean() > 0.85


@pytest.mark.trains
def test_a_grid_search_finds_the_learning_rate_that_learns() -> None:
    search = GridSearchCV(clone(QUICK).set_params(**LONGER), {"lr": [0.05, 1e-6]}, cv=2).fit(X, Y)
    assert search.best_params_ == {"lr": 0.05}


@pytest.mark.trains
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_parties_may_be_given(seed: int) -> None:
    whose = np.array(["a", "b", "c"])[np.arange(len(Y)) % 3]
    model = clone(QUICK).set_params(**LONGER, random_state=seed)
    one, two = (clone(model).fit(X, Y, party=party) for party in (whose, None))
    assert one.parties_ == ["a", "b", "c"]
    assert two.parties_ == ["0", "1"]
    assert one.score(X, Y) > 0.85
    with pytest.raises(ValueError, match="party needs one value for each of the 150 rows"):
        clone(QUICK).fit(X, Y, party=whose[:9])


@pytest.mark.trains
def test_it_takes_an_algorithm_an_encoder_and_images() -> None:
    found: Any = load_digits()
    images, labels = found["data"], found["target"]
    pictures = images.reshape(-1, 1, 8, 8)[:600]
    model = MoonClassifier(batch_norm, moon(mu=0.1), parties=4, rounds=5, epochs=3, lr=0.02, partition="iid")
    assert clone(model).get_params()["algorithm"] == moon(mu=0.1)
    assert model.fit(pictures, labels[:600]).score(pictures, labels[:600]) > 0.8
    assert model.n_features_in_ == 1
    with pytest.raises(ValueError, match=r"takes rows of shape \[1, 8, 8\]"):
        model.predict(pictures[:, :, :4])


def test_what_is_wrong_is_a_value_error_as_scikit_learn_wants_it() -> None:
    for changes in ({"rounds": 0}, {"algorithm": "mooon"}, {"encoder": "cnn"}, {"partition": "dirichlet", "beta": -1}):
        with pytest.raises(ValueError, match=r"needs|no algorithm|takes images"):
            clone(QUICK).set_params(**changes).fit(X, Y)


def test_optimizer_and_schedule_are_those_of_fit() -> None:
    changes: list[dict[str, Any]] = [{}, {"optimizer": "adamw"}, {"optimizer": "adamw", "lr_schedule": "constant"}]
    models = [clone(QUICK).set_params(lr=None, **change).fit(X, Y) for change in changes]
    assert len({str(model.rows_[-1]["losses"]) for model in models}) == 3
    with pytest.raises(ValueError, match=r"^momentum is for optimizer sgd"):
        clone(QUICK).set_params(optimizer="adamw", momentum=0.9).fit(X, Y)


def test_a_method_without_a_global_model_is_refused_before_it_trains():
    x, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="a classifier is one model, fedper trains one per party"):
        MoonClassifier(algorithm="fedper", rounds=10_000).fit(x, y)
