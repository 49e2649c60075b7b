"""Tables, texts, arrays and torch data sets: how each is read, and what is learned from training rows only."""

import itertools
import json
import logging
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import moonfed, refuse
from PIL import Image
from user_rows import QUICK, people, write_csv, write_images

from moonfed.core.errors import UserError
from moonfed.data.readers import ReaderOptions, from_torch, read_dataset
from moonfed.data.readers import npz as arrays
from moonfed.data.readers.assemble import sort_names
from moonfed.data.readers.columns import column_kinds, encode, fit
from moonfed.data.readers.vocabulary import tokenize


def test_numbers_are_standardised_and_categories_one_hot_by_training_rows_alone():
    train = {"n": ["1", "3", "", "5"], "c": ["a", "b", "a", "NA"]}
    kinds = column_kinds(train, (), "t.csv")
    assert kinds == {"n": "number", "c": "category"}
    details = fit(train, kinds, "t.csv")
    test = {"n": ["3", "100", "nan"], "c": ["b", "never seen", ""]}
    std = math.sqrt(8 / 3)  # of 1, 3 and 5
    wanted = [[0, 0, 0, 1], [97 / std, 0, 0, 0], [0, 1, 0, 0]]  # number, whether it is missing, a, b
    assert torch.allclose(encode(test, details), torch.tensor(wanted, dtype=torch.float32))


def test_a_column_without_missing_numbers_has_no_indicator_column():
    table = {"n": ["1", "2"], "same": ["7", "7"]}
    details = fit(table, column_kinds(table, (), "t.csv"), "t.csv")
    assert encode(table, details).tolist() == [[-1, 0], [1, 0]]
    assert encode({"n": [""], "same": ["8"]}, details).tolist() == [[0, 1]]


def test_a_numeric_column_is_a_category_on_request():
    table = {"code": ["10", "20", "10"]}
    assert column_kinds(table, (), "t.csv") == {"code": "number"}
    details = fit(table, column_kinds(table, ("code",), "t.csv"), "t.csv")
    assert encode(table, details).tolist() == [[1, 0], [0, 1], [1, 0]]


def test_the_vocabulary_comes_from_training_rows_only_and_texts_have_one_length():
    from moonfed.data.readers import vocabulary as words

    details = words.fit(["the cat and the dog", "The end."], size=3, length=None)
    assert details == {"words": ["the", "and", "cat"], "length": 5}
    assert words.encode(["Cat the bird", "", "a b c d e f g"], details).tolist() == [
        [4, 2, 1, 0, 0],
        [0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1],
    ]
    assert words.vocabulary_size(details) == 4
    assert tokenize("Don't STOP—now_or 2 late, Zoë\u2019s") == ["don't", "stop", "now", "or", "2", "late", "zoë's"]


def test_semicolons_byte_order_marks_and_quoted_newlines_are_read(place: Path):
    text = 'note;n;label\r\n"two\r\nlines";1;a\r\n"a ""quote""";2;b\r\n\r\nplain;3;a\r\nplain;4;b\r\n'
    (place / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    data = read_dataset("t.csv", ReaderOptions(test="t.csv"))
    assert data.encoding is not None
    assert [c["name"] for c in data.encoding["details"]["columns"]] == ["note", "n"]
    assert data.encoding["details"]["columns"][0]["values"] == ['a "quote"', "plain", "two\r\nlines"]
    (place / "t.csv").write_bytes((text + "x;y\r\n").encode())
    line = moonfed("partition", "--data", "t.csv").err
    assert "t.csv line 8 (2 cells, the header has 3)" in line


@pytest.mark.trains
def test_a_text_column_becomes_word_ids_and_trains(place: Path):
    rows: list[list[object]] = [
        [f"{'good fine' if k % 2 else 'bad poor'} thing {k}", "np"[k % 2], "st"[k % 4 // 2]] for k in range(80)
    ]
    write_csv(place / "texts.csv", ["said", "label", "who"], rows)
    data = read_dataset("texts.csv", ReaderOptions(text="said", party="who"))
    assert data.inputs.dtype == torch.int64
    assert int(data.inputs.max()) <= data.words
    assert data.encoder == "text"
    answer = moonfed("run", "--data", "texts.csv", "--text", "said", "--party", "who", "--rounds", "4", "--out", "run")
    assert answer.code == 0, answer.err
    assert json.loads((place / "run" / "evaluation.json").read_text())["accuracy"] == 1.0


def test_arrays_are_pictures_or_standardised_numbers(place: Path):
    rng = np.random.Generator(np.random.PCG64(0))
    y, who = np.arange(40) % 2, np.array(["n", "s"])[np.arange(40) // 20]
    np.savez(
        place / "a.npz", x=rng.normal(5, 3, (40, 4)), y=y, party=who, x_test=rng.normal(5, 3, (6, 4)), y_test=y[:6]
    )
    data = read_dataset("a.npz")
    assert data.party_names == ("n", "s")
    assert len(data.test_labels) == 6
    assert torch.allclose(data.inputs.mean(0), torch.zeros(4), atol=1e-6)
    np.savez(place / "p.npz", x=rng.integers(0, 256, (40, 9, 8, 3), dtype=np.uint8), y=y)
    assert read_dataset("p.npz").inputs.shape[1:] == (3, 9, 8)
    np.savez(place / "s.npz", x=rng.normal(size=(40, 3, 50)), y=y)
    data = read_dataset("s.npz")
    assert data.inputs.shape[1:] == (3, 50)
    assert moonfed("run", "--data", "s.npz", "--parties", "2", "--batch", "4", *QUICK).code == 0
    assert moonfed("run", "--data", "a.npz", *QUICK).code == 0


def test_a_parquet_table_is_read_as_the_csv_is(place: Path):
    import pyarrow.csv
    import pyarrow.parquet

    people(place / "people.csv")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv("people.csv"), "people.parquet")
    settings = ReaderOptions(label="kind", party="site")
    one, other = (read_dataset(name, settings) for name in ("people.csv", "people.parquet"))
    assert one.fingerprint == other.fingerprint


def test_a_hugging_face_folder_is_read_as_save_to_disk_writes_it(place: Path, caplog: pytest.LogCaptureFixture):
    import pyarrow

    def save(folder: Path, columns: dict[str, list[object]], features: dict[str, object]) -> None:
        folder.mkdir(parents=True)
        table = pyarrow.table(columns)
        path = str(folder / "data-00000-of-00001.arrow")
        with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
        (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}))
        (folder / "dataset_info.json").write_text(json.dumps({"features": features}))

    names = {"names": ["neg", "pos"], "_type": "ClassLabel"}
    word = {"dtype": "string", "_type": "Value"}
    for split, rows in (("train", 20), ("test", 4)):
        said = [f"{'good' if k % 2 else 'bad'} {k}" for k in range(rows)]
        columns: dict[str, list[object]] = {"text": [*said], "label": [k % 2 for k in range(rows)]}
        save(place / "texts" / split, columns, {"text": word, "label": names})
    (place / "texts" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test"]}))
    data = read_dataset("texts", ReaderOptions(text="text"))
    assert data.class_names == ("neg", "pos")
    assert (len(data.labels), data.test_labels.tolist()) == (20, [0, 1, 0, 1])
    (place / "texts" / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "test", "validation"]}))
    caplog.set_level(logging.INFO, "moonfed")
    read_dataset("texts", ReaderOptions(text="text"))
    assert caplog.messages[0] == "texts: the split validation is ignored"
    (place / "texts" / "dataset_dict.json").write_text(json.dumps({"splits": ["test", "validation"]}))
    with pytest.raises(UserError, match="texts has no split train; it has test, validation"):
        read_dataset("texts", ReaderOptions(text="text"))
    write_images(place / "shades")
    files = sorted((place / "shades").rglob("*.png"))
    inside: list[object] = [{"bytes": path.read_bytes(), "path": path.name} for path in files]
    save(place / "seen", {"image": inside, "label": [k // 8 for k in range(16)]}, {"image": {"_type": "Image"}})
    assert read_dataset("seen", ReaderOptions(test="seen")).inputs.shape == (16, 1, 9, 12)


def test_any_torch_data_set_is_accepted(place: Path):
    class Squares(torch.utils.data.Dataset):  # type: ignore[type-arg]
        def __len__(self) -> int:
            return 30

        def __getitem__(self, k: int) -> tuple[torch.Tensor, int, str]:
            return torch.full((2,), float(k)), k % 3, "even" if k % 2 == 0 else "odd"

    data = from_torch(Squares(), name="squares")
    assert data.party_names == ("even", "odd")
    assert sorted([*data.inputs[:, 0].tolist(), *data.test_inputs[:, 0].tolist()]) == list(range(30)), "as they are"
    words = from_torch([(torch.tensor([k % 5, 0]), k % 2) for k in range(20)], words=4)
    assert words.inputs.dtype == torch.int64
    assert words.words == 4
    seen = from_torch([(Image.new("RGB", (8, 6)), "ab"[k % 2]) for k in range(20)])
    assert seen.inputs.shape[1:] == (3, 6, 8)
    assert seen.class_names == ("a", "b")


@pytest.mark.parametrize("rows", [25, 26, 30, 33, 38, 42])
def test_a_column_of_one_number_is_nothing_and_another_number_in_it_stays_small(rows: int):
    table = {"same": ["0.1"] * rows}  # whose mean is not always 0.1, and whose deviation not always 0
    details = fit(table, {"same": "number"}, "t.csv")
    assert encode({"same": ["0.1", "0.2"]}, details)[:, 0].tolist() == pytest.approx([0, 0.1], abs=1e-6)
    held = arrays.fit(np.full((rows, 1), 0.1))
    assert arrays.encode(np.array([[0.1], [0.2]]), held)[:, 0].tolist() == pytest.approx([0, 0.1], abs=1e-6)


@pytest.mark.parametrize("kind", ["f8", "i8", "u4"])
def test_numbers_far_from_zero_keep_their_differences(kind: str, place: Path):
    seconds = 1_700_000_000 + np.arange(80).reshape(40, 2)
    np.savez(place / "t.npz", x=seconds.astype(kind), y=np.arange(40) % 2)
    data = read_dataset("t.npz", ReaderOptions(test="t.npz"))
    wanted = (seconds - seconds.mean(0)) / seconds.std(0)
    assert torch.allclose(data.inputs, torch.tensor(wanted, dtype=torch.float32), atol=1e-6)


def test_a_missing_label_is_a_bad_row_wherever_it_comes_from(place: Path):
    import pyarrow
    import pyarrow.parquet

    x, y = np.zeros((8, 1)), [1.0, 0.0, math.nan, 1.0] * 2
    np.savez(place / "t.npz", x=x, y=np.array(y))
    pyarrow.parquet.write_table(pyarrow.table({"x": x[:, 0], "label": y}), "t.parquet")
    assert "t.npz has 2 bad rows of 8: t.npz row 2 (y is empty)" in refuse(place, "partition", "--data", "t.npz")
    assert "t.parquet row 2 (label is empty)" in refuse(place, "partition", "--data", "t.parquet")
    assert read_dataset("t.npz", ReaderOptions(skip_bad_rows=True)).class_names == ("0", "1")


def test_the_order_of_classes_does_not_depend_on_the_order_of_rows():
    assert sort_names(["10", "9", "-1", "9"]) == ("-1", "9", "10")
    for names in itertools.permutations(["1", "nan", "2", "0"]):
        assert sort_names(list(names)) == ("0", "1", "2", "nan")


def test_columns_of_bytes_are_ignored_with_a_message(place: Path, caplog: pytest.LogCaptureFixture):
    import pyarrow
    import pyarrow.parquet

    kinds = (pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary(2))
    held = {f"b{k}": pyarrow.array([b"ab", b"cd"] * 4, kind) for k, kind in enumerate(kinds)}
    pyarrow.parquet.write_table(pyarrow.table({"x": list(range(8)), "label": ["p", "q"] * 4} | held), "t.parquet")
    caplog.set_level(logging.INFO, "moonfed")
    read_dataset("t.parquet")
    ignored = [line.split(" holds ")[0] for line in caplog.messages[:3]]
    assert ignored == [f"t.parquet: column b{k}" for k in range(3)]
    assert "1 number, 2 classes" in caplog.messages[3]
