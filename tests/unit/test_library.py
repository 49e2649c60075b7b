"""The package as a library: what goes in, what comes out, and that it is the same run as the command line's."""

import doctest
import importlib
import inspect
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from commands import bits, moonfed
from custom_encoders import Frozen
from sklearn.datasets import load_wine
from torch import nn

import moonfed as library
from moonfed import Callback, api, compare, fedavg, fedprox, fit, moon, partition, solo
from moonfed.api.keywords import Settings
from moonfed.core.algorithm import Algorithm
from moonfed.core.errors import RunFailed, UserError
from moonfed.core.rules import Aggregator, LocalRule
from moonfed.data.catalog.digits import digits
from moonfed.training.config import SECTIONS
from moonfed.training.registry import ALGORITHMS

SHORT: dict[str, Any] = {"parties": 4, "rounds": 2, "epochs": 1, "progress": False}
WINE: Any = load_wine()
X, Y = WINE["data"], WINE["target"]
SITES = np.array(["north", "south", "west"])[np.arange(len(Y)) % 3]


def changed(**changes: Any) -> dict[str, Any]:
    return SHORT | changes


def same(a: nn.Module, b: nn.Module) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


TRAINS = {"moonfed.api.fit", "moonfed.api.sklearn_classifier"}  # examples that say how well training went
MODULES = [
    pytest.param(name, marks=pytest.mark.trains) if name in TRAINS else name
    for name in (
        "moonfed.core.errors",
        "moonfed.core.wording",
        *(m.name for m in pkgutil.iter_modules(api.__path__, "moonfed.api.")),
    )
]


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_in_docstrings_hold(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    modules = [importlib.import_module(m.name) for m in pkgutil.iter_modules(api.__path__, "moonfed.api.")]
    assert sum(len(test.examples) for module in modules for test in finder.find(module)) >= 12


def test_everything_that_is_offered_is_there_and_is_described() -> None:
    offered = {name for name in dir(library) if not name.startswith("_")}
    for name in offered:
        assert inspect.getdoc(getattr(library, name)), name
    assert offered == set(api.__all__) | {"MoonClassifier"}
    with pytest.raises(AttributeError):
        _ = library.nothing  # pyright: ignore[reportAttributeAccessIssue]


def test_the_command_line_still_has_its_word_before_torch_is_loaded() -> None:
    code = "import sys, moonfed; moonfed.__version__; print('torch' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "False"


def test_every_algorithm_is_a_function_with_its_own_settings_and_defaults() -> None:
    for name, preset in ALGORITHMS.items():
        make = getattr(library, name.replace("-", "_"))
        assert make() == Algorithm(name, preset.local(), preset.aggregator(), preset.server_optimizer())
    assert str(inspect.signature(moon)).startswith("(*, mu: float = 1.0, temperature: float = 0.5, negatives: int = 1")
    assert moon(mu=5, server="fedavgm").name == "moon+fedavgm"
    with pytest.raises(UserError, match="has no setting mu"):
        fedavg(mu=1)  # pyright: ignore[reportCallIssue]
    with pytest.raises(UserError, match="mu needs a value >= 0"):
        moon(mu=-1)
    with pytest.raises(UserError, match=r"moon takes keywords, for example moon\(mu=5\)"):
        moon(5)  # pyright: ignore[reportCallIssue]


def test_every_setting_of_the_command_line_has_a_name_and_a_type_here() -> None:
    arguments = {"parties", "rounds", "seed", "model", "dataset", "path", "test"}
    flags = {n for s, section in SECTIONS.items() if s != "algorithm" for n in section.model_fields}
    assert set(Settings.__annotations__) == flags - arguments
    with pytest.raises(UserError, match='no setting "epoch"; did you mean epochs'):
        fit("mlp", "digits", **changed(epoch=1))


def test_fit_is_the_run_of_the_command_line(place: Path) -> None:
    result = fit("mlp", "digits", moon(mu=5), out="python", **SHORT)
    words = ["--model", "mlp", "--mu", "5", "--parties", "4", "--rounds", "2", "--epochs", "1"]
    assert moonfed("run", *words, "--out", "shell").code == 0
    assert bits(Path("python")) == bits(Path("shell"))
    assert result.folder == Path("python")
    in_memory = fit("mlp", "digits", moon(mu=5), **SHORT)
    assert same(result.model, in_memory.model)
    assert [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in result.rows] == [
        {k: v for k, v in row.items() if not k.endswith("seconds")} for row in in_memory.rows
    ]
    assert sorted(path.name for path in place.iterdir()) == ["python", "shell"], "without out nothing is written"


def test_fit_goes_on_where_it_was_stopped(place: Path) -> None:
    once = fit("mlp", "digits", out="run", callbacks=[lambda row: row["round"] == 1], **SHORT)
    assert [row["round"] for row in once.rows] == [1]
    again = fit("mlp", "digits", out="run", resume=True, **SHORT)
    assert [row["round"] for row in again.rows] == [1, 2]
    assert same(again.model, fit("mlp", "digits", **SHORT).model)


def test_the_model_takes_raw_inputs_and_says_what_was_measured() -> None:
    for encoder in ("cnn", Frozen):
        result = fit(encoder, "digits", "scaffold", **SHORT)
        data = digits()
        right = result.model(data.test_inputs).argmax(1) == data.test_labels
        assert float(right.double().mean()) == pytest.approx(result.accuracy)
        assert list(result.predict(data.test_inputs)) == result.model(data.test_inputs).argmax(1).tolist()
        assert not result.model.training
        assert isinstance(result.model, nn.Module)
        probabilities = result.model.predict_proba(data.test_inputs.numpy())
        assert probabilities.sum(1) == pytest.approx(np.ones(len(data.test_labels)))
    with pytest.raises(UserError, match=r"takes rows of shape \[1, 8, 8\], got an array \[8, 8\]"):
        result.predict(np.zeros((8, 8)))


def test_callbacks_hear_every_round_and_may_stop() -> None:
    class Listening(Callback):
        def __init__(self) -> None:
            self.heard: list[Any] = []

        def on_start(self, trials: Any) -> None:
            self.heard.append([(t.spec.label, t.config.run.seed, t.config.train.rounds, t.round) for t in trials])

        def on_round(self, finished: Any) -> bool:
            self.heard += [(trial.config.run.seed, record["round"]) for trial, record in finished]
            return finished[0][1]["round"] == 2

        def on_end(self, trials: Any) -> None:
            self.heard.append([trial.round for trial in trials])

    listening, also = Listening(), list[int]()
    asked = changed(rounds=5)
    result = fit("mlp", "digits", callbacks=[listening, lambda row: also.append(row["round"])], seeds=[3, 4], **asked)
    start, *rows, end = listening.heard
    assert start == [("moon", 3, 5, 0), ("moon", 4, 5, 0)]
    assert end == [2, 2]
    assert rows == [(3, 1), (4, 1), (3, 2), (4, 2)]
    assert also == [1, 1, 2, 2]
    assert len(result.rows) == 4


def test_a_history_is_a_frame_and_a_plot_is_a_figure() -> None:
    both = compare([moon(mu=5), fedavg], "mlp", "digits", seeds=[0, 1], **SHORT)
    frame: Any = both.history
    assert len(frame) == 2 * 2 * 2
    assert set(frame["method"]) == {"moon:mu=5", "fedavg"}
    assert frame["loss_contrastive"].isna().sum() == 4
    assert both["fedavg"].accuracy == pytest.approx(
        frame[(frame["method"] == "fedavg") & (frame["round"] == 2)].accuracy.mean()
    )
    assert len(both.plot().axes[0].lines) == 2
    assert both["moon:mu=5"].plot("contrastive").axes[0].get_ylabel() == "contrastive"
    with pytest.raises(UserError, match="no round of fedavg has contrastive"):
        both.plot("contrastive")
    assert repr(both).splitlines()[1].startswith("fedavg     ")
    assert repr(both["fedavg"]).startswith("<fedavg, 2 seeds: accuracy ")
    run = both["fedavg"].runs[1]
    assert repr(run) == f"<fedavg, seed 1: accuracy {run.accuracy:.1%} on the test rows after 2 rounds>"


def cells(page: str) -> list[list[str]]:
    """Read the table of a notebook's page; it must be well-formed."""
    table = ElementTree.fromstring(f"<page>{page}</page>").find("table")
    assert table is not None
    return [["".join(cell.itertext()) for cell in row] for row in table.iter("tr")]


def test_results_show_themselves_in_a_notebook(tmp_path: Path) -> None:
    name = "<b>mine</b> & 'moon'"
    both = compare({name: moon(mu=5), "fedavg": fedavg()}, "mlp", "digits", seeds=[0, 1], **SHORT)
    page: Any = vars(type(both))["_repr_html_"](both)
    assert "<b>" not in page
    head, first, second = cells(page)
    assert head == ["method", "accuracy", "standard deviation", "95 % interval", "final accuracy", "seeds"]
    assert first[:2] == [name, f"{both[name].accuracy:.1%}"]
    assert second[0] == "fedavg"
    assert first[3] == "2 seeds: no interval"
    assert both[name].interval == (both[name].accuracy, None, None, 2)
    assert "on the test rows" in page
    result = fit("mlp", "digits", seeds=[3, 4], out=tmp_path / "a&b", **SHORT)
    page = vars(type(result))["_repr_html_"](result)
    head, first, second = cells(page)
    assert head == ["seed", "accuracy", "final accuracy", "rounds", "folder"]
    accuracies = [f"{result.runs[0].accuracy:.1%}", f"{result.runs[0].final_accuracy:.1%}"]
    assert first == ["3", *accuracies, "2", str(tmp_path / "a&b" / "seed-3")]
    run: Any = result.runs[1]
    assert [row[0] for row in cells(vars(type(run))["_repr_html_"](run))] == ["seed", "4"]


def test_without_pandas_there_is_a_line_and_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    result = fit("mlp", "digits", **SHORT)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UserError, match=r"pip install moonfed\[pandas\]"):
        _ = result.history
    assert [row["round"] for row in result.rows] == [1, 2]


def test_compare_writes_a_folder_for_each_method_and_seed(place: Path) -> None:
    compare({"near": fedprox(mu=0.1), "plain": fedavg()}, "mlp", "digits", seeds=[0, 1], out="runs", **SHORT)
    found = sorted(path.parent.as_posix() for path in Path("runs").rglob("config.json"))
    assert found == ["runs/near/seed-0", "runs/near/seed-1", "runs/plain/seed-0", "runs/plain/seed-1"]


def test_a_run_on_rows_in_memory_can_be_listed_and_reported(place: Path) -> None:
    fit("mlp", (X, Y, SITES), "fedavg", out="run", rounds=1, epochs=1, progress=False)
    answer = moonfed("runs", ".", "--json")
    assert [line["state"] for line in json.loads(answer.out)] == ["finished"]
    assert moonfed("report", "run", "--tsne", "0").code == 0


def test_solo_has_a_model_for_each_party() -> None:
    result = fit("mlp", "digits", solo(), **SHORT)
    with pytest.raises(UserError, match=r"they are in runs\[0\]\.models"):
        _ = result.model
    models = result.runs[0].models
    assert list(models) == ["0", "1", "2", "3"]
    data = digits()
    own = [float((models[k].predict(data.test_inputs) == data.test_labels.numpy()).mean()) for k in models]
    assert own == pytest.approx(list(result.accuracy_by_party.values()))


def test_an_algorithm_of_ones_own_runs_and_cannot_take_anothers_name(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(LocalRule):
        pass

    class Again(LocalRule):
        pass

    monkeypatch.setitem(ALGORITHMS, "mine", ALGORITHMS["fedavg"])  # so that it is forgotten afterwards
    del ALGORITHMS["mine"]
    for rule in (Other(), Again()):
        mine = Algorithm("mine", rule, Aggregator())
        assert same(fit("mlp", "digits", mine, **SHORT).model, fit("mlp", "digits", fedavg(), **SHORT).model)
    with pytest.raises(UserError, match="another algorithm of the name fedavg"):
        fit("mlp", "digits", Algorithm("fedavg", Other(), Aggregator()), **SHORT)


def test_a_run_that_fails_raises() -> None:
    with pytest.raises(RunFailed, match="fedavg, seed 0: the "):
        fit("mlp", "digits", "fedavg", **changed(lr=1e9))


def test_a_partition_is_that_of_a_run() -> None:
    labels = digits().labels
    parts = partition(labels, parties=4, seed=0)
    result = fit("mlp", "digits", **SHORT)
    assert sorted(np.concatenate(parts).tolist()) == list(range(1415))
    sizes: list[int] = []

    class Sizes(Callback):
        def on_start(self, trials: Any) -> None:
            sizes.extend(info.rows for info in trials[0].spec.infos)

    fit("mlp", "digits", callbacks=[Sizes()], **SHORT)
    assert [len(part) for part in parts] == sizes
    assert len(result.accuracy_by_party) == 4


def test_a_seed_may_be_a_number_of_numpys() -> None:
    runs = fit("mlp", (X, Y), "fedavg", seeds=np.int64(3), **SHORT).runs  # type: ignore[arg-type]
    assert [run.seed for run in runs] == [3]
