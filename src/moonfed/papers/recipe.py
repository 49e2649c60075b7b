"""A recipe: the runs behind a table or figure, and the differences it claims."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from moonfed.papers.published import Place, library

Settings = dict[str, dict[str, Any]]
SETS = ("cifar10", "cifar100", "tinyimagenet")
LOWER_IS_BETTER = {"rounds", "first", "loss", "seconds"}
WITHOUT_TRIALS = {"split mean", "split std", "split test"}


@dataclass(frozen=True)
class Cell:
    """The settings of one run except its two seeds; a timed run is executed alone, outside any stack."""

    settings: Settings
    alone: bool = False

    @property
    def dataset(self) -> str:
        """The data set it runs on."""
        return self.settings["data"]["dataset"]

    @property
    def rounds(self) -> int:
        """The round at which it is read."""
        return self.settings["train"]["rounds"]


@dataclass(frozen=True)
class Line:
    """One value of a table: its row and column, the run it is read from, and the measure."""

    row: str
    column: str
    cell: Cell
    measure: str = "accuracy"
    base: Cell | None = None  # FedAvg's run, whose final accuracy is the target of rounds
    printed: Place | None = None  # row and column of the published value, if they differ

    @property
    def place(self) -> Place:
        """Its row and column."""
        return self.row, self.column


@dataclass(frozen=True)
class Contrast:
    """A claimed difference: the first place of each pair minus the second, averaged over the pairs."""

    text: str
    pairs: tuple[tuple[Place, Place], ...]
    level: float | None = None  # claimed to be level: within this distance (our choice); accuracies are fractions


@dataclass(frozen=True)
class Recipe:
    """How a table or figure is reproduced."""

    id: str
    title: str
    lines: tuple[Line, ...]
    contrasts: tuple[Contrast, ...] = ()
    ours: bool = False  # a variant that no document has
    published: str = ""  # the id of the published table, if it is not its own
    reference: str = ""  # the id of a published curve shown for comparison
    note: str = ""

    @property
    def datasets(self) -> list[str]:
        """The data sets that it needs."""
        return list(dict.fromkeys(line.cell.dataset for line in self.lines))

    def only(self, dataset: str) -> "Recipe":
        """Restrict it to what one data set is sufficient for."""
        lines = tuple(line for line in self.lines if line.cell.dataset == dataset)
        kept = {line.place for line in lines}
        claims = tuple(c for c in self.contrasts if all(place in kept for pair in c.pairs for place in pair))
        return Recipe(self.id, self.title, lines, claims, self.ours, self.published, self.reference, self.note)


def cell(
    dataset: str,
    method: str,
    rounds: int | None = None,
    epochs: int | None = None,
    data: dict[str, Any] | None = None,
    cohort: dict[str, Any] | None = None,
    projection: int | None = None,
    alone: bool = False,
    **options: Any,
) -> Cell:
    """Make a cell of the published setting (MOON, 4.1) with some values changed."""
    setting = library().setting
    name, _, server = method.partition("+")
    if name in ("moon", "fedprox") and "mu" not in options:
        options["mu"] = setting[f"best_mu_{name}"][dataset]
    epochs = epochs or setting["local_epochs"]
    if name == "solo":  # one optimiser for 300 epochs; every party, every round
        rounds, cohort = setting["solo_epochs"] // epochs, None
    return Cell(
        {
            "data": {"dataset": dataset, "parties": setting["parties"], "beta": setting["beta"]} | (data or {}),
            "model": {"projection": setting["projection_dim"] if projection is None else projection},
            "algorithm": {"name": name} | ({"server": server} if server else {}) | options,
            "train": {"rounds": rounds or setting["rounds"][dataset], "epochs": epochs},
            "cohort": cohort or {},
        },
        alone,
    )


def contrasts(rows: Iterable[str], other: str, columns: Iterable[str], level: float | None = None) -> list[Contrast]:
    """Claim a difference between each row and another, column by column."""
    word = "level with" if level else "over"
    return [
        Contrast(f"{row} {word} {other}, {column}", (((row, column), (other, column)),), level)
        for column in columns
        for row in rows
    ]


def on_average(text: str, row: str, other: str, columns: Iterable[str]) -> Contrast:
    """Claim a mean difference between two rows over some columns."""
    return Contrast(text, tuple(((row, column), (other, column)) for column in columns))


def make_recipe(id: str, title: str, lines: Sequence[Line], contrasts: Sequence[Contrast] = (), **rest: Any) -> Recipe:
    """Make a recipe."""
    return Recipe(id, title, tuple(lines), tuple(contrasts), **rest)
