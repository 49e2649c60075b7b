"""The scale of a recipe: as published, or a smoke test that only shows that the command works."""

from moonfed.papers.recipe import Cell

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
