"""Numbers in sentences: no minus before a zero, no plural of one."""

import re
from pathlib import Path

import pytest
from commands import QUICK, moonfed

from moonfed.core.wording import counted, signed
from moonfed.experiments.statistics import Interval
from moonfed.report import reproduction
from moonfed.report.sections import points

ONE = re.compile(r"(?<![\d.,=+-])1 (rounds|seeds|parties|trials|settings|rows|epochs|classes)\b")


@pytest.mark.parametrize("value", [-0.04, -0.0, 0.0, -1e-17, 0.04])
def test_what_rounds_to_zero_has_no_minus(value: float) -> None:
    assert signed(value) == "+0.0"
    assert "-0.0" not in points(Interval(value / 100, value / 100, value / 100, 3))
    line = {"measured": Interval(value / 100, value / 100, value / 100, 3)._asdict() | {"trials": 3}, "level": None}
    line |= {"text": "a over b", "measure": "accuracy", "published": value / 100, "verdict": "not shown"}
    assert reproduction._difference_row(line)[1:4] == ["+0.0", "+0.0", "+0.0 to +0.0"]  # pyright: ignore[reportPrivateUsage]


def test_signs_and_digits_stay() -> None:
    assert (signed(-0.06), signed(0.06), signed(-12.345, 2)) == ("-0.1", "+0.1", "-12.35")
    assert (counted(0, "row"), counted(1, "row"), counted(2, "row")) == ("0 rows", "1 row", "2 rows")


def test_commands_of_one_round_and_one_seed_use_the_singular(place: Path) -> None:
    said = [moonfed("run", *QUICK, "--rounds", "1", "--out", "runs/one")]
    said += [moonfed("run", *QUICK, "--rounds", "1", "--out", "runs/one", "--resume")]
    said += [moonfed("compare", "moon", "fedavg", *QUICK, "--rounds", "1", "--seeds", "0")]
    said += [moonfed("tune", "--mu", "0.1,1", *QUICK, "--rounds", "1", "--seeds", "0")]
    said += [moonfed("run", *QUICK, "--parties", "1", "--rounds", "1", "--out", "runs/alone"), moonfed("runs")]
    said += [moonfed("report", "runs", "-o", "page.html", "--tsne", "0")]
    for answer in said:
        assert answer.code == 0, answer.err
        assert not ONE.search(answer.out + answer.err)
        assert "-0.0" not in answer.out
    assert "after round 1;" in said[0].out
    assert "nothing left to do: the only round was done before" in said[1].err
    assert not ONE.search(re.sub(r"<svg.*?</svg>|<style.*?</style>", "", Path("page.html").read_text(), flags=re.S))
