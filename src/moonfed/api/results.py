"""What came of a run: the model, its accuracy, its history."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from moonfed.api.classifier import Classifier
from moonfed.core.errors import UserError
from moonfed.core.wording import counted
from moonfed.experiments.statistics import Interval, accuracy_interval
from moonfed.report.blocks import Table
from moonfed.report.cell_text import ends_text
from moonfed.report.table_formats import as_html
from moonfed.training.accuracy import accuracy, accuracy_window, final_accuracy
from moonfed.training.config import Config
from moonfed.training.evaluation_rows import judged_on
from moonfed.training.metrics import METRIC_NAMES, Metrics
from moonfed.training.records import RoundRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


@dataclass(frozen=True, repr=False)
class Run:
    """One trial: a method with a seed."""

    method: str
    seed: int
    config: Config
    rows: list[RoundRecord]  # one a round
    evaluation: Mapping[str, Any]  # accuracy by class and party, confusion of classes
    models: Mapping[str, Classifier]  # "global", or by party where each has its own; of ditto both
    folder: Path | None = None

    @property
    def model(self) -> Classifier:
        """The global model, in eval mode."""
        if "global" not in self.models:
            raise UserError(f"{self.method} trains a model for each party; they are in runs[0].models, by party")
        return self.models["global"]

    @property
    def accuracy(self) -> float:
        """Mean accuracy over the last quarter of the evaluated rounds, at most ten; with patience the kept model's.

        It is measured on all test rows, or with validation on the held-out rows; personal models on rows like their
        party's own.
        """
        found = accuracy(self.rows)
        return self.final_accuracy if found is None else found

    @property
    def final_accuracy(self) -> float:
        """Accuracy of the final model: of the last evaluated round, in a graph the mean over the parties' models."""
        found = final_accuracy(self.rows)
        return float(self.evaluation["accuracy"]) if found is None else found

    @property
    def accuracy_by_party(self) -> dict[str, float | None]:
        """The accuracy that each party sees: on its own test rows, or on test rows with the class shares of its own.

        None for a party without test rows. Parties in a graph see the consensus model.
        """
        if "by_party" in self.evaluation:  # the data says whose its rows are
            return {party: figures["accuracy"] for party, figures in self.evaluation["by_party"].items()}
        found = self.evaluation.get("accuracy_by_party", self.evaluation.get("accuracy_at_party"))
        return {str(party): value for party, value in enumerate(found or [])}

    @property
    def metrics(self) -> Metrics:
        """Log loss, Brier score and ECE of the final model, and AUC, sensitivity and specificity for two classes."""
        return {name: self.evaluation[name] for name in METRIC_NAMES if name in self.evaluation}

    def __repr__(self) -> str:
        after = f"on {judged_on(self.config)} after {counted(len(self.rows), 'round')}"
        return f"<{self.method}, seed {self.seed}: accuracy {self.accuracy:.1%} {after}>"

    def _repr_html_(self) -> str:
        """Show a small table in a notebook."""
        return _as_table([self], self.method)


@dataclass(frozen=True, repr=False)
class Result:
    """A method over its seeds; with several, accuracies are means and the model is the first seed's."""

    runs: tuple[Run, ...]

    @property
    def model(self) -> Classifier:
        """The global model as a plain module in eval mode: it takes raw inputs and returns logits."""
        return self.runs[0].model

    def predict(self, x: Any) -> NDArray[Any]:
        """Give the likeliest class of each row."""
        return self.model.predict(x)

    @property
    def accuracy(self) -> float:
        """Mean accuracy over the last quarter of the evaluated rounds, at most ten; mean over the seeds."""
        return statistics.fmean(run.accuracy for run in self.runs)

    @property
    def final_accuracy(self) -> float:
        """Accuracy of the final model; mean over the seeds."""
        return statistics.fmean(run.final_accuracy for run in self.runs)

    @property
    def std(self) -> float:
        """The standard deviation of the accuracy over the seeds; 0 for one."""
        return statistics.stdev(run.accuracy for run in self.runs) if len(self.runs) > 1 else 0.0

    @property
    def interval(self) -> Interval:
        """Mean accuracy with its 95 % interval over the seeds; fewer than three seeds, or equal ones, give no ends."""
        return accuracy_interval([run.accuracy for run in self.runs])

    @property
    def accuracy_by_party(self) -> dict[str, float | None]:
        """The accuracy that each party sees; mean over the seeds, None for a party without test rows."""
        found = [run.accuracy_by_party for run in self.runs]
        known = {party: [one[party] for one in found] for party in found[0]}
        return {party: _mean_of_known(values) for party, values in known.items()}

    @property
    def metrics(self) -> Metrics:
        """Log loss, Brier score and so on of the final model; mean over the seeds."""
        found = [run.metrics for run in self.runs]
        return {name: _mean_of_known([one[name] for one in found]) for name in found[0]}

    @property
    def rows(self) -> list[RoundRecord]:
        """One record per round and trial."""
        return [row for run in self.runs for row in run.rows]

    @property
    def history(self) -> "DataFrame":
        """The rows as a pandas frame, with a column for each part of the loss."""
        return frame(self.rows)

    @property
    def folder(self) -> Path | None:
        """Where the first run was written to, if it was."""
        return self.runs[0].folder

    def plot(self, what: str = "accuracy") -> "Figure":
        """Draw accuracy, test_loss or a part of the loss by round, with a band over the seeds."""
        return drawn({self.runs[0].method: self}, what)

    def __repr__(self) -> str:
        first, several = self.runs[0], len(self.runs) > 1
        seeds = f"{len(self.runs)} seeds" if several else f"seed {first.seed}"
        spread = f" ± {self.std:.1%}" if several else ""
        return f"<{first.method}, {seeds}: accuracy {self.accuracy:.1%}{spread} on {judged_on(first.config)}>"

    def _repr_html_(self) -> str:
        """Show a small table in a notebook, a line per seed."""
        return _as_table(self.runs, repr(self)[1:-1])


@dataclass(frozen=True, repr=False)
class Comparison:
    """Several methods over the same seeds, splits and batches."""

    results: dict[str, Result]

    def __getitem__(self, method: str) -> Result:
        return self.results[method]

    @property
    def rows(self) -> list[RoundRecord]:
        """One record per round and trial."""
        return [row for result in self.results.values() for row in result.rows]

    @property
    def history(self) -> "DataFrame":
        """The rows as a pandas frame."""
        return frame(self.rows)

    def plot(self, what: str = "accuracy") -> "Figure":
        """Draw accuracy, test_loss or a part of the loss by round, a line a method."""
        return drawn(self.results, what)

    def __repr__(self) -> str:
        wide, several = max(map(len, self.results)), len(self._judged) > 1
        lines: list[str] = []
        for name, result in self.results.items():
            first, seeds = result.runs[0], len(result.runs)
            spread = f" ± {result.std:.1%}" if seeds > 1 else ""
            on = f", on {judged_on(first.config)}" if several else ""
            lines.append(f"{name:{wide}}  {result.accuracy:6.1%}{spread}  ({counted(seeds, 'seed')}){on}")
        return "\n".join(lines)

    @property
    def _judged(self) -> set[str]:
        """The kinds of rows that the accuracies are on; those of different kinds are not comparable."""
        return {judged_on(result.runs[0].config) for result in self.results.values()}

    def _repr_html_(self) -> str:
        """Show a small table in a notebook, a line per method."""
        columns = ["method", "accuracy", "standard deviation", "95 % interval", "final accuracy", "seeds"]
        rows = [
            [
                name if len(self._judged) < 2 else f"{name}, on {judged_on(result.runs[0].config)}",
                f"{result.accuracy:.1%}",
                f"{result.std:.1%}" if len(result.runs) > 1 else "",
                ends_text(result.interval, sign="%"),
                f"{result.final_accuracy:.1%}",
                str(len(result.runs)),
            ]
            for name, result in self.results.items()
        ]
        return as_html(Table("comparison", "", columns, rows, note=_note(next(iter(self.results.values())).runs[0])))


def _as_table(runs: Sequence[Run], caption: str) -> str:
    """Render runs as a small HTML table."""
    columns = ["seed", "accuracy", "final accuracy", "rounds"]
    columns += ["folder"] if any(run.folder is not None for run in runs) else []
    rows = [
        [str(run.seed), f"{run.accuracy:.1%}", f"{run.final_accuracy:.1%}", str(len(run.rows)), str(run.folder)]
        for run in runs
    ]
    rows = [row[: len(columns)] for row in rows]
    return as_html(Table("runs", caption, columns, rows, "rrrrl"[: len(columns)], note=_note(runs[0])))


def _note(run: Run) -> str:
    return f"accuracy: {accuracy_window(run.rows)}, on {judged_on(run.config)}"


def frame(rows: list[RoundRecord]) -> "DataFrame":
    """Put rows into a pandas frame; losses get columns of their own."""
    try:
        import pandas
    except ImportError:
        raise UserError(
            "history is a pandas frame, and pandas is not installed: pip install moonfed[pandas]; "
            "rows has the same as a list of dictionaries"
        ) from None
    flat = [{k: v for k, v in row.items() if k != "losses"} | _losses(row) for row in rows]
    return pandas.DataFrame(flat)


def drawn(results: Mapping[str, Result], what: str) -> "Figure":
    """Draw a quantity by round, a line a method."""
    from moonfed.report.figures import Curve, curves

    lines: list[Curve] = []
    for name, result in results.items():
        seeds = [{r["round"]: v for r in run.rows if (v := _value(r, what)) is not None} for run in result.runs]
        if not all(seeds):
            raise UserError(f"no round of {name} has {what}; there are accuracy, test_loss and the parts of the loss")
        lines.append(Curve(name, seeds))
    return curves(lines, what.replace("_", " "), percent=what == "accuracy")


def _value(row: RoundRecord, what: str) -> float | None:
    found = row.get(what, row["losses"].get(what.removeprefix("loss_")))
    return found if isinstance(found, float | int) else None


def _losses(row: RoundRecord) -> dict[str, float]:
    return {f"loss_{name}": value for name, value in row["losses"].items()}


def _mean_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.fmean(known) if known else None
