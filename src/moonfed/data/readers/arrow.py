"""Reads Parquet files and Hugging Face data sets on disk, both with pyarrow."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError, unknown
from moonfed.core.files import read_json, short
from moonfed.data.readers.audio import read_audio
from moonfed.data.readers.columns import Cells, Columns
from moonfed.data.readers.csv_table import Schema, Table, table_rows
from moonfed.data.readers.folders import MediaFile
from moonfed.data.readers.images import read_images
from moonfed.data.readers.limits import ReadProgress, check_file
from moonfed.data.readers.npz import is_missing
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.raw_rows import BadRow, RawRows, ignored_notes

SUFFIXES = (".parquet", ".pq")
MEMORY_FACTOR, JSON_MEMORY_FACTOR = 12.0, 20.0  # bytes of memory per byte of a compressed column, of a JSON file
_INFO, _SPLITS, _STATE = "dataset_info.json", "dataset_dict.json", "state.json"
_TRAIN, _TEST = "train", ("test", "validation", "valid")


def read_parquet(path: Path) -> Table:
    """Read a Parquet file."""
    _require_pyarrow(path.name)
    check_file(path, MEMORY_FACTOR)
    import pyarrow
    import pyarrow.parquet

    try:
        table: Any = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path.name} cannot be read as Parquet: {short(error)}") from None
    return _build_table(path.name, table, {})


def is_hugging_face(folder: Path) -> bool:
    """Whether a folder is a data set written by save_to_disk."""
    return (folder / _INFO).exists() or (folder / _SPLITS).exists()


def read_hugging_face(
    folder: Path, options: ReaderOptions, schema: Schema, labelled: bool = True, may_lack_party: bool = False
) -> RawRows:
    """Read a data set written by save_to_disk; of several splits, train and test are read."""
    _require_pyarrow(folder.name)
    if not (folder / _SPLITS).exists():
        return _read_split(folder, folder.name, options, schema, labelled, may_lack_party)
    splits = _read_json(folder / _SPLITS).get("splits")
    names = [str(name) for name in splits] if isinstance(splits, list) else []
    first = names[0] if len(names) == 1 else _TRAIN
    if first not in names:
        raise UserError(f"{folder.name} has no split {_TRAIN}; it has {', '.join(names) or 'none'}")
    train = _read_split(folder / first, f"{folder.name}/{first}", options, schema, labelled, may_lack_party)
    second = next((name for name in _TEST if name in names and name != first), None) if labelled else None
    others = [name for name in names if name not in (first, second)]
    train = replace(train, notes=(*train.notes, *ignored_notes(folder.name, "split", others)))
    if second is None:
        return train
    test = _read_split(folder / second, f"{folder.name}/{second}", options, train.schema, True, True)
    return replace(train, test=test)


def _read_split(
    folder: Path, name: str, options: ReaderOptions, schema: Schema, labelled: bool, may_lack_party: bool
) -> RawRows:
    features = _read_json(folder / _INFO).get("features")
    features = features if isinstance(features, dict) else {}
    table = _read_arrow(folder, name)
    kinds = {column: f.get("_type") for column, f in features.items() if isinstance(f, dict)}
    media = [column for column in table.column_names if kinds.get(column) in ("Image", "Audio")]
    if not media or options.text is not None:
        return table_rows(_build_table(name, table, features), options, schema, labelled, may_lack_party)
    files, bad = _extract_media(table, media[0], name, features, options, labelled, may_lack_party)
    reader = read_images if kinds[media[0]] == "Image" else read_audio
    return reader(files, bad, name, options, schema)


def _read_json(path: Path) -> dict[str, Any]:
    check_file(path, JSON_MEMORY_FACTOR)
    return read_json(path)


def _read_arrow(folder: Path, name: str) -> Any:
    import pyarrow

    listed = _read_json(folder / _STATE).get("_data_files")
    files = [entry.get("filename") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    if not files:
        raise UserError(f"{name} names no data files in {_STATE}; save it again with save_to_disk")
    tables: list[Any] = []
    for file in files:
        path = folder / Path(str(file)).name
        check_file(path, MEMORY_FACTOR)
        try:
            with pyarrow.memory_map(str(path)) as source:
                tables.append(pyarrow.ipc.open_stream(source).read_all())
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(f"{name}: {path.name} cannot be read: {short(error)}") from None
    return pyarrow.concat_tables(tables)


def _extract_media(
    table: Any,
    media: str,
    name: str,
    features: dict[str, Any],
    options: ReaderOptions,
    labelled: bool,
    may_lack_party: bool,
) -> tuple[list[MediaFile], list[BadRow]]:
    """Take images or audio clips out of a column, with their labels and parties."""
    roles: list[Cells | None] = []
    for column, required in ((options.label or "label", labelled), (options.party, labelled and not may_lack_party)):
        if column is not None and column in table.column_names:
            roles.append(_column_cells(table.column(column), features.get(column)))
            continue
        if column is not None and required:
            raise unknown("column", column, table.column_names, f"in {name}")
        roles.append(None)
    labels, parties = roles
    files: list[MediaFile] = []
    bad: list[BadRow] = []
    for row, value in enumerate(table.column(media).to_pylist()):
        place = f"{name} row {row}"
        source = value.get("bytes") if isinstance(value, dict) else value
        if source is None and isinstance(value, dict) and value.get("path"):
            source = Path(value["path"])
        label, party = (None if cells is None else cells[row] for cells in (labels, parties))
        empty = [
            role
            for role, cells, cell in (("label", labels, label), ("party", parties, party))
            if labelled and cells and not cell
        ]
        if not isinstance(source, bytes | Path):
            bad.append(BadRow(place, f"{media} is empty"))
        elif empty:
            bad.append(BadRow(place, f"{empty[0]} is empty"))
        else:
            files.append(MediaFile(source, place, label, party))
    return files, bad


def _build_table(name: str, table: Any, features: dict[str, Any]) -> Table:
    """Turn columns of numbers, strings, booleans and dates into cells; other columns are ignored, with a message."""
    import pyarrow

    columns: Columns = {}
    notes: list[str] = []
    progress = ReadProgress(name, "columns")
    names = table.column_names
    if len(set(names)) < len(names):
        duplicate = next(column for column in names if names.count(column) > 1)
        raise UserError(f'{name} has two columns "{duplicate}"; rename one of them')
    for k, column in enumerate(names):
        kind = table.schema.field(column).type
        binary = kind in (pyarrow.binary(), pyarrow.large_binary()) or pyarrow.types.is_fixed_size_binary(kind)
        is_index = column.startswith("__index_level")
        if binary or pyarrow.types.is_nested(kind) or is_index:
            what = "is an index" if is_index else f"holds {kind}"
            notes.append(f"{name}: column {column} {what} and is ignored")
            continue
        columns[column] = _column_cells(table.column(column), features.get(column))
        progress.update(k + 1, table.num_columns)
    return Table(name, columns, list(range(table.num_rows)), "row", (), tuple(notes))


def _column_cells(column: Any, feature: Any) -> Cells:
    values = column.to_pylist()
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    if isinstance(names, list):
        return [str(names[v]) if isinstance(v, int) and 0 <= v < len(names) else None for v in values]
    return [None if is_missing(v) else _format_cell(v) for v in values]


def _format_cell(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else str(value).strip()


def _require_pyarrow(name: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UserError(f"{name} needs pyarrow: pip install 'moonfed[tables]'") from None
