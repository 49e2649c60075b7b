"""Queries, which are answered by sums over a party's rows, and phases, which change a model after its training.

A phase asks every party a query about the trained model, adds the answers up and makes of them the model that is
released. It never feeds back: training continues from the state as it was.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from moonfed.core.tree import numbers
from moonfed.core.types import Outputs, PartyInfo, Snapshot, State, Tensors

ROUNDING = 1e-6  # relative, of sums in double precision of single-precision values


@dataclass(frozen=True)
class Query:
    """A question about rows whose answer is a sum over them: the engine adds up batches, the server adds up parties."""

    name: ClassVar[str]  # by which a site knows the query; no code travels

    def map(self, out: Outputs, y: Tensor) -> Tensors:
        """Return the sums over a batch's rows; their shapes depend on the network alone."""
        raise NotImplementedError

    def contradiction(self, total: Tensors, info: PartyInfo) -> str | None:
        """Say why sums cannot be a party's, by what is known of it; None if they can."""
        return None


@dataclass(frozen=True)
class ClassSums(Query):
    """The rows of each class and the sum of their projections z, the input of the output layer: class prototypes."""

    name = "class-sums"

    def map(self, out: Outputs, y: Tensor) -> Tensors:
        """Return rows [class] and sum [class, z]."""
        members = one_hot(y, out.logits.shape[1]).double()
        return {"rows": members.sum(0), "sum": members.T @ out.projection.double()}

    def contradiction(self, total: Tensors, info: PartyInfo) -> str | None:
        """Compare the rows of each class; a class without rows has sums of zero."""
        if numbers(total["rows"]) != list(info.class_counts):
            return "its rows by class are not those of its enrolment"
        vacant = total["rows"] == 0
        nonzero = [name for name, tensor in total.items() if bool(tensor[vacant].any())]
        return f"its {nonzero[0]} is not zero for a class without rows" if nonzero else None


@dataclass(frozen=True)
class ClassMoments(ClassSums):
    """The same, and the sum of z z^T of each class, of which the upper triangle is sent."""

    name = "class-moments"

    def map(self, out: Outputs, y: Tensor) -> Tensors:
        """Return square [class, d (d + 1) / 2] as well."""
        z, classes = out.projection.double(), range(out.logits.shape[1])
        of_class = [z[y == k] for k in classes]
        rows, columns = triangle(z.shape[1], z.device)
        return super().map(out, y) | {"square": torch.stack([(part.T @ part)[rows, columns] for part in of_class])}

    def contradiction(self, total: Tensors, info: PartyInfo) -> str | None:
        """Compare sums with sums of squares too: (sum z)^2 <= n sum z^2, so that squares bound everything."""
        rows, columns = triangle(total["sum"].shape[1], total["sum"].device)
        squares = total["square"][:, rows == columns]  # [class, z]
        bound = total["rows"][:, None] * squares * (1 + ROUNDING)
        if bool((squares < 0).any()) or bool((total["sum"] ** 2 > bound).any()):
            return "its sums are larger than its sums of squares allow"
        return super().contradiction(total, info)


def triangle(width: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return the row and the column of every entry of a square matrix's upper triangle."""
    rows, columns = torch.triu_indices(width, width, device=device)
    return rows, columns


@dataclass(frozen=True)
class Phase:
    """What is done to a model after training, from the parties' answers to one query."""

    query: ClassVar[Query]

    def conclude(self, state: State, total: Tensors, rng: np.random.Generator) -> Snapshot:
        """Return the model to release, from the state after training and the sum of the parties' answers."""
        raise NotImplementedError
