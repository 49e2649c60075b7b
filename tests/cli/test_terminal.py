"""What a terminal, a pipe and a reader who leaves get to see of a run."""

import os
import pty
import re
import select
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import QUICK, Attempt, moonfed, rows

from moonfed.report.blocks import Table
from moonfed.report.terminal import print_table


def test_progress_is_plain_lines_on_stderr_where_there_is_no_terminal(tmp_path: Path) -> None:
    answer = moonfed("run", *QUICK, "--rounds", "3", "--out", tmp_path / "run")
    lines = answer.err.splitlines()
    assert len(lines) == 3
    for round, (line, row) in enumerate(zip(lines, rows(tmp_path / "run"), strict=True), start=1):
        assert line.startswith(f"round {round}/3  accuracy {row['accuracy']:.1%}  loss: ")
        assert f"supervised {row['losses']['supervised']:.3f}" in line
        assert re.search(r"\d+ s, \d+ s left$", line)
    assert "\x1b" not in answer.err + answer.out
    metrics, result = answer.out.splitlines()
    assert re.fullmatch(r"final model: log loss \d\.\d{3}, Brier score \d\.\d{3}, ECE \d\.\d{3}", metrics)
    assert re.fullmatch(r"\d+\.\d% on the test set after round 3; .*", result)


@pytest.mark.parametrize(("columns", "widest"), [("80", 80), ("120", 120), ("", 160), ("0", 160), ("wide", 160)])
def test_a_piped_table_is_as_wide_as_columns_says_and_else_wide_enough_for_paths(
    columns: str, widest: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    print_table(Table("t", "", ["name", "text"], [["a", "word " * 60]], "ll", note="word " * 60))
    lines = capsys.readouterr().out.splitlines()
    assert widest - 10 < max(len(line.rstrip()) for line in lines) <= widest


def on_terminal(kind: str) -> None:
    """Call the terminal this process writes to by a kind."""
    os.environ["TERM"] = kind
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "LINES"):
        os.environ.pop(name, None)


@pytest.fixture
def terminal() -> Iterator[tuple[int, str]]:
    """A pseudo-terminal of 80 columns: the end to read from, and the name of the end to write to."""
    reading, writing = pty.openpty()
    termios.tcsetwinsize(writing, (24, 80))
    yield reading, os.ttyname(writing)
    os.close(writing)
    os.close(reading)


def test_columns_that_do_not_fit_follow_below_and_no_word_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    columns = ["method", "accuracy", "verdict", *(f"measured-{k}" for k in range(6))]
    words = [
        "feddecorr:beta=0.03",
        "93.1 ± 0.4",
        "statistically indistinguishable",
        *(f"{k}.25-to-{k}.75" for k in range(6)),
    ]
    print_table(Table("t", "Title", columns, [words, ["fedavg", *words[1:]]]))
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 80
    assert out.count("Title") == 1
    assert out.count("feddecorr:beta=0.03") == 2, "the first column stands in each part"
    for word in " ".join([*columns, *words]).split():
        assert word in out.split(), word


@pytest.mark.parametrize(("kind", "live"), [("xterm-256color", True), ("dumb", False)])
def test_progress_is_live_on_a_terminal_that_can_show_it(
    kind: str, live: bool, terminal: tuple[int, str], tmp_path: Path
) -> None:
    reading, name = terminal
    asked = ["run", *QUICK, "--rounds", "12", "--out", tmp_path / "run"]
    attempt = Attempt(*asked, prepare=on_terminal, given=kind, screen=name)
    shown = ""
    while "on the test set after round 12" not in shown:
        assert select.select([reading], [], [], 60)[0], shown
        shown += os.read(reading, 65536).decode()
    assert attempt.end().code == 0
    assert ("\x1b[?25l" in shown, "\x1b[2K" in shown) == (live, live)  # hides the cursor, writes over the line
    last = rows(tmp_path / "run")[-1]
    assert f"accuracy {last['accuracy']:.1%}  loss: supervised {last['losses']['supervised']:.3f}  contrastive" in shown
    if live:
        assert len(set(re.findall(r"round (\d+)/12", shown))) > 2  # it moved
        assert re.search(r"round 12/12 .*\d:\d\d:\d\d.* elapsed, .*\d:\d\d:\d\d.* left", shown)
    else:
        assert re.findall(r"round (\d+)/12", shown) == [str(round) for round in range(1, 13)]


def test_a_reader_who_leaves_early_is_no_error_to_shout_about() -> None:
    script = Path(sys.executable).with_name("moonfed")
    process = subprocess.Popen(
        [script, "partition", "--parties", "100", "--floor", "1", "--json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == ""
    process.stderr.close()
    assert process.wait() == 1


def test_waiting_threads_soon_sleep_unless_the_user_says_otherwise() -> None:
    code = "import os, moonfed.cli; print(os.environ.get('GOMP_SPINCOUNT'))"
    plain = {k: v for k, v in os.environ.items() if k not in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")}
    said = [
        subprocess.run([sys.executable, "-c", code], env=plain | more, capture_output=True, text=True).stdout
        for more in ({}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"})
    ]
    assert [line.strip() for line in said] == ["10000", "None", "7"]
