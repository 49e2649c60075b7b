"""The shared schema: rows of every kind become the same inputs at the coordinator and at every site."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from user_rows import people, tone, write_csv, write_images

from moonfed.core.errors import UserError
from moonfed.data.readers import ReaderOptions, read_dataset
from moonfed.data.readers.encoding import Encoding, read_encoding
from moonfed.data.readers.schema import read_with_encoding, validate_encoding


def made(kind: str, folder: Path) -> tuple[Path, dict[str, Path], ReaderOptions, ReaderOptions]:
    """Rows of one kind: all of them, those of each party alone, and how both are read."""
    folder.mkdir()
    whole, parts = folder / "whole", {name: folder / name for name in ("a", "b")}
    rng = np.random.Generator(np.random.PCG64(0))
    rows: list[list[object]]
    if kind == "text":
        rows = [
            [f"word{k % 7} {'good' if k % 2 else 'bad'} thing{k % 3}", "np"[k % 2], "ab"[k % 4 // 2]] for k in range(40)
        ]
        whole = write_csv(folder / "whole.csv", ["said", "label", "who"], rows)
        for name in parts:
            parts[name] = write_csv(folder / f"{name}.csv", ["said", "label"], [r[:2] for r in rows if r[2] == name])
        return whole, parts, ReaderOptions(text="said", party="who"), ReaderOptions()
    if kind == "parquet":
        import pyarrow.csv
        import pyarrow.parquet

        rows = [[k % 7, ("red", "blue", "")[k % 3], "xy"[k % 5 % 2], "ab"[k % 2]] for k in range(40)]
        whole = write_csv(folder / "whole.csv", ["age", "colour", "kind", "site"], rows)
        for name in parts:
            own = write_csv(folder / f"{name}.csv", ["kind", "colour", "age"], [r[2::-1] for r in rows if r[3] == name])
            parts[name] = own.with_suffix(".parquet")
            pyarrow.parquet.write_table(pyarrow.csv.read_csv(own), parts[name])
        return whole, parts, ReaderOptions(label="kind", party="site"), ReaderOptions(label="kind")
    if kind in ("images", "audio"):
        for name in parts:
            if kind == "images":
                write_images(parts[name], ((10, 9), (12, 8)))
            else:
                for k in range(12):
                    (parts[name] / "xy"[k % 2]).mkdir(parents=True, exist_ok=True)
                    tone(parts[name] / "xy"[k % 2] / f"{k}.wav", 200 + 100 * k, 0.1 + 0.01 * k)
            shutil.copytree(parts[name], whole / name)
        return whole, parts, ReaderOptions(party="folder"), ReaderOptions()
    shape, party = ((6, 5), np.uint8) if kind == "npz images" else ((7,), np.float64), np.repeat(["a", "b"], 20)
    x = (100 * rng.random((40, *shape[0]))).astype(shape[1])
    y = np.arange(40) % 3
    np.savez(folder / "whole.npz", x=x, y=y, party=party)
    for name in parts:
        parts[name] = folder / f"{name}.npz"
        np.savez(parts[name], x=x[party == name], y=y[party == name])
    return folder / "whole.npz", parts, ReaderOptions(party="party"), ReaderOptions()


@pytest.mark.parametrize("kind", ["text", "parquet", "images", "audio", "numbers", "npz images"])
def test_rows_of_every_kind_become_the_same_inputs_at_a_site_as_in_one_place(tmp_path: Path, kind: str):
    whole, parts, settings, own = made(kind, tmp_path / "data")
    data = read_dataset(whole, replace(settings, test=str(whole)))
    assert data.encoding is not None
    assert data.party is not None
    known = validate_encoding(json.loads(json.dumps(data.encoding | {"party": None, "parties": []})))
    for k, path in enumerate(parts.values()):
        site = read_with_encoding(known, path, own)
        assert torch.equal(site.inputs, data.inputs[data.party == k])
        assert torch.equal(site.labels, data.labels[data.party == k])
        assert (site.classes, site.mean, site.std, site.words) == (data.classes, data.mean, data.std, data.words)
        assert len(site.test_labels) == 0


def test_an_encoding_out_of_bounds_or_of_another_form_is_refused(tmp_path: Path):
    whole, _, settings, _ = made("text", tmp_path / "data")
    text = read_dataset(whole, settings).encoding
    table = read_dataset(people(tmp_path / "people.csv"), ReaderOptions(label="kind")).encoding
    whole, _, settings, _ = made("npz images", tmp_path / "more")
    array = read_dataset(whole, settings).encoding
    assert text
    assert table
    assert array
    plain = {"party": None, "parties": []}
    for value in (text, table, array):
        validate_encoding(value | plain)
    number, column = table["details"]["columns"][0], table["details"]["columns"]
    for value in (
        text | plain | {"details": {"words": ["a"], "length": 10**12}},
        text | plain | {"details": {"words": [1], "length": 3}},
        text | plain | {"classes": ["a"]},
        text | plain | {"classes": ["a", "a"]},
        text | plain | {"parties": ["a"]},
        text | plain | {"kind": "pickle"},
        text | plain | {"details": []},
        table | plain | {"details": {"columns": [number | {"std": 0.0}, *column[1:]]}},
        table | plain | {"details": {"columns": [number | {"mean": 10**400}, *column[1:]]}},
        table | plain | {"details": {"columns": column[1:]}},
        array | plain | {"scheme": {"shape": [1, 10**9, 10**9]}},
        array | plain | {"scheme": {"shape": []}},
        array | plain | {"details": {"axis": 7, "mean": [0.0], "std": [1.0]}},
        array | plain | {"details": {"axis": 1, "mean": [float("nan")], "std": [1.0]}},
    ):
        with pytest.raises(UserError, match="the encoding of this run is damaged"):
            validate_encoding(value)


@pytest.mark.parametrize(("former", "kind"), [("pictures", "images"), ("sound", "audio")])
def test_the_kinds_of_an_earlier_version_are_read(former: str, kind: str):
    encoding = Encoding(kind, None, None, None, ("x", "y"), (), {"shape": [1, 2, 2]}, {})
    assert read_encoding(encoding.as_json() | {"kind": former}) == encoding
