"""Tables that are too wide, too long, no text or of mixed schemas: one line, and soon."""

from pathlib import Path

import pytest
from commands import moonfed, refuse
from user_rows import write_images

ROWS = [f"{k % 7},{k % 3},{'ab'[k % 2]}" for k in range(40)]
GOOD = "\n".join(["n,m,label", *ROWS, ""]).encode()


def wide(columns: int, rows: int = 3) -> bytes:
    """A table of so many columns beside the label."""
    header = ",".join(["label", *(f"c{k}" for k in range(columns))])
    return "\n".join([header, *("ab"[k % 2] + ",1" * columns for k in range(rows)), ""]).encode()


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (wide(100_000), "t.csv has 100,001 columns, a table has at most 50,000; save wide numbers as an .npz file"),
        (wide(1_000_000, 1), "t.csv has 1,000,001 columns"),
        (b"," * 1_000_000, "t.csv has 1,000,001 columns"),
        (b"," * 20_000_000, "t.csv line 1 has more than 16,000,000 characters"),
        (GOOD + b"1," * 10_000_000, "t.csv line 42 has more than 16,000,000 characters"),
        (b"x" * 10_000_000, "a cell of more than 131,072 characters"),
        (b'"' + b"a," * 1_000_000, "a cell of more than 131,072 characters, or a quote that is never closed"),
        (GOOD + b"1," + b"9" * 100_000 + b",a\n", 'm "999999999999999999999999999..." is beyond 1e+38'),
        (GOOD + b"1," + b"x" * 10_000_000 + b",a\n", "t.csv line 42 (a cell of more than 131,072 characters"),
        (GOOD + b"1,\0,a\n", "t.csv line 42 (contains a NUL byte"),
        (GOOD.decode().encode("utf-16-le"), "t.csv line 1: contains a NUL byte; is it UTF-16"),
        (GOOD.decode().encode("utf-16"), "t.csv is UTF-16"),
        (bytes(1000), "t.csv line 1: contains a NUL byte"),
        (b"\x1f\x8b" + bytes(100), "t.csv is gzip"),
        (GOOD + b"\xff,1,a\n", "t.csv line 42 is not UTF-8"),
        (b"n,label\n1,\xed\xa0\x80\n2,b\n", "t.csv line 2 is not UTF-8"),
        (b"\xef\xbb\xbf", "t.csv has no rows and no header"),
        (b"\xef\xbb\xbfn,label\n", "t.csv has a header and no rows"),
        (b"   \n  \n", "t.csv line 1 names no column"),
        (b",,\n1,2,3\n", "t.csv line 1 names no column"),
        (b"label\na\nb\na\nb\n", "t.csv has no column to learn from"),
        (b"n,label\n1,\n2,\n", "t.csv line 2 (label is empty)"),
        (b"n,label\n" + b"1,nan\n2,0\n3,1\n" * 4, "t.csv has 4 bad rows of 12: t.csv line 2 (label is nan)"),
        (b"n,label\n1,NaN\n2,NaN\n", "t.csv line 2 (label is NaN)"),
        (b'"n\nx","n\nx",label\n1,2,a\n', 't.csv line 1 has two columns "n x"'),
        (b'n,label\n1,"a\nb"\n2,"a\nb"\n', 't.csv has only one class, "a b"'),
        (b"n,label\n" + b"".join(b"1,%d\n" % k for k in range(20_000)), "the label has 20,000 different values"),
        (wide(5_000).replace(b"label", b"class", 1), "c18, ... (5,001)"),
    ],
    ids=range(28),
)
def test_a_table_that_is_none_is_refused_soon(content: bytes, line: str, place: Path):
    (place / "t.csv").write_bytes(content)
    assert line in refuse(place, "run", "--data", "t.csv")


def test_a_missing_column_of_a_wide_table_is_answered_with_the_nearest_names(place: Path):
    (place / "t.csv").write_bytes(wide(40_000))
    line = refuse(place, "run", "--data", "t.csv", "--label", "d1234")
    assert 'no column "d1234" among the 40,001 of t.csv; did you mean c1234?' in line
    assert len(line) < 400
    assert len(refuse(place, "run", "--data", "t.csv", "--ignore", "?!")) < 400


def test_a_class_whose_name_is_not_utf_8_is_refused(place: Path):
    write_images(place / "shades")
    (place / "shades" / "dark").rename(place / "shades" / "a\udc80b")
    assert "the class or party 'a\\udc80b' has a name that is not UTF-8" in refuse(place, "run", "--data", "shades")


def test_a_file_whose_name_is_not_utf_8_is_refused_since_runs_record_it(place: Path):
    (place / "a\udc80b.csv").write_bytes(GOOD)
    (place / "t.csv").write_bytes(GOOD)
    assert "'a\\udc80b.csv' has a name that is not UTF-8" in refuse(place, "run", "--data", "a\udc80b.csv")
    assert "has a name that is not UTF-8" in refuse(place, "run", "--data", "t.csv", "--test", "a\udc80b.csv")
    write_images(place / "shades")
    (place / "shades" / "dark" / "a\udc80b.png").write_bytes(b"no image")
    assert "dark/a\\udc80b.png (not a readable image)" in refuse(place, "run", "--data", "shades")


@pytest.mark.parametrize(
    ("cells", "warned"),
    [
        ([str(7 * k) for k in range(120)], True),
        ([f"{k}.0" for k in range(120)], True),
        ([str(k // 2) for k in range(120)], False),  # not all different
        ([f"{k}.5" for k in range(120)], False),  # not whole
        ([str(k) for k in range(60)], False),  # few rows
        ([str(k) if k else "" for k in range(120)], False),  # one is missing
    ],
    ids=["numbers", "floats", "repeated", "fractions", "few", "missing"],
)
def test_a_column_of_different_whole_numbers_is_warned_of_as_an_identifier(cells: list[str], warned: bool, place: Path):
    rows = [f"{cell},{k % 3},{'ab'[k % 2]}" for k, cell in enumerate(cells)]
    (place / "t.csv").write_text("\n".join(["patient,n,label", *rows, ""]))
    command = ["partition", "--data", "t.csv", "--parties", "2"]
    answer = moonfed(*command)
    assert answer.code == 0
    said = "column patient is another whole number in each of 120 rows; if it is an identifier, leave it out"
    assert (said in answer.err) == warned
    assert "identifier" not in moonfed(*command, "--ignore", "patient").err
