"""Identifiers of rows to predict: a column of a table or an array that the model need not know."""

from pathlib import Path

import numpy as np

from moonfed.core.errors import UserError, unknown
from moonfed.data.readers import arrow, csv_table
from moonfed.data.readers.npz import as_name

OWN_COLUMNS = ("row", "label", "predicted")  # of predictions.csv


def row_ids(path: Path, column: str, places: list[str]) -> list[str]:
    """Read the identifiers of the rows at some places of a file."""
    suffix = path.suffix.lower()
    if column in OWN_COLUMNS:
        raise UserError(f"predictions have a column {column} of their own; rename the id column in {path.name}")
    if path.is_file() and suffix == ".npz":
        ids = _of_array(path, column)
    elif path.is_file() and suffix in (*csv_table.SUFFIXES, *arrow.SUFFIXES):
        ids = _of_table(path, column)
    else:
        raise UserError(f"the id column {column} needs a CSV, Parquet or .npz file, got {path}; omit it")
    try:
        return [ids[place] for place in places]
    except KeyError:
        raise UserError(f"{path} has changed while it was read; run the command again") from None


def _of_table(path: Path, column: str) -> dict[str, str]:
    table = arrow.read_parquet(path) if path.suffix.lower() in arrow.SUFFIXES else csv_table.read_csv(path)
    if column not in table.columns:
        raise unknown("column", column, table.columns, f"in {path.name}")
    return {table.place(row): cell or "" for row, cell in enumerate(table.columns[column])}


def _of_array(path: Path, column: str) -> dict[str, str]:
    with np.load(path) as file:
        if column not in file.files:
            raise unknown("array", column, file.files, f"in {path.name}")
        values = np.asarray(file[column])
    if values.ndim != 1:
        raise UserError(f"{path.name} {column} needs one id for each row, got the shape {values.shape}")
    return {
        f"{path.name} row {row}": as_name(value, f"{path.name} {column}") for row, value in enumerate(values.tolist())
    }
