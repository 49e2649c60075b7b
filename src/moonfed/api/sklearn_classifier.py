"""A classifier in the style of scikit-learn: fit, predict, predict_proba, score."""

from typing import Any, Literal, Self, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from moonfed.api.algorithm_functions import algorithm_of
from moonfed.api.classifier import Classifier
from moonfed.api.fit import AlgorithmLike, EncoderLike, fit
from moonfed.api.keywords import Settings, by_keyword
from moonfed.core.errors import UserError
from moonfed.data.dataset import Dataset
from moonfed.data.partition import Split, partition
from moonfed.data.readers import npz as arrays
from moonfed.data.readers.encoding import Encoding
from moonfed.data.readers.options import NUMBERS
from moonfed.training.data_defaults import table_epochs
from moonfed.training.records import RoundRecord

ROOM = 10  # rows a simulated party should have at least, where there are enough


class MoonClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Trains a network on rows that are split between parties, as moonfed.fit does, on all rows it is given.

    >>> from sklearn.datasets import load_iris
    >>> from moonfed import MoonClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = MoonClassifier(parties=3, rounds=5, lr=0.05, partition="iid").fit(X, y)
    >>> bool(model.score(X, y) > 0.85)
    True

    Without party in fit the rows are split between simulated parties, fewer of them where rows are few; inputs are
    standardised. The network works in 64 bits once it is trained, so that a row's answer does not depend on the rows
    beside it.
    """

    classes_: NDArray[Any]
    n_features_in_: int
    model_: Classifier
    parties_: list[str]
    rows_: list[RoundRecord]

    def __init__(
        self,
        encoder: EncoderLike = None,
        algorithm: AlgorithmLike = "moon",
        parties: int = 10,
        rounds: int = 20,
        epochs: int | None = None,
        batch: int = 16,
        lr: float | None = None,
        momentum: float | None = None,
        weight_decay: float | None = None,
        projection: int = 256,
        partition: str = "dirichlet",
        beta: float = 0.5,
        random_state: Any = 0,
        optimizer: Literal["sgd", "adamw"] = "sgd",
        lr_schedule: Literal["constant", "cosine", "linear"] | None = None,
    ) -> None:
        """Keep the settings; fit checks them. Those that are None follow from the optimiser or the number of rows."""
        self.encoder = encoder
        self.algorithm = algorithm
        self.parties = parties
        self.rounds = rounds
        self.epochs = epochs
        self.batch = batch
        self.lr = lr
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.projection = projection
        self.partition = partition
        self.beta = beta
        self.random_state = random_state
        self.optimizer: Literal["sgd", "adamw"] = optimizer
        self.lr_schedule: Literal["constant", "cosine", "linear"] | None = lr_schedule

    def fit(self, X: Any, y: Any, party: Any = None) -> Self:
        """Train on all rows; party says whose each row is."""
        x, labels = validate_data(self, X, y, dtype="numeric", allow_nd=True, ensure_min_samples=2)
        check_classification_targets(labels)
        self.classes_, numbers = np.unique(labels, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError(f"a classifier needs rows of two classes or more, got one class: {self.classes_[0]}")
        seed = self._seed()
        try:
            if (chosen := algorithm_of(self.algorithm)).personal:
                raise UserError(f"a classifier is one model, {chosen.name} trains one per party; use moonfed.fit")
            names, whose = self._whose(numbers.astype(np.int64), party, seed, np.asarray(x))
            data = _data(np.asarray(x, dtype=np.float64), numbers, whose, names, [str(k) for k in self.classes_])
            found = fit(
                self.encoder,
                data,
                self.algorithm,
                rounds=self.rounds,
                seeds=seed,
                progress=False,
                **self._settings(data, party is None),
            )
        except UserError as error:
            raise ValueError(by_keyword(str(error))) from None
        self.model_ = found.model.double()
        self.model_.classes = self.classes_
        self.parties_, self.rows_ = names, found.rows
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Give the probability of each class for each row."""
        check_is_fitted(self)
        x = validate_data(self, X, dtype="numeric", allow_nd=True, reset=False)
        try:
            return self.model_.predict_proba(np.asarray(x, dtype=np.float64))
        except UserError as error:
            raise ValueError(str(error)) from None

    def predict(self, X: Any) -> NDArray[Any]:
        """Give the likeliest class of each row."""
        found = self.predict_proba(X)
        return self.classes_[found.argmax(1)]

    def _settings(self, data: Dataset, simulated: bool) -> Settings:
        """Collect the settings of fit."""
        epochs = self.epochs
        if epochs is None and simulated and data.inputs.dim() == 2:  # to fit, the split is one that the data has
            counts = (len(data.labels), len(data.party_names), self.batch, data.classes)
            epochs = table_epochs(*counts, self.partition)
        settings: Settings = {
            "batch": self.batch,
            "optimizer": self.optimizer,
            "projection": self.projection,
            "evaluate_every": max(1, self.rounds),
        }
        given: dict[str, Any] = {
            "epochs": epochs,
            "lr": self.lr,
            "lr_schedule": self.lr_schedule,
            "momentum": self.momentum,
            "weight_decay": self.weight_decay,
        }
        settings |= cast(Settings, {name: value for name, value in given.items() if value is not None})
        return settings

    def _seed(self) -> int:
        if isinstance(self.random_state, int | np.integer):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _whose(
        self, labels: NDArray[np.int64], party: Any, seed: int, inputs: NDArray[Any]
    ) -> tuple[list[str], NDArray[np.int64]]:
        """Say whose each row is: as given, or by a split between as many parties as there are rows for."""
        rows = len(labels)
        if party is not None:
            given = np.asarray(party)
            if given.shape != (rows,):
                raise UserError(f"party needs one value for each of the {rows} rows, got the shape {given.shape}")
            names, whose = np.unique(given, return_inverse=True)
            return [str(name) for name in names], whose.astype(np.int64)
        if self.parties < 1:
            raise UserError(f"parties needs a value >= 1, got {self.parties}")
        count = max(1, min(self.parties, rows // ROOM))
        floor = max(1, min(ROOM, rows // (4 * count)))
        split = Split(count, self.beta, min(2, len(self.classes_)), floor, seed, inputs=inputs)
        parts = partition(self.partition, labels, split)
        whose = np.zeros(rows, dtype=np.int64)
        for number, part in enumerate(parts):
            whose[part] = number
        return [str(number) for number in range(count)], whose


def _data(
    x: NDArray[np.float64], labels: NDArray[Any], whose: NDArray[np.int64], names: list[str], classes: list[str]
) -> Dataset:
    """Standardise rows and make a data set of them; they are judged on themselves, since all are for training."""
    details = arrays.fit(x)
    inputs, numbers, party = (
        arrays.encode(x, details),
        torch.from_numpy(labels.astype(np.int64)),
        torch.from_numpy(whose),
    )
    return Dataset(
        "arrays",
        *(inputs, numbers, inputs, numbers),
        len(classes),
        encoder="cnn" if inputs.dim() == 4 and min(inputs.shape[2:]) >= 4 else "mlp",
        class_names=tuple(classes),
        party=party,
        test_party=party,
        party_names=tuple(names),
        encoding=Encoding(
            NUMBERS, None, None, None, tuple(classes), tuple(names), {"shape": list(x.shape[1:])}, details
        ).as_json(),
    )
