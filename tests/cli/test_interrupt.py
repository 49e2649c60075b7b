"""Ctrl-C and kill while a federation waits: everything ends soon, in a line, and nothing stays behind."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import Answer, Attempt
from federations import SMALL, Federation, assert_nothing_runs

SOON = 8.0  # seconds; on an idle machine two, of which Flower's servers take one to end
BOTH = [signal.SIGINT, signal.SIGTERM]


def stopped(attempt: Attempt, number: signal.Signals) -> Answer:
    """Send a signal and wait for the end, which must not be that of a deadline."""
    began = time.monotonic()
    attempt.send(number)
    answer = attempt.end(60)
    assert time.monotonic() - began < SOON, answer
    assert "Traceback" not in answer.err
    return answer


@pytest.mark.parametrize("number", BOTH)
def test_a_coordinator_that_waits_for_its_sites_stops_when_told(tmp_path: Path, number: signal.Signals):
    made = Federation(tmp_path, sites=1)
    coordinator = made.start()
    coordinator.await_word("listening", 60)
    answer = stopped(coordinator, number)
    assert answer.code == 1
    assert answer.err.splitlines()[-1] == "moonfed: stopped before the first round; run the same command again"
    assert not (tmp_path / "run" / "config.json").exists()
    assert_nothing_runs(tmp_path, 1)


@pytest.mark.parametrize("number", BOTH)
def test_a_site_that_waits_for_its_coordinator_stops_when_told(tmp_path: Path, number: signal.Signals):
    made = Federation(tmp_path, sites=1)
    site = made.join("site-0")
    site.await_word("does not answer", 60)
    answer = stopped(site, number)
    assert answer.code == 0  # Ctrl-C is how a site leaves
    assert answer.err.splitlines()[-1] == "stopped; what this site remembers is in its folder"
    assert_nothing_runs(tmp_path, 1)


@pytest.mark.parametrize("number", BOTH)
def test_a_federation_on_one_machine_stops_before_its_sites_are_there(tmp_path: Path, number: signal.Signals):
    federated = Attempt("federate", "--sites", "2", *SMALL, "--out", tmp_path / "run")
    federated.await_word("listening", 60)
    answer = stopped(federated, number)
    assert answer.code == 1
    assert answer.err.splitlines()[-1].startswith("moonfed: stopped before the first round")
    assert_nothing_runs(tmp_path, 1)


def test_a_round_that_waits_for_a_site_that_left_stops_when_told(tmp_path: Path):
    made = Federation(tmp_path, sites=2)
    staying, leaving = (made.join(name) for name in made.names)
    coordinator = made.start("--rounds", "1000", "--patience", "500", "--deadline", "500", "--epochs", "2")
    coordinator.await_word("round 1/1000", 90)
    leaving.send(signal.SIGTERM)
    assert leaving.end(30).code == 0
    answer = stopped(coordinator, signal.SIGINT)
    assert answer.code == 1
    assert answer.err.splitlines()[-1].startswith("moonfed: stopped without waiting for site-1")
    assert staying.process.is_alive()
    made.end()


def test_ctrl_c_while_a_command_is_loaded_ends_in_a_line():
    words = [sys.executable, "-c", "from moonfed.cli import main; main()", "runs", "nowhere"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    maps, ends = Path(f"/proc/{process.pid}/maps"), time.monotonic() + 60
    while "numpy" not in maps.read_text():  # the first of the large ones
        assert time.monotonic() < ends
        time.sleep(0.005)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (1, "", "moonfed: stopped\n")


def test_where_ctrl_c_is_ignored_it_stays_so():
    code = (
        "import os, signal; signal.signal(signal.SIGINT, signal.SIG_IGN); from moonfed.cli import main\n"
        "try:\n    main()\nfinally:\n    os.kill(os.getpid(), signal.SIGINT); print('here')"
    )
    done = subprocess.run([sys.executable, "-c", code, "runs", "nowhere"], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "here"
