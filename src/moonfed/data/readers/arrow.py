"""Reads Parquet files and Hugging Face data sets on disk, both with pyarrow."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import read_json, short
from moonfed.data.readers.audio import read_audio
from moonfed.data.readers.columns import Cells, Columns, unknown_column
from moonfed.data.readers.csv_table import Schema, Table, table_rows
from moonfed.data.readers.folders import MediaFile
from moonfed.data.readers.images import read_images
from moonfed.data.readers.limits import ReadProgress, check_columns, check_file, check_memory
from moonfed.data.readers.npz import is_missing
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.raw_rows import BadRow, RawRows, ignored_notes

SUFFIXES = (".parquet", ".pq")
MEMORY_FACTOR, JSON_MEMORY_FACTOR = 12.0, 20.0  # bytes of memory per byte of a compressed column, of a JSON file
CELL_BYTES = 60  # of memory per cell while a table is read
_INFO, _SPLITS, _STATE = "dataset_info.json", "dataset_dict.json", "state.json"
_TRAIN, _TEST = "train", ("test", "validation", "valid")


def read_parquet(path: Path, ignore: Sequence[str] = ()) -> Table:
    """Read a Parquet file; ignored columns are listed and not read."""
    _require_pyarrow(path.name)
    check_file(path, MEMORY_FACTOR)
    import pyarrow
    import pyarrow.parquet

    try:
        facts: Any = pyarrow.parquet.read_metadata(path)
        _check_size(path.name, facts.num_rows, facts.schema.to_arrow_schema().names)
        table: Any = pyarrow.parquet.read_table(path)
    except (OSError, pyarrow.ArrowException) as error:
        raise UserError(f"{path.name} cannot be read as Parquet: {short(error)}") from None
    return _build_table(path.name, table, {}, ignore)


def _check_size(name: str, rows: int, columns: Sequence[str]) -> None:
    """Refuse a table that is too large or has two columns of one name, from what its file says of itself."""
    check_columns(name, len(columns))
    duplicate = next((column for column, count in Counter(columns).items() if count > 1), None)
    if duplicate is not None:
        raise UserError(f'{name} has two columns "{duplicate}"; rename one of them')
    check_memory(name, rows * len(columns) * CELL_BYTES)


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
        cells = _build_table(name, table, features, options.ignore)
        return table_rows(cells, options, schema, labelled, may_lack_party)
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
    if len(set(map(str, files))) < len(files):
        raise UserError(f"{name} names a data file twice in {_STATE}; save it again with save_to_disk")
    tables: list[Any] = []
    for file in files:
        path = folder / Path(str(file)).name
        check_file(path, MEMORY_FACTOR)
        try:
            with pyarrow.memory_map(str(path)) as source:
                tables.append(pyarrow.ipc.open_stream(source).read_all())
        except (OSError, pyarrow.ArrowException) as error:
            raise UserError(f"{name}: {path.name} cannot be read: {short(error)}") from None
        if not tables[-1].schema.equals(tables[0].schema):
            difference = _describe_difference(tables[0], tables[-1])
            raise UserError(f"{name}: {path.name} has other columns than {files[0]}: {difference}")
    table = pyarrow.concat_tables(tables)
    _check_size(name, table.num_rows, table.column_names)
    return table


def _describe_difference(first: Any, other: Any) -> str:
    """Name the first column in which two tables differ."""
    ours, theirs = ({field.name: str(field.type) for field in table.schema} for table in (first, other))
    for column in [*ours, *theirs]:
        if ours.get(column) != theirs.get(column):
            return f"{column} is {theirs.get(column, 'missing')} instead of {ours.get(column, 'missing')}"
    return "their order differs"


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
            roles.append(_column_cells(name, table, column, features.get(column)))
            continue
        if column is not None and required:
            raise unknown_column(column, table.column_names, name)
        roles.append(None)
    labels, parties = roles
    files: list[MediaFile] = []
    bad: list[BadRow] = []
    for row, value in enumerate(_column_values(name, table, media)):
        place = f"{name} row {row}"
        source = value.get("bytes") if isinstance(value, dict) else value
        file = value.get("path") if isinstance(value, dict) else None
        if source is None and isinstance(file, str) and file:
            source = Path(file)
        label, party = (None if cells is None else cells[row] for cells in (labels, parties))
        empty = [
            role
            for role, cells, cell in (("label", labels, label), ("party", parties, party))
            if labelled and cells and not cell
        ]
        if not isinstance(source, bytes | Path):
            missing = source is None and file is None
            bad.append(BadRow(place, f"{media} is {'empty' if missing else 'neither bytes nor the path of a file'}"))
        elif empty:
            bad.append(BadRow(place, f"{empty[0]} is empty"))
        else:
            files.append(MediaFile(source, place, label, party))
    return files, bad


def _build_table(name: str, table: Any, features: dict[str, Any], ignore: Sequence[str]) -> Table:
    """Turn columns of numbers, strings, booleans and dates into cells; other columns are ignored, with a message."""
    import pyarrow

    columns: Columns = {}
    notes: list[str] = []
    progress = ReadProgress(name, "columns")
    for k, (column, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        binary = kind in (pyarrow.binary(), pyarrow.large_binary()) or pyarrow.types.is_fixed_size_binary(kind)
        is_index = column.startswith("__index_level")
        if binary or pyarrow.types.is_nested(kind) or is_index:
            what = "is an index" if is_index else f"holds {kind}"
            notes.append(f"{name}: column {column} {what} and is ignored")
            continue
        columns[column] = [] if column in ignore else _column_cells(name, table, column, features.get(column))
        progress.update(k + 1, table.num_columns)
    return Table(name, columns, list(range(table.num_rows)), "row", (), tuple(notes))


def _column_cells(name: str, table: Any, column: str, feature: Any) -> Cells:
    values = _column_values(name, table, column)
    names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
    if isinstance(names, list):
        return [str(names[v]) if isinstance(v, int) and 0 <= v < len(names) else None for v in values]
    return [None if is_missing(v) else _format_cell(v) for v in values]


def _column_values(name: str, table: Any, column: str) -> list[Any]:
    """Return the values of a column; offsets beyond its end would otherwise end the process."""
    import pyarrow

    cells = table.column(table.schema.get_field_index(column))
    try:
        cells.validate(full=True)
        return cells.to_pylist()
    except (pyarrow.ArrowException, ArithmeticError, ValueError) as error:
        raise UserError(
            f"{name}: column {column} ({cells.type}) cannot be read: {short(error)}; correct it, or leave it out with "
            f"--ignore {column}"
        ) from None


def _format_cell(value: Any) -> str:
    if isinstance(value, bool):
        return json.dumps(value)
    return repr(value) if isinstance(value, float) else str(value).strip()


def _require_pyarrow(name: str) -> None:
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise UserError(f"{name} needs pyarrow: pip install 'moonfed[tables]'") from None
