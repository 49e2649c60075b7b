"""Parquet files and Hugging Face data sets on disk, both read with pyarrow."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError, unknown
from moonfed.core.files import read_json, short
from moonfed.data.readers import audio as sound
from moonfed.data.readers import images as pictures
from moonfed.data.readers.columns import Cells, Columns
from moonfed.data.readers.csv_table import Table, as_rows
from moonfed.data.readers.folders import Clip
from moonfed.data.readers.limits import Pace, Say, check_room
from moonfed.data.readers.npz import is_missing
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.raw_rows import Bad, Found, left_out

SUFFIXES = (".parquet", ".pq")
TIMES = 12.0  # bytes of memory that a byte of a compressed column takes as cells
_INFO, _SPLITS, _STATE = "dataset_info.json", "dataset_dict.json", "state.json"
_TRAIN, _TEST = "train", ("test", "validation", "valid")


def read_parquet(path: Path, say: Say) -> Table:
    """Read a Parquet file."""
    _needed(path.name)
    check_room(path, TIMES)
    import pyarrow
    import pyarrow.parquet

    try:
        table: Any = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path.name} cannot be read as Parquet: {short(error)}") from None
    return _table(path.name, table, {}, say)


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder is a data set that was saved with save_to_disk."""
    return (folder / _INFO).exists() or (folder / _SPLITS).exists()


def read_hugging_face(
    folder: Path,
    settings: ReaderOptions,
    scheme: dict[str, Any] | None,
    say: Say,
    labelled: bool = True,
    may_lack_party: bool = False,
) -> Found:
    """Read a data set that was saved with save_to_disk; of several splits, train and test."""
    _needed(folder.name)
    rest = (labelled, may_lack_party)
    if not (folder / _SPLITS).exists():
        return _split(folder, folder.name, settings, scheme, say, *rest)
    splits = read_json(folder / _SPLITS).get("splits")
    names = [str(name) for name in splits] if isinstance(splits, list) else []
    first = names[0] if len(names) == 1 else _TRAIN
    if first not in names:
        raise UserError(f"{folder.name} has no split {_TRAIN}; it has {', '.join(names) or 'none'}")
    train = _split(folder / first, f"{folder.name}/{first}", settings, scheme, say, *rest)
    behind = next((name for name in _TEST if name in names and name != first), None) if labelled else None
    others = [name for name in names if name not in (first, behind)]
    train = replace(train, notes=(*train.notes, *left_out(folder.name, "split", others)))
    if behind is None:
        return train
    test = _split(folder / behind, f"{folder.name}/{behind}", settings, train.scheme, say, True, True)
    return replace(train, test=test)


def _split(
    folder: Path,
    name: str,
    settings: ReaderOptions,
    scheme: dict[str, Any] | None,
    say: Say,
    labelled: bool,
    may_lack_party: bool,
) -> Found:
    features = read_json(folder / _INFO).get("features")
    features = features if isinstance(features, dict) else {}
    held = _arrow(folder, name)
    kinds = {column: f.get("_type") for column, f in features.items() if isinstance(f, dict)}
    media = [column for column in held.column_names if kinds.get(column) in ("Image", "Audio")]
    if not media or settings.text is not None:
        return as_rows(_table(name, held, features, say), settings, scheme, labelled, may_lack_party)
    clips, bad = _clips(held, media[0], name, features, settings, labelled, may_lack_party)
    reader = pictures.read_pictures if kinds[media[0]] == "Image" else sound.read_sounds
    return reader(clips, bad, name, settings, scheme, say)


def _arrow(folder: Path, name: str) -> Any:
    import pyarrow

    listed = read_json(folder / _STATE).get("_data_files")
    files = [entry.get("filename") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if not files:
        raise UserError(f"{name} names no data files in {_STATE}; save it again with save_to_disk")
    tables: list[Any] = []
    for file in files:
        path = folder / Path(str(file)).name
        check_room(path, TIMES)
        try:
            with pyarrow.memory_map(str(path)) as source:
                tables.append(pyarrow.ipc.open_stream(source).read_all())
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(f"{name}: {path.name} cannot be read: {short(error)}") from None
    return pyarrow.concat_tables(tables)


def _clips(
    held: Any,
    media: str,
    name: str,
    features: dict[str, Any],
    settings: ReaderOptions,
    labelled: bool,
    may_lack_party: bool,
) -> tuple[list[Clip], list[Bad]]:
    """Take pictures or sounds out of a column, with their labels and parties."""
    said: list[Cells | None] = []
    for wanted, needed in ((settings.label or "label", labelled), (settings.party, labelled and not may_lack_party)):
        if wanted is not None and wanted not in held.column_names and needed:
            raise unknown(f"column of {name}", wanted, held.column_names)
        there = wanted is not None and wanted in held.column_names
        said.append(_cells(held.column(wanted), features.get(wanted)) if there and wanted is not None else None)
    labels, parties = said
    clips: list[Clip] = []
    bad: list[Bad] = []
    for row, value in enumerate(held.column(media).to_pylist()):
        place = f"{name} row {row}"
        source = value.get("bytes") if isinstance(value, dict) else value
        if source is None and isinstance(value, dict) and value.get("path"):
            source = Path(value["path"])
        label, party = (None if cells is None else cells[row] for cells in (labels, parties))
        lacks = [
            what
            for what, cells, cell in (("label", labels, label), ("party", parties, party))
            if labelled and cells and not cell
        ]
        if not isinstance(source, bytes | Path):
            bad.append(Bad(place, f"{media} is empty"))
        elif lacks:
            bad.append(Bad(place, f"{lacks[0]} is empty"))
        else:
            clips.append(Clip(source, place, label, party))
    return clips, bad


def _table(name: str, table: Any, features: dict[str, Any], say: Say) -> Table:
    """Turn columns of numbers, words, truths and dates into cells; others are left out, and noted."""
    import pyarrow

    columns: Columns = {}
    notes: list[str] = []
    pace = Pace(say, name, "columns")
    if len(set(table.column_names)) < len(table.column_names):
        twice = next(column for column in table.column_names if table.column_names.count(column) > 1)
        raise UserError(f'{name} has two columns "{twice}"; give each column a name of its own')
    for k, column in enumerate(table.column_names):
        kind = table.schema.field(column).type
        raw = kind == pyarrow.large_binary() or pyarrow.types.is_fixed_size_binary(kind)
        if raw or pyarrow.types.is_nested(kind) or kind == pyarrow.binary() or column.startswith("__index_level"):
            what = "is an index" if column.startswith("__index_level") else f"holds {kind}"
            notes.append(f"{name}: column {column} {what} and is left out")
            continue
        columns[column] = _cells(table.column(column), features.get(column))
        pace.at(k + 1, table.num_columns)
    return Table(name, columns, list(range(table.num_rows)), "row", (), tuple(notes))


def _cells(column: Any, feature: Any) -> Cells:
    values = column.to_pylist()
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    if isinstance(names, list):
        return [str(names[v]) if isinstance(v, int) and 0 <= v < len(names) else None for v in values]
    return [None if is_missing(v) else _cell(v) for v in values]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else str(value).strip()


def _needed(name: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UserError(f"{name} needs pyarrow: pip install 'moonfed[tables]'") from None
