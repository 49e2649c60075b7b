"""The trials behind recipes: each is run once and identified by its settings, whichever recipe uses it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.data.catalog.image_sets import IMAGE_SETS
from moonfed.engines import pick_device, pick_precision
from moonfed.experiments.execute import execute
from moonfed.papers.recipe import WITHOUT_TRIALS, Cell, Recipe
from moonfed.papers.scale import scaled
from moonfed.storage.checkpoint import Checkpoint
from moonfed.storage.run_files import FAILURE, LOG
from moonfed.storage.run_record import check_rows, has_final_weights, read_rounds
from moonfed.training.callbacks import Callback
from moonfed.training.config import Config, make_config
from moonfed.training.records import RoundRecord
from moonfed.training.registry import full_name
from moonfed.training.setup import set_up

STACKED = ("cnn", "mlp")
Key = tuple[int, int]  # split seed, training seed


@dataclass(frozen=True)
class ReproductionOptions:
    """Options that a command applies to every recipe."""

    out: Path
    scale: str = "full"
    seeds: tuple[int, ...] = (0, 1, 2)
    splits: tuple[int, ...] = (0,)
    run: dict[str, Any] = field(default_factory=dict[str, Any])  # device and the like

    @property
    def keys(self) -> list[Key]:
        """Every pair of split and training seed."""
        return [(split, seed) for split in self.splits for seed in self.seeds]

    def config(self, cell: Cell, key: Key) -> Config:
        """Configuration of one trial of a cell."""
        split, seed = key
        settings = scaled(cell, self.scale).settings
        data = settings["data"] | {"partition_seed": split}
        config = make_config(settings | {"data": data, "run": self.run | {"seed": seed}})
        precision = pick_precision(config.run.precision, pick_device(config.run.device))
        return config.model_copy(update={"run": config.run.model_copy(update={"precision": precision})})

    def folder(self, cell: Cell, key: Key) -> Path:
        """Folder of one trial of a cell, named by its settings and so shared by all recipes."""
        config = self.config(cell, key)
        name = full_name(config.algorithm.name, config.algorithm.server)
        alone = "-alone" if cell.alone else ""
        words = f"{config.data.dataset}-{name}-split{key[0]}-seed{key[1]}{alone}-{config.identity}"
        return self.out / "trials" / words

    def rows(self, cell: Cell, key: Key) -> list[RoundRecord] | None:
        """Read a trial up to the last round of its cell; None if it has not got that far."""
        folder, rounds = self.folder(cell, key), scaled(cell, self.scale).rounds
        if rounds_done(folder) < rounds:
            return None
        rows = read_rounds(folder)[:rounds]
        if len(rows) < rounds:
            raise UserError(f"{folder / LOG} is damaged: it holds {len(rows)} of {rounds} rounds; delete {folder}")
        check_rows(folder, rows)
        return rows


def cells_of(recipes: Iterable[Recipe]) -> list[Cell]:
    """List the cells of recipes that have to be run, including FedAvg's where it sets a target."""
    lines = [line for recipe in recipes for line in recipe.lines if line.measure not in WITHOUT_TRIALS]
    return [cell for line in lines for cell in (line.cell, line.base) if cell is not None]


def required_trials(recipes: Iterable[Recipe], options: ReproductionOptions) -> dict[Path, tuple[Config, bool]]:
    """List every trial of some recipes once, with the largest number of rounds that any of them needs."""
    found: dict[Path, tuple[Config, bool]] = {}
    for cell in cells_of(recipes):
        for key in options.keys:
            folder, config = options.folder(cell, key), options.config(cell, key)
            if folder not in found or found[folder][0].train.rounds < config.train.rounds:
                found[folder] = config, cell.alone
    return found


def stacks(trials: dict[Path, tuple[Config, bool]]) -> list[list[tuple[Config, Path]]]:
    """Group the trials that remain: those of one data set and small network share a stack, the others run alone.

    Large networks are trained one after another anyway, and the states of many would not fit into memory together.
    """
    groups: dict[Any, list[tuple[Config, Path]]] = {}
    for folder, (config, alone) in trials.items():
        if not is_finished(folder, config.train.rounds):
            key = folder if alone or encoder_of(config) not in STACKED else (config.data.dataset, config.model)
            groups.setdefault(key, []).append((config, folder))
    return list(groups.values())


def encoder_of(config: Config) -> str:
    """Encoder of a trial."""
    known = IMAGE_SETS.get(config.data.dataset)
    return known.encoder if config.model.model == "auto" and known is not None else config.model.model


def run_recipes(recipes: Sequence[Recipe], options: ReproductionOptions, callbacks: Sequence[Callback] = ()) -> bool:
    """Run the remaining trials of some recipes; False if stopped before the end."""
    for group in stacks(required_trials(recipes, options)):
        done = execute(*set_up([config for config, _ in group]), [folder for _, folder in group], True, callbacks)
        if not all(outcome.finished or outcome.failure for _, outcome in done):
            return False
    return True


def rounds_done(folder: Path) -> int:
    """Number of rounds that a trial has saved."""
    return next((manifest.round for manifest in Checkpoint(folder).manifests()), 0)


def is_finished(folder: Path, rounds: int) -> bool:
    """Whether a trial needs no more rounds."""
    done = rounds_done(folder)
    return done > rounds or (done == rounds and has_final_weights(folder, rounds))


def has_failed(folder: Path) -> bool:
    """Whether a trial failed."""
    return (folder / FAILURE).exists()
