"""Data of one's own: what is read, what is learned from training rows alone, and who is tested on what."""

import csv
import json
import math
import wave
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import bits, moonfed
from PIL import Image

from moonfed.data.own import OwnSettings, apply, from_torch, own_data
from moonfed.data.own.columns import encode, fit, kinds_of
from moonfed.data.own.holdout import hold_out
from moonfed.data.own.sound import resampled, spectrogram
from moonfed.data.own.words import words_of
from moonfed.run.data_settings import OWN

QUICK = ["--rounds", "2", "--epochs", "1"]


def write_csv(path: Path, header: list[str], rows: list[list[object]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


def people(path: Path, rows: int = 60) -> Path:
    """A table of three sites with different mixes of two classes, told apart by their weight."""
    made: list[list[object]] = []
    for k in range(rows):
        site, kind = "abc"[k % 3], "xy"[(k // 3) % 2 if k % 3 else 0]
        made.append([20 + k % 7, ("red", "blue", "")[k % 3], 10 * (kind == "y") + k % 5, kind, site])
    return write_csv(path, ["age", "colour", "weight", "kind", "site"], made)


def test_numbers_are_standardised_and_categories_one_hot_by_training_rows_alone():
    train = {"n": ["1", "3", "", "5"], "c": ["a", "b", "a", "NA"]}
    kinds = kinds_of(train, (), "t.csv")
    assert kinds == {"n": "number", "c": "category"}
    details = fit(train, kinds, "t.csv")
    test = {"n": ["3", "100", "nan"], "c": ["b", "never seen", ""]}
    std = math.sqrt(8 / 3)  # of 1, 3 and 5
    wanted = [[0, 0, 0, 1], [97 / std, 0, 0, 0], [0, 1, 0, 0]]  # number, whether it is missing, a, b
    assert torch.allclose(encode(test, details), torch.tensor(wanted, dtype=torch.float32))


def test_a_column_without_missing_numbers_has_no_column_that_says_so():
    table = {"n": ["1", "2"], "same": ["7", "7"]}
    details = fit(table, kinds_of(table, (), "t.csv"), "t.csv")
    assert encode(table, details).tolist() == [[-1, 0], [1, 0]]
    assert encode({"n": [""], "same": ["8"]}, details).tolist() == [[0, 1]]


def test_a_column_of_numbers_that_are_names_is_a_category_on_request():
    table = {"code": ["10", "20", "10"]}
    assert kinds_of(table, (), "t.csv") == {"code": "number"}
    details = fit(table, kinds_of(table, ("code",), "t.csv"), "t.csv")
    assert encode(table, details).tolist() == [[1, 0], [0, 1], [1, 0]]


def test_words_come_from_training_rows_alone_and_texts_have_one_length():
    from moonfed.data.own import words

    details = words.fit(["the cat and the dog", "The end."], most=3, length=None)
    assert details == {"words": ["the", "and", "cat"], "length": 5}
    assert words.encode(["Cat the bird", "", "a b c d e f g"], details).tolist() == [
        [4, 2, 1, 0, 0],
        [0, 0, 0, 0, 0],
        [1, 1, 1, 1, 1],
    ]
    assert words.count(details) == 4
    assert words_of("Don't STOP—now_or 2 late, Zoë\u2019s") == ["don't", "stop", "now", "or", "2", "late", "zoë's"]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [0.01, 0.2, 0.5, 0.99])
def test_every_party_with_two_rows_keeps_some_and_is_tested_on_some(seed: int, share: float):
    rng = np.random.Generator(np.random.PCG64(seed))
    parties = np.sort(np.concatenate([np.repeat(np.arange(6), 2), rng.integers(0, 6, 200)]))
    labels = rng.integers(0, 3, len(parties))
    train, test = hold_out(labels, parties, share, seed)
    assert sorted([*train, *test]) == list(range(len(labels)))
    assert set(labels[train]) == set(labels)
    for party in range(6):
        mine, held = (parties == party).sum(), (parties[test] == party).sum()
        wanted = min(max(1, round(share * mine)), mine - 1)
        assert max(1, wanted - 3) <= held <= wanted, "three rows, one of each class, are bound to the training"


def test_held_out_rows_are_spread_over_classes_and_the_seed_decides_them():
    labels, parties = np.tile(np.repeat([0, 1, 2], [10, 20, 70]), 2), np.repeat([0, 1], 100)
    _, test = hold_out(labels, parties, 0.2, 0)
    for party in (0, 1):
        assert np.bincount(labels[test[parties[test] == party]]).tolist() == [2, 4, 14]
    assert hold_out(labels, parties, 0.2, 0)[1].tolist() == test.tolist()
    assert hold_out(labels, parties, 0.2, 1)[1].tolist() != test.tolist()


def test_the_only_row_of_a_class_is_trained_on(place: Path):
    labels = np.array([0] * 9 + [1])
    for seed in range(20):
        assert 9 in hold_out(labels, np.zeros(10, dtype=int), 0.5, seed)[0]


def test_a_table_with_a_site_column_is_a_natural_federation(place: Path):
    data = own_data(people(place / "people.csv"), OwnSettings(label="kind", party="site"))
    assert data.class_names == ("x", "y")
    assert data.party_names == ("a", "b", "c")
    assert data.party is not None
    assert data.test_party is not None
    assert torch.bincount(data.party).tolist() == [16, 16, 16]
    assert torch.bincount(data.test_party).tolist() == [4, 4, 4]
    assert data.encoder == "mlp"
    weight = data.inputs[:, 3]  # age, blue, red, weight
    assert abs(float(weight.mean())) < 1e-6
    assert abs(float(weight.std(correction=0)) - 1) < 1e-6


def test_the_run_names_its_parties_and_tests_the_global_model_on_their_own_rows(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    answer = moonfed("run", *own, "--rounds", "3", "--out", "run")
    assert answer.code == 0, answer.err
    assert "party" in answer.out
    assert "people.csv: 48 training rows and 12 test rows (held out)" in answer.err
    told = json.loads((place / "run" / "config.json").read_text())
    assert told["parties"] == ["a", "b", "c"]
    assert told["classes"] == ["x", "y"]
    assert told["config"]["data"]["partition"] == "natural"
    assert told["config"]["data"]["parties"] == 3
    final = json.loads((place / "run" / "evaluation.json").read_text())
    assert [(p["party"], p["rows"], p["test_rows"]) for p in final["parties"]] == [(k, 16, 4) for k in ("a", "b", "c")]
    right = sum(p["accuracy"] * p["test_rows"] for p in final["parties"])
    assert right / 12 == pytest.approx(final["accuracy"])
    assert final["accuracy_at_party"] == [p["accuracy"] for p in final["parties"]]


def test_a_comparison_shows_every_method_at_every_party_and_solo_by_its_own_models(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    answer = moonfed("compare", "fedavg", "solo", "centralised", *own, *QUICK, "--seeds", "0,1")
    assert answer.code == 0, answer.err
    table = answer.out[answer.out.index("test rows ") :]
    assert all(f"\n {party} " in table for party in "abc")
    assert {"fedavg", "solo", "centralised"} <= set(table.split())


def test_a_party_column_may_be_split_anew(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    value = moonfed("partition", *own, "--partition", "iid", "--parties", "4", "--json").value
    assert value["sizes"] == [12] * 4
    assert value["party_names"] is None
    value = moonfed("partition", *own, "--json", "--plot", "map.png").value
    assert value["party_names"] == ["a", "b", "c"]
    assert value["class_counts"] == [[16, 0], [8, 8], [8, 8]]
    assert (place / "map.png").stat().st_size > 1000
    shown = moonfed("partition", *own).out
    assert " a " in shown
    assert "natural" in shown


def test_a_run_on_own_data_goes_on_to_the_same_bits_and_refuses_other_data(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site", "--epochs", "1"]
    assert moonfed("run", *own, "--rounds", "4", "--out", "whole").code == 0
    assert moonfed("run", *own, "--rounds", "2", "--out", "parts").code == 0
    people(place / "people.csv", 63)
    line = moonfed("run", *own, "--rounds", "4", "--out", "parts", "--resume")
    assert line.code == 2
    people(place / "people.csv")
    assert moonfed("run", *own, "--rounds", "4", "--out", "parts", "--resume").code == 0
    assert (
        bits(place / "parts")["tensors"]["final.safetensors"] == bits(place / "whole")["tensors"]["final.safetensors"]
    )
    encoding = [(place / name / "encoding.json").read_bytes() for name in ("whole", "parts")]
    assert encoding[0] == encoding[1]


def test_settings_of_own_data_come_from_files_and_assignments_too(place: Path):
    people(place / "people.csv")
    own = {"path": "people.csv", "label": "kind", "party": "site"}
    lines = [f'{name} = "{value}"' for name, value in own.items()]
    (place / "my.toml").write_text("\n".join(["[data]", *lines, 'ignore = "age, colour"']))
    one = moonfed("partition", "--config", "my.toml", "--json")
    sets = [part for name, value in own.items() for part in ("--set", f"data.{name}={value}")]
    other = moonfed("partition", *sets, "--json")
    assert one.value == other.value
    assert "1 number," in one.err
    assert "2 numbers and 1 category," in other.err


def test_runs_without_own_data_keep_the_identity_they_had():
    from moonfed.run.config import identity, make_config

    assert identity(make_config({})) == "f4dc620c035f2974"
    assert set(OWN) < set(make_config({}).data.model_dump())


def test_a_report_of_own_data_names_the_parties(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site"]
    assert moonfed("run", *own, *QUICK, "--out", "run").code == 0
    answer = moonfed("report", "run", "-o", "page.html", "--tsne", "0")
    assert answer.code == 0, answer.err
    assert "people" in (place / "page.html").read_text()


def test_test_rows_may_be_named(place: Path):
    people(place / "people.csv")
    write_csv(place / "later.csv", ["kind", "weight", "colour", "age"], [["x", 0, "red", 20], ["y", 12, "green", 21]])
    settings = OwnSettings(label="kind", party="site", test="later.csv")
    said: list[str] = []
    data = own_data("people.csv", settings, said.append)
    assert said[0] == "later.csv does not say whose its rows are: there is no accuracy by party"
    assert len(data.labels) == 60
    assert data.test_labels.tolist() == [0, 1]
    assert data.test_party is None
    assert data.test_inputs[1, 1:3].tolist() == [0, 0], "green was never seen"


def test_an_encoding_reads_rows_to_come_as_the_training_rows_were_read(place: Path):
    people(place / "people.csv")
    data = own_data("people.csv", OwnSettings(label="kind", party="site", test="people.csv"))
    assert data.encoding is not None
    kept = json.loads(json.dumps(data.encoding))
    again = apply(kept, "people.csv")
    assert torch.equal(again.inputs, data.inputs)
    assert again.labels is not None
    write_csv(place / "new.csv", ["weight", "age", "colour"], [[1, 2, "red"]])
    assert apply(kept, "new.csv").labels is None
    site = own_data("people.csv", OwnSettings(label="kind", party="site"), encoding=kept)
    mean = data.encoding["details"]["columns"][0]["mean"]
    assert site.encoding is not None
    assert site.encoding["details"]["columns"][0]["mean"] == mean, "a site takes the encoding of all"


def test_semicolons_byte_order_marks_and_quoted_newlines_are_read(place: Path):
    text = 'note;n;label\r\n"two\r\nlines";1;a\r\n"a ""quote""";2;b\r\n\r\nplain;3;a\r\nplain;4;b\r\n'
    (place / "t.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    data = own_data("t.csv", OwnSettings(test="t.csv"))
    assert data.encoding is not None
    assert [c["name"] for c in data.encoding["details"]["columns"]] == ["note", "n"]
    assert data.encoding["details"]["columns"][0]["values"] == ['a "quote"', "plain", "two\r\nlines"]
    (place / "t.csv").write_bytes((text + "x;y\r\n").encode())
    line = moonfed("partition", "--data", "t.csv").err
    assert "t.csv line 8 (2 cells, the header has 3)" in line


def test_a_text_column_becomes_numbers_of_words_and_trains(place: Path):
    rows: list[list[object]] = [
        [f"{'good fine' if k % 2 else 'bad poor'} thing {k}", "np"[k % 2], "st"[k % 4 // 2]] for k in range(80)
    ]
    write_csv(place / "texts.csv", ["said", "label", "who"], rows)
    data = own_data("texts.csv", OwnSettings(text="said", party="who"))
    assert data.inputs.dtype == torch.int64
    assert int(data.inputs.max()) <= data.words
    assert data.encoder == "text"
    answer = moonfed("run", "--data", "texts.csv", "--text", "said", "--party", "who", "--rounds", "4", "--out", "run")
    assert answer.code == 0, answer.err
    assert json.loads((place / "run" / "evaluation.json").read_text())["accuracy"] == 1.0


def pictures(folder: Path, sizes: tuple[tuple[int, int], ...] = ((12, 9),), each: int = 8, mode: str = "L") -> Path:
    """Dark and bright pictures, of these sizes (width, height) in turn."""
    for name, shade in (("dark", 40), ("bright", 200)):
        (folder / name).mkdir(parents=True)
        for k in range(each):
            size = sizes[k % len(sizes)]
            Image.new("L", size, shade + k).convert(mode).save(folder / name / f"{k}.png")
    return folder


def test_a_folder_of_pictures_keeps_its_pixels_where_sizes_agree(place: Path):
    data = own_data(pictures(place / "shades"))
    assert data.inputs.shape[1:] == (1, 9, 12)
    assert data.class_names == ("bright", "dark")
    assert data.encoder == "cnn"
    assert {int(v) for v in data.inputs.unique()} | {int(v) for v in data.test_inputs.unique()} == {
        *range(40, 48),
        *range(200, 208),
    }
    assert data.mean[0] == pytest.approx(data.inputs.double().mean().item())
    assert moonfed("run", "--data", "shades", "--parties", "2", "--floor", "2", "--batch", "2", *QUICK).code == 0


def test_pictures_of_several_sizes_and_colours_are_made_equal_and_it_is_said(place: Path):
    pictures(place / "shades", ((12, 9), (12, 9), (300, 200)))
    Image.new("RGB", (12, 9), (250, 0, 0)).save(place / "shades" / "bright" / "red.jpeg", quality=95)
    Image.new("RGBA", (12, 9), (0, 0, 0, 0)).save(place / "shades" / "bright" / "clear.webp", lossless=True)
    said: list[str] = []
    data = own_data("shades", OwnSettings(test="shades"), said.append)
    assert data.inputs.shape == (18, 3, 9, 12)
    assert any("2 sizes made 9x12" in line for line in said)
    assert any("all are taken as colour" in line for line in said)
    assert data.inputs[0].float().mean() in (200, 255)
    assert (data.inputs[8] == 255).all(), "what is transparent is white"
    assert own_data("shades", OwnSettings(size=(5, 7))).inputs.shape[1:] == (3, 5, 7)


@pytest.mark.parametrize("size", [(1, 1), (3, 20), (4, 4), (70, 5), (64, 31)])
def test_pictures_of_any_size_find_an_encoder_that_takes_them(size: tuple[int, int], place: Path):
    pictures(place / "shades", (size,))
    quick = ["--parties", "2", "--floor", "2", "--batch", "2", "--epochs", "1", "--rounds", "1"]
    answer = moonfed("run", "--data", "shades", *quick)
    assert answer.code == 0, answer.err


def test_folders_of_parties_and_of_train_and_test_are_taken_apart(place: Path):
    for party in ("north", "south"):
        pictures(place / "by-party" / party, each=4)
    data = own_data("by-party", OwnSettings(party="folder"))
    assert data.party_names == ("north", "south")
    pictures(place / "parted" / "train", each=4)
    pictures(place / "parted" / "test", each=2)
    data = own_data("parted")
    assert (len(data.labels), len(data.test_labels)) == (8, 4)


def test_rows_to_be_predicted_may_lie_in_no_class(place: Path):
    data = own_data(pictures(place / "shades"))
    assert data.encoding is not None
    (place / "new").mkdir()
    Image.new("RGB", (30, 30), (9, 9, 9)).save(place / "new" / "one.png")
    found = apply(data.encoding, "new")
    assert found.labels is None
    assert found.inputs.shape == (1, 1, 9, 12)
    assert float(found.inputs[0, 0, 0, 0]) == pytest.approx((9 - data.mean[0]) / data.std[0], abs=1e-5)
    assert torch.equal(apply(data.encoding, "new/one.png").inputs, found.inputs)


def tone(path: Path, pitch: float, seconds: float = 0.3, rate: int = 8000, wide: int = 2, channels: int = 1) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    wave_ = np.sin(2 * np.pi * pitch * np.arange(int(seconds * rate)) / rate)
    top = 2 ** (8 * wide - 1) - 1
    values = np.repeat((wave_ * top * 0.9).astype(np.int64), channels)
    if wide == 1:
        raw = (values + 128).astype(np.uint8).tobytes()
    else:
        raw = b"".join(int(v).to_bytes(wide, "little", signed=True) for v in values)
    with wave.open(str(path), "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(wide)
        file.setframerate(rate)
        file.writeframes(raw)


def test_the_loudest_band_of_a_tone_rises_with_its_pitch():
    time = torch.arange(8000) / 8000
    loudest = [int(spectrogram(torch.sin(2 * math.pi * hz * time), 8000).mean(1).argmax()) for hz in (200, 800, 3000)]
    assert loudest == sorted(set(loudest))
    assert spectrogram(torch.zeros(8000), 8000).shape == (40, 101)


def test_a_tone_brought_to_another_rate_is_the_same_tone():
    high, low = (torch.sin(2 * math.pi * 440 * torch.arange(rate) / rate) for rate in (16000, 8000))
    assert torch.allclose(resampled(high, 16000, 8000), low, atol=1e-3)
    assert torch.allclose(resampled(low, 8000, 16000), high, atol=1e-3)


@pytest.mark.parametrize("wide", [1, 2, 3, 4])
def test_samples_of_every_width_are_the_same_sound(wide: int, place: Path):
    from moonfed.data.own.folder import Clip
    from moonfed.data.own.sound import _samples  # pyright: ignore[reportPrivateUsage]

    tone(place / "a.wav", 440, wide=wide, channels=2)
    wanted = 0.9 * np.sin(2 * np.pi * 440 * np.arange(2400) / 8000)
    assert np.abs(_samples(Clip(place / "a.wav", "a.wav", None, None)) - wanted).max() < 4 / 2 ** (8 * min(wide, 2))


def test_a_folder_of_sounds_by_speaker_trains(place: Path):
    for speaker in ("ann", "bob"):
        for name, pitch in (("low", 200), ("high", 1500)):
            for k in range(6):
                tone(
                    place / "sounds" / speaker / name / f"{k}.wav",
                    pitch + 20 * k,
                    0.2 + 0.01 * k,
                    8000 + 3025 * (k == 5),
                )
    own = ["--data", "sounds", "--party", "folder"]
    answer = moonfed("run", *own, "--rounds", "4", "--epochs", "2", "--batch", "4", "--out", "run")
    assert answer.code == 0, answer.err
    assert "2 sampling rates brought to 8000 Hz" in answer.err
    assert json.loads((place / "run" / "config.json").read_text())["config"]["model"]["model"] == "sound"
    assert "spectrograms of 1x40x" in answer.err


def test_arrays_are_pictures_or_standardised_numbers(place: Path):
    rng = np.random.Generator(np.random.PCG64(0))
    y, who = np.arange(40) % 2, np.array(["n", "s"])[np.arange(40) // 20]
    np.savez(
        place / "a.npz", x=rng.normal(5, 3, (40, 4)), y=y, party=who, x_test=rng.normal(5, 3, (6, 4)), y_test=y[:6]
    )
    data = own_data("a.npz")
    assert data.party_names == ("n", "s")
    assert len(data.test_labels) == 6
    assert torch.allclose(data.inputs.mean(0), torch.zeros(4), atol=1e-6)
    np.savez(place / "p.npz", x=rng.integers(0, 256, (40, 9, 8, 3), dtype=np.uint8), y=y)
    assert own_data("p.npz").inputs.shape[1:] == (3, 9, 8)
    np.savez(place / "s.npz", x=rng.normal(size=(40, 3, 50)), y=y)
    data = own_data("s.npz")
    assert data.inputs.shape[1:] == (3, 50)
    assert moonfed("run", "--data", "s.npz", "--parties", "2", "--batch", "4", *QUICK).code == 0
    assert moonfed("run", "--data", "a.npz", *QUICK).code == 0


def test_a_parquet_table_is_read_as_the_csv_is(place: Path):
    import pyarrow.csv
    import pyarrow.parquet

    people(place / "people.csv")
    pyarrow.parquet.write_table(pyarrow.csv.read_csv("people.csv"), "people.parquet")
    settings = OwnSettings(label="kind", party="site")
    one, other = (own_data(name, settings) for name in ("people.csv", "people.parquet"))
    assert one.fingerprint == other.fingerprint


def test_a_hugging_face_folder_is_read_as_save_to_disk_leaves_it(place: Path):
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
    data = own_data("texts", OwnSettings(text="text"))
    assert data.class_names == ("neg", "pos")
    assert (len(data.labels), data.test_labels.tolist()) == (20, [0, 1, 0, 1])
    pictures(place / "shades")
    files = sorted((place / "shades").rglob("*.png"))
    inside: list[object] = [{"bytes": path.read_bytes(), "path": path.name} for path in files]
    save(place / "seen", {"image": inside, "label": [k // 8 for k in range(16)]}, {"image": {"_type": "Image"}})
    assert own_data("seen", OwnSettings(test="seen")).inputs.shape == (16, 1, 9, 12)


def test_the_default_batch_is_no_larger_than_the_smallest_party_trains_on(place: Path):
    rows: list[list[object]] = [[k, "xy"[k % 2], "b" if k < 6 else "a"] for k in range(40)]
    write_csv(place / "t.csv", ["n", "label", "who"], rows)
    for more, batch in (([], 5), (["--validation", "0.5"], 2)):
        name = f"run{batch}"
        answer = moonfed("run", "--data", "t.csv", "--party", "who", *QUICK, "--out", name, *more)
        assert answer.code == 0, answer.err
        assert json.loads((place / name / "config.json").read_text())["config"]["train"]["batch"] == batch


def test_simulated_parties_of_own_data_can_fill_a_batch(place: Path):
    people(place / "people.csv", 300)
    own = ["--data", "people.csv", "--label", "kind", "--parties", "5", "--beta", "0.1"]
    split = moonfed("partition", *own, "--json").value
    assert min(split["sizes"]) >= 16
    assert moonfed("run", *own, *QUICK, "--out", "run").code == 0
    assert json.loads((place / "run" / "config.json").read_text())["config"]["data"]["floor"] == 16
    assert min(moonfed("partition", *own, "--floor", "3", "--json").value["sizes"]) < 16


def test_a_failure_calls_the_party_by_its_name(place: Path):
    people(place / "people.csv")
    own = ["--data", "people.csv", "--label", "kind", "--party", "site", "--lr", "1e30"]
    answer = moonfed("run", *own)
    assert answer.code == 1
    assert "party a is not finite" in answer.err


def test_any_torch_data_set_is_taken(place: Path):
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
