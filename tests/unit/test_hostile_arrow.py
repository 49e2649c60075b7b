"""Parquet files and Hugging Face folders that are damaged or say what they are not: one line, no crash."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from arrow_files import save_hugging_face
from commands import moonfed, refuse

from moonfed.data.readers import limits

ROWS = 20
LABEL, NUMBERS = ["a", "b"] * (ROWS // 2), list(range(ROWS))
IMAGE = {"n": {"_type": "Image"}}


def text(content: bytes, offset: int | None = None, kind: Any = None) -> Any:
    """An array of strings of one byte each; one offset may point elsewhere."""
    offsets = np.arange(ROWS + 1, dtype=np.int32)
    if offset is not None:
        offsets[ROWS // 2] = offset
    buffers = [None, pyarrow.py_buffer(offsets.tobytes()), pyarrow.py_buffer(content)]
    return pyarrow.Array.from_buffers(kind or pyarrow.string(), ROWS, buffers)


def table(column: Any, label: Any = LABEL) -> Any:
    """A table with one column beside the label."""
    return pyarrow.table({"n": column, "label": label})


def constant(value: Any, kind: Any) -> Any:
    """A column of one value."""
    return pyarrow.array([value] * ROWS, kind)


@pytest.mark.parametrize(
    ("held", "line"),
    [
        (table(constant(2**50, pyarrow.timestamp("ms"))), "column n (timestamp[ms]) cannot be read: date value out of"),
        (table(constant(2**62, pyarrow.timestamp("us"))), "column n (timestamp[us]) cannot be read"),
        (table(constant(1, pyarrow.timestamp("us", tz="Mars/Base"))), "column n (timestamp[us, tz=Mars/Base]) cannot"),
        (table(constant(2**31 - 1, pyarrow.date32())), "column n (date32[day]) cannot be read"),
        (table(constant(2**40, pyarrow.time64("us"))), "column n (time64[us]) cannot be read"),
        (table(constant(2**62, pyarrow.duration("s"))), "column n (duration[s]) cannot be read"),
        (table(text(b"\xff" * ROWS)), "column n (string) cannot be read: In chunk 0: Invalid: Invalid UTF8"),
        (table(NUMBERS, text(b"\xff" * ROWS)), "column label (string) cannot be read"),
        (table(constant(10**70, pyarrow.decimal256(76, 0))), "is beyond 1e+38"),
        (table(constant(float("inf"), pyarrow.float64())), 'row 0 (n "inf" is not finite)'),
        (table(NUMBERS, pyarrow.nulls(ROWS)), "row 0 (label is empty)"),
        (table(NUMBERS, [[1]] * ROWS), "t.parquet needs --label COLUMN"),
        (table(NUMBERS, [b"a"] * ROWS), "t.parquet needs --label COLUMN"),
        (table(NUMBERS, ["a"] * ROWS), "t.parquet has only one class"),
        (table(NUMBERS).slice(0, 0), "t.parquet has a header and no rows"),
        (pyarrow.table({}), "t.parquet has a header and no rows"),
        (pyarrow.Table.from_arrays([NUMBERS, NUMBERS], names=["a", "a"]), 't.parquet has two columns "a"'),
        (table([[1, 2]] * ROWS), "t.parquet has no column to learn from"),
    ],
    ids=range(18),
)
def test_a_parquet_file_of_bad_values_is_refused(held: Any, line: str, place: Path):
    pyarrow.parquet.write_table(held, "t.parquet")
    assert line in refuse(place, "run", "--data", "t.parquet")


def test_a_column_that_cannot_be_read_can_be_ignored(place: Path):
    held = table(NUMBERS).append_column("t", constant(2**62, pyarrow.timestamp("us")))
    pyarrow.parquet.write_table(held, "t.parquet")
    assert "leave it out with --ignore t" in refuse(place, "run", "--data", "t.parquet")
    assert moonfed("partition", "--data", "t.parquet", "--ignore", "t", "--parties", "2").code == 0
    save_hugging_face(place / "saved", [held])
    assert "leave it out with --ignore t" in refuse(place, "run", "--data", "saved")
    assert moonfed("partition", "--data", "saved", "--ignore", "t", "--parties", "2").code == 0


def test_a_parquet_file_that_would_not_fit_into_memory_is_refused_by_its_number_of_rows(
    place: Path, monkeypatch: pytest.MonkeyPatch
):
    rows = 2_000_000  # a few kilobytes on the disk
    held = {"n": pyarrow.array(np.zeros(rows, np.int8)), "label": pyarrow.array(np.zeros(rows, np.int8))}
    pyarrow.parquet.write_table(pyarrow.table(held), "t.parquet")
    monkeypatch.setattr(limits, "free_memory", lambda: 100_000_000)
    assert "t.parquet needs 0.2 GB of memory" in refuse(place, "run", "--data", "t.parquet")


def test_a_wide_parquet_file_is_refused_before_it_is_read(place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(limits, "MAX_COLUMNS", 100)
    pyarrow.parquet.write_table(pyarrow.table({f"c{k}": [1] for k in range(101)}), "t.parquet")
    assert "t.parquet has 101 columns, a table has at most 100" in refuse(place, "run", "--data", "t.parquet")


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[:-20],
        lambda content: content[:4],
        lambda content: content[:20] + b"\xff" * 40 + content[60:],
        lambda content: content[:-8] + struct.pack("<I", 2**31 - 1) + content[-4:],
        lambda content: b"\xef\xbb\xbf" + content,
        lambda content: b"PAR1" + bytes(1000) + b"PAR1",
    ],
    ids=["cut", "magic", "pages", "footer", "mark", "nothing"],
)
def test_a_damaged_parquet_file_is_refused(damage: Callable[[bytes], bytes], place: Path):
    pyarrow.parquet.write_table(table(NUMBERS), "t.parquet")
    (place / "t.parquet").write_bytes(damage((place / "t.parquet").read_bytes()))
    assert "t.parquet cannot be read as Parquet" in refuse(place, "run", "--data", "t.parquet")


@pytest.mark.parametrize(
    ("tables", "features", "line"),
    [
        (
            [table(NUMBERS), table(["x"] * ROWS)],
            {},
            "data-1.arrow has other columns than data-0.arrow: n is string inst",
        ),
        ([table(NUMBERS), pyarrow.table({"m": NUMBERS, "label": LABEL})], {}, "n is missing instead of int64"),
        ([table(NUMBERS), pyarrow.table({"label": LABEL, "n": NUMBERS})], {}, "their order differs"),
        ([table([{"bytes": None, "path": 3}] * ROWS)], IMAGE, "row 0 (n is neither bytes nor the path of a file)"),
        ([table([{"bytes": "x", "path": None}] * ROWS)], IMAGE, "row 0 (n is neither bytes nor the path of a file)"),
        ([table(NUMBERS)], IMAGE, "row 0 (n is neither bytes nor the path of a file)"),
        ([table([{"bytes": None, "path": None}] * ROWS)], IMAGE, "row 0 (n is empty)"),
        ([table([{"bytes": None, "path": "a\0b"}] * ROWS)], IMAGE, "row 0 (unreadable: embedded null byte)"),
        ([table([{"bytes": None, "path": "/"}] * ROWS)], IMAGE, "row 0 (unreadable: Is a directory)"),
        ([table([{"bytes": b"ID3", "path": "a"}] * ROWS)], {"n": {"_type": "Audio"}}, "no readable audio clip"),
        ([table(text(b"\xff" * ROWS))], {}, "column n (string) cannot be read"),
        ([table(text(b"x" * ROWS, 2**30))], {}, "column n (string) cannot be read"),
        ([table(text(b"x" * ROWS, -5))], {}, "column n (string) cannot be read"),
        ([table(NUMBERS, text(b"x" * ROWS, 2**30))], {}, "column label (string) cannot be read"),
        ([table(text(b"x" * ROWS, 2**30, pyarrow.binary()))], IMAGE, "column n (binary) cannot be read"),
        ([table(NUMBERS, [0, 7] * 10)], {"label": {"_type": "ClassLabel", "names": ["a", "b"]}}, "(label is empty)"),
    ],
    ids=range(16),
)
def test_a_hugging_face_folder_of_bad_values_is_refused(tables: list[Any], features: Any, line: str, place: Path):
    save_hugging_face(place / "saved", tables, features)
    assert line in refuse(place, "run", "--data", "saved")


@pytest.mark.parametrize(
    ("files", "line"),
    [
        (None, "saved names no data files in state.json"),
        ("data-0.arrow", "saved names no data files"),
        ([{"filename": "data-0.arrow"}] * 2, "saved names a data file twice"),
        ([{"filename": 3}], "saved/3 cannot be read"),
        ([{"filename": ".."}], "Is a directory"),
        ([{"filename": ""}], "Is a directory"),
        ([{"filename": "a\0"}], "cannot be read: embedded null byte"),
        ([{"filename": "../people.csv"}], "saved/people.csv cannot be read"),
    ],
    ids=range(8),
)
def test_a_list_of_data_files_that_is_none_is_refused(files: Any, line: str, place: Path):
    save_hugging_face(place / "saved", [table(NUMBERS)], state={"_data_files": files})
    (place / "people.csv").write_text("n,label\n")
    assert line in refuse(place, "run", "--data", "saved")


@pytest.mark.parametrize("splits", [["../x"], ["a\0b"], [{"a": 1}], ["test"], ["train", "test"], [], 3], ids=range(7))
def test_splits_that_are_not_there_are_refused(splits: Any, place: Path):
    save_hugging_face(place / "saved" / "train", [table(NUMBERS)])
    (place / "saved" / "dataset_dict.json").write_text(json.dumps({"splits": splits}))
    refuse(place, "run", "--data", "saved")


@pytest.mark.parametrize("seed", range(30))
def test_changed_bytes_never_end_the_process(seed: int, place: Path):
    """A refusal or a table: anything but a crash, which would end the tests as well."""
    save_hugging_face(place / "saved", [table(["xy"] * ROWS)])
    pyarrow.parquet.write_table(table(["xy"] * ROWS), "t.parquet")
    draw = random.Random(seed)
    for path in (place / "saved" / "data-0.arrow", place / "t.parquet"):
        content = bytearray(path.read_bytes())
        for _ in range(3):
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
    for name in ("saved", "t.parquet"):
        assert moonfed("partition", "--data", name, "--parties", "2").code in (0, 2)
