"""The scale of a recipe: as published, or a smoke test that only shows that the command works."""

import re
from dataclasses import replace

from moonfed.papers.recipe import SETS, Cell, Line, Recipe

SCALES = ("full", "smoke")
SMOKE_DATA = "digits"
BATCH = 32


def scaled(cell: Cell, scale: str) -> Cell:
    """Return a cell as published, or shrink it to a few parties, rounds and epochs of an mlp on the digits."""
    if scale == "full":
        return cell
    data, model, train = (dict(cell.settings[section]) for section in ("data", "model", "train"))
    algorithm = dict(cell.settings["algorithm"])
    data |= {"dataset": SMOKE_DATA, "parties": int(data["parties"]).bit_length(), "floor": BATCH}
    model["model"] = "mlp"
    epochs = (int(train["epochs"]).bit_length() + 1) // 2
    train |= {"rounds": max(2, train["rounds"] // 100), "epochs": epochs, "batch": BATCH}
    if "negatives" in algorithm:
        algorithm["negatives"] = int(algorithm["negatives"]).bit_length()
    shrunk = cell.settings | {"data": data, "model": model, "train": train, "algorithm": algorithm}
    return Cell(shrunk, cell.alone)


def on_smoke_data(recipe: Recipe) -> Recipe:
    """Restrict a recipe to its first data set and name that digits: no number stands under another data set's name."""
    part = recipe.only(recipe.datasets[0])

    def line(one: Line) -> Line:
        return replace(one, row=_named(one.row), column=_named(one.column), printed=one.printed or one.place)

    claims = tuple(
        replace(
            claim,
            text=_named(claim.text),
            pairs=tuple(((_named(a), _named(b)), (_named(c), _named(d))) for (a, b), (c, d) in claim.pairs),
        )
        for claim in part.contrasts
    )
    return replace(part, title=_named(part.title), lines=tuple(map(line, part.lines)), contrasts=claims)


def _named(text: str) -> str:
    return re.sub(rf"\b({'|'.join(SETS)})\b", SMOKE_DATA, text)
