"""A bad file is refused in one line that names the place and the reason."""

import json
from pathlib import Path

import numpy as np
import pytest
from commands import moonfed, refuse
from PIL import Image
from user_rows import four_clips, people, tone, write_images

OWN = ["--label", "kind", "--party", "site"]
HEAD = "age,colour,weight,kind,site"
GOOD = [f"{20 + k},{'red' if k % 2 else 'blue'},{k % 5},{'xy'[k % 2]},{'ab'[k // 8]}" for k in range(16)]


def table(lines: list[str], at: int | None = None, bad: str = "") -> bytes:
    """A good table; a bad line may be put after so many good ones."""
    kept = list(lines)
    if at is not None:
        kept.insert(at, bad)
    return "\n".join([HEAD, *kept, ""]).encode()


@pytest.mark.parametrize(
    ("bad", "line"),
    [
        ("33,red,1,x", "people.csv line 5 (4 cells, the header has 5)"),
        ("33,red,1,x,a,b", "people.csv line 5 (6 cells, the header has 5)"),
        ("33,red,1,,a", "people.csv line 5 (kind is empty)"),
        ("33,red,1,x,", "people.csv line 5 (site is empty)"),
        ("old,red,1,x,a", 'people.csv line 5 (age "old" is not a number)'),
        ('"1,234",red,1,x,a', 'people.csv line 5 (age "1,234" has a comma, write numbers like 1234.5)'),
        ("inf,red,1,x,a", 'people.csv line 5 (age "inf" is not finite)'),
        ("-1e39,red,1,x,a", 'people.csv line 5 (age "-1e39" is beyond 1e+38)'),
        ("1e999,red,1,x,a", 'people.csv line 5 (age "1e999" is beyond 1e+38)'),
        ("33,red,1,x,alone", 'people.csv line 5 (party "alone" has no other row'),
        ('33,"red" or so,1,x,a', "people.csv line 5 (wrongly quoted"),
        ('33,"red,1,x,a', "people.csv line 5 (a quote is opened and never closed)"),
        (f"33,{'r' * 140_000},1,x,a", "people.csv line 5 (a cell of more than 131,072 characters"),
    ],
)
def test_a_bad_row_is_named_by_its_line_and_skipped_on_request(bad: str, line: str, place: Path):
    (place / "people.csv").write_bytes(table(GOOD, 3, bad))
    refused = refuse(place, "run", "--data", "people.csv", *OWN)
    assert line in refused
    assert "has a bad row of" in refused
    if "never closed" in line:
        return
    quick = ["--rounds", "1", "--epochs", "1", "--batch", "2", "--out", "run"]
    answer = moonfed("run", "--data", "people.csv", *OWN, *quick, "--skip-bad-rows")
    assert answer.code == 0, answer.err
    assert f"skipped 1 of 17 rows: {line}" in answer.err
    skipped = json.loads((place / "run" / "config.json").read_text())["source"]["skipped"]
    assert skipped["count"] == 1
    assert skipped["rows"][0]["place"] == "people.csv line 5"
    predicted = moonfed("predict", "run", "people.csv", "--skip-bad-rows", "--out", "predictions.csv")
    dropped = predicted.out.startswith("16 rows")  # a row without a label can be predicted
    assert (f"skipped 1 of 17 rows: {line}" in predicted.err) == dropped


def test_a_party_may_have_one_row_where_test_rows_are_named_and_none_are_held_out(place: Path):
    (place / "people.csv").write_bytes(table(GOOD, 3, "33,red,1,x,alone"))
    (place / "test.csv").write_bytes(table(GOOD))
    asked = ["run", "--data", "people.csv", *OWN, "--rounds", "1", "--epochs", "1", "--out", "run"]
    assert 'party "alone" has no other row' in refuse(place, *asked)
    answer = moonfed(*asked, "--test", "test.csv")
    assert answer.code == 0, answer.err
    assert json.loads((place / "run" / "config.json").read_text())["parties"] == ["a", "alone", "b"]


def test_many_bad_rows_are_counted_and_the_first_three_named(place: Path):
    (place / "people.csv").write_bytes(table([*GOOD, *["1,2"] * 7]))
    line = refuse(place, "run", "--data", "people.csv", *OWN)
    assert "has 7 bad rows of 23: people.csv line 18 (2 cells, the header has 5); people.csv line 19" in line
    assert "line 20" in line
    assert "line 21" not in line


@pytest.mark.parametrize("cell", ["", "NA", "nan", "?"])
def test_an_empty_number_or_category_is_not_a_bad_row(cell: str, place: Path):
    (place / "people.csv").write_bytes(table(GOOD, 3, f"{cell},{cell},1,x,a"))
    assert moonfed("partition", "--data", "people.csv", *OWN).code == 0


@pytest.mark.parametrize(
    ("content", "flags", "line"),
    [
        (b"", OWN, "people.csv is empty"),
        (b"\n\n", OWN, "people.csv has no rows and no header"),
        (HEAD.encode(), OWN, "people.csv has a header and no rows"),
        (b"\xff\xfea\x00,\x00", OWN, "people.csv is UTF-16"),
        (b"PK\x03\x04", OWN, "people.csv is a zip archive or spreadsheet"),
        (table(GOOD, 2, "1,caf\xe9,2,x,a").replace("\xe9".encode(), b"\xe9"), OWN, "people.csv line 4 is not UTF-8"),
        (b"a,b,a\n1,2,3\n", ["--label", "b"], 'people.csv line 1 has two columns "a"'),
        (table(GOOD), ["--label", "knid"], 'no column "knid" in people.csv; did you mean kind?'),
        (table(GOOD), ["--label", "kind", "--party", "sit"], 'no column "sit" in people.csv; did you mean site?'),
        (table(GOOD), ["--label", "kind", "--text", "color"], 'no column "color" in people.csv; did you mean colour?'),
        (table(GOOD), [*OWN, "--ignore", "agee"], 'no column "agee" in people.csv; did you mean age?'),
        (table(GOOD), [*OWN, "--categories", "agee"], 'no column "agee" in people.csv; did you mean age?'),
        (table(GOOD), [], "people.csv needs --label COLUMN, the column of the class; its columns: age, colour"),
        (table(GOOD), ["--label", "kind", "--party", "kind"], "--label and --party both name the column kind"),
        (table([row.replace("y", "x") for row in GOOD]), OWN, 'people.csv has only one class, "x"'),
        (b"kind,site\nx,a\ny,a\n", OWN, "people.csv has no column to learn from"),
        (table(GOOD), [*OWN, "--ignore", "site"], "column site of people.csv is named twice"),
        (b"n,label\n" + b"".join(b"1,%d.5\n" % k for k in range(150)), [], "the label has 150 different values in 150"),
        (b"n,label\n1,p\n1,q\n1,r\n", [], "people.csv has 3 rows of 3 classes, too few to hold some out"),
        (b"said,label\n!,p\n?,q\n...,p\n:-),q\n", ["--text", "said"], "no training text has a word"),
        (table(GOOD), [*OWN, "--dataset", "digits"], "--dataset digits and --data people.csv name two data sets"),
        (table(GOOD), [*OWN, "--test", "nowhere.csv"], "nowhere.csv; needed: an existing path, looked in /"),
    ],
)  # fmt: skip
def test_a_bad_table_is_refused_in_one_line(content: bytes, flags: list[str], line: str, place: Path):
    (place / "people.csv").write_bytes(content)
    assert line in refuse(place, "run", "--data", "people.csv", *flags)


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        ([*OWN, "--parties", "5"], "people has 2 parties of its own, got --parties 5"),
        ([*OWN, "--batch", "1", "--norm", "batch"], "party a trains on 1 row at a time, batch normalisation needs 2"),
        (["--label", "kind", "--partition", "natural"], "use --data PATH with --party COLUMN"),
    ],
)
def test_settings_that_do_not_fit_the_rows_are_refused_after_reading(flags: list[str], line: str, place: Path):
    (place / "people.csv").write_bytes(table(GOOD))
    answer = moonfed("run", "--data", "people.csv", *flags)
    assert answer.code == 2
    read, refused = answer.err.splitlines()
    assert "training rows" in read
    assert line in refused


def test_a_missing_path_or_unsupported_file_is_refused(place: Path):
    people(place / "people.csv")
    (place / "notes.docx").write_bytes(b"x")
    (place / "empty").mkdir()
    assert "did you mean people.csv?" in refuse(place, "run", "--data", "peple.csv")
    assert "cannot be read: File name too long" in refuse(place, "run", "--data", "x" * 300 + ".csv")
    assert "notes.docx cannot be read; supported are a .csv" in refuse(place, "run", "--data", "notes.docx")
    assert "empty has no class folders of images or audio clips" in refuse(place, "run", "--data", "empty")
    assert "--label is about your own data; name it with --data" in refuse(place, "run", "--label", "kind")
    assert "data.size needs" in refuse(place, "run", "--data", "people.csv", "--size", "big")


def test_a_file_larger_than_memory_is_refused_before_it_is_read(place: Path):
    with (place / "huge.csv").open("wb") as file:
        file.truncate(2**42)
    answer = moonfed("run", "--data", "huge.csv")
    assert answer.code == 2
    assert answer.err.startswith("moonfed: huge.csv has 4,398.0 GB and needs about")


def test_a_column_of_names_is_refused_as_a_category(place: Path):
    rows = [f"person {k},{k},{'xy'[k % 2]}" for k in range(200)]
    (place / "names.csv").write_text("\n".join(["name,n,label", *rows]))
    line = refuse(place, "run", "--data", "names.csv")
    assert "column name has 160 different values in 160 training rows" in line
    assert "--ignore name" in line
    assert moonfed("partition", "--data", "names.csv", "--ignore", "name", "--parties", "2").code == 0


def test_a_label_or_party_that_does_not_occur_in_training_is_named_with_its_place(place: Path):
    (place / "people.csv").write_bytes(table(GOOD))
    (place / "later.csv").write_bytes(table(["1,red,2,z,a", "1,red,2,x,far", "1,red,2,x,a"]))
    own = ["--data", "people.csv", *OWN, "--test", "later.csv"]
    line = refuse(place, "run", *own)
    assert 'later.csv line 2 (label "z" does not occur in training)' in line
    assert 'later.csv line 3 (party "far" does not occur in training)' in line
    answer = moonfed("partition", *own, "--skip-bad-rows")
    assert answer.code == 0
    assert "1 test rows (later.csv)" in answer.err
    (place / "later.csv").write_bytes(b"age,weight,kind\n1,2,x\n")
    assert 'no column "colour" in later.csv' in refuse(place, "run", *own)


def test_an_unreadable_image_is_named(place: Path):
    write_images(place / "shades")
    (place / "shades" / "dark" / "broken.png").write_bytes(b"no image")
    whole = (place / "shades" / "dark" / "0.png").read_bytes()
    (place / "shades" / "dark" / "cut.png").write_bytes(whole[:-20])
    (place / "shades" / "dark" / "notes.txt").write_bytes(b"x")
    (place / "shades" / "dark" / ".DS_Store").write_bytes(b"x")
    (place / "shades" / "none").mkdir()
    own = ["--data", "shades", "--parties", "2", "--floor", "2"]
    line = refuse(place, "run", *own)
    assert "shades has 4 bad rows of 20" in line
    assert "dark/notes.txt (none of .png" in line
    assert "none/ (an empty folder)" in line
    assert "dark/broken.png (not a readable image)" in line
    answer = moonfed("partition", *own, "--skip-bad-rows", "--json")
    assert answer.code == 0
    assert answer.value["rows"] + answer.value["test"] == 16


def test_folders_of_a_wrong_layout_are_refused(place: Path):
    write_images(place / "deep" / "north")
    write_images(place / "one")
    for path in (place / "one" / "dark").iterdir():
        path.rename(place / "one" / "bright" / f"d{path.name}")
    (place / "one" / "dark").rmdir()
    assert 'one has only one class, "bright"' in refuse(place, "run", "--data", "one")
    assert "if the outer folders are parties, use --party folder" in refuse(place, "run", "--data", "deep")
    assert "omit --label kind" in refuse(place, "run", "--data", "one", "--label", "kind")
    assert "use --party folder for PARTY/CLASS/FILE" in refuse(place, "run", "--data", "one", "--party", "site")
    Image.new("L", (4, 4)).save(place / "one" / "loose.png")
    assert "loose.png (is in no class folder)" in refuse(place, "run", "--data", "one")


def test_an_unreadable_audio_clip_is_named(place: Path):
    four_clips(place / "sounds")
    whole = (place / "sounds" / "a" / "0.wav").read_bytes()
    (place / "sounds" / "a" / "broken.wav").write_bytes(b"RIFF")
    (place / "sounds" / "a" / "cut.wav").write_bytes(whole[:-100])
    tone(place / "sounds" / "b" / "silent.wav", 300, seconds=0)
    line = refuse(place, "run", "--data", "sounds")
    assert "sounds has 3 bad rows of 7" in line
    for name in ("a/broken.wav (unreadable", "a/cut.wav (unreadable", "b/silent.wav (unreadable: it has no samples)"):
        assert name in line


@pytest.mark.parametrize(
    ("held", "line"),
    [
        ({"y": np.arange(4)}, 'no array "x" in a.npz'),
        ({"x": np.zeros((4, 2))}, 'no array "y" in a.npz'),
        ({"x": np.zeros((4, 2)), "y": np.arange(3)}, "a.npz y needs one value for each of the 4 rows"),
        ({"x": np.zeros((4, 2)), "y": np.full(4, 0.5)}, "a.npz y needs integers or strings, got 0.5"),
        ({"x": np.zeros(4), "y": np.arange(4)}, "a.npz x needs numbers [row, ...] with two axes or more"),
        ({"x": np.zeros((0, 2)), "y": np.arange(0)}, "a.npz x is empty"),
        ({"x": np.array([["a"]] * 4), "y": np.arange(4)}, "a.npz x needs numbers"),
        ({"x": np.zeros((4, 2, 2, 2), np.uint8), "y": np.arange(4)}, "with 1 or 3 channels first or last"),
        ({"x": np.array([[1.0], [np.nan], [2], [3]]), "y": np.arange(4) % 2}, "a.npz row 1 (x is not finite)"),
        ({"x": np.array([[1.0], [1e39], [2], [3]]), "y": np.arange(4) % 2}, "a.npz row 1 (x is beyond 1e+38)"),
        ({"x": np.zeros((4, 2)), "y": np.zeros(4, int)}, 'a.npz has only one class, "0"'),
        ({"x": np.array([{}, {}], dtype=object), "y": np.arange(2)}, "only plain arrays are supported"),
        (
            {"x": np.zeros((4, 2)), "y": np.arange(4) % 2, "x_test": np.zeros((2, 3)), "y_test": np.arange(2)},
            "a.npz has rows of shape 3, the training rows have 2",
        ),
        (
            {"x": np.zeros((4, 2)), "y": np.arange(4) % 2, "x_test": np.zeros((2, 2)), "y_test": np.array([0, 7])},
            'a.npz test row 1 (label "7" does not occur in training)',
        ),
    ],
)
def test_bad_arrays_are_refused_in_one_line(held: dict[str, np.ndarray], line: str, place: Path):
    np.savez(place / "a.npz", **held)  # type: ignore[arg-type]
    assert line in refuse(place, "run", "--data", "a.npz", "--parties", "1", "--floor", "1")


def test_a_file_that_is_not_npz_or_parquet_is_refused(place: Path):
    for name in ("a.npz", "a.parquet"):
        (place / name).write_bytes(b"something else")
        assert f"{name} cannot be read as" in refuse(place, "run", "--data", name)
