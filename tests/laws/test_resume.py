"""Killed and resumed is never interrupted, bit for bit."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import CHANGES, CRASHED, QUICK, SMALL, Attempt, bits, contents, crash_at, moonfed, rows

HALF = [*QUICK, "--fraction", "0.5"]
RUNS = {
    "moon": ["run", *HALF, "--rounds", "5", "--algorithm", "moon"],
    "scaffold": ["run", *HALF, "--rounds", "5", "--algorithm", "scaffold"],
    "server": ["run", *HALF, "--rounds", "5", "--algorithm", "moon+fednova+yogi"],
    "graph": ["run", *HALF, "--rounds", "5", "--topology", "random:2", "--topology-changes", "every-round"],
    "compare": ["compare", "moon", "fedavg", "--seeds", "0-2", *HALF, "--rounds", "4"],
}
KILLS = 9  # of each


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same commands, run to their end in peace."""
    folder = tmp_path_factory.mktemp("undisturbed")
    for name, asked in RUNS.items():
        assert moonfed(*asked, "--out", folder / name).code == 0
    return {name: folder / name for name in RUNS}


def saved(folder: Path) -> list[int]:
    """The rounds that each run below a folder has committed."""
    return sorted(json.loads(path.read_text())["round"] for path in folder.rglob("manifest.json"))


def timed(*arguments: str | Path) -> float:
    """Run a command in a process of its own, twice, and say how long the second took."""
    for attempt in (1, 2):
        began = time.monotonic()
        assert Attempt(*arguments[:-1], Path(arguments[-1]) / str(attempt)).end().code == 0
    return time.monotonic() - began


@pytest.mark.parametrize("name", RUNS)
def test_killed_at_random_instants_and_resumed_is_never_interrupted(
    name: str, undisturbed: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    asked = [*RUNS[name], "--resume", "--out", folder]
    life = timed(*RUNS[name], "--out", tmp_path)
    instants, killed, whole, committed = random.Random(name), 0, 0, set[str]()
    for _ in range(12 * KILLS):
        if killed == KILLS:
            break
        before = contents(folder)
        attempt = Attempt(*asked)
        attempt.process.join(instants.uniform(0, life))
        attempt.process.kill()
        if attempt.end().code == 0:  # it came through in time: it must be right, and another is begun
            assert bits(folder) == bits(undisturbed[name])
            folder.rename(tmp_path / f"whole {whole}")
            whole += 1
        elif contents(folder) != before:  # it had begun when it was killed, and was not through
            killed += not all((path.parent / "final.safetensors").exists() for path in folder.rglob("config.json"))
            committed.add(str(saved(folder)))
        else:
            life *= 1.1  # too early to count, the machine has become slower
    assert killed == KILLS
    assert len(committed) >= 3, committed  # the kills were spread over the rounds
    assert moonfed(*asked).code == 0
    assert bits(folder) == bits(undisturbed[name])


@pytest.mark.parametrize("begun", [0, 2])
def test_a_crash_before_any_change_of_the_disk_costs_nothing(begun: int, tmp_path: Path) -> None:
    """From the beginning, and from the second round to the third, the first that clears away what is old."""
    whole = ["run", *HALF, "--rounds", str(begun + 1), "--resume", "--out"]
    assert moonfed(*whole, tmp_path / "undisturbed").code == 0
    if begun:
        assert moonfed("run", *HALF, "--rounds", str(begun), "--out", tmp_path / "begun").code == 0
    expected, crashes = bits(tmp_path / "undisturbed"), 0
    for call in range(1, 1000):
        folder = tmp_path / str(call)
        if begun:
            shutil.copytree(tmp_path / "begun", folder)
        code = Attempt(*whole, folder, prepare=crash_at, given=(call, CHANGES)).end().code
        if code == 0:
            break
        assert code == CRASHED
        crashes += 1
        answer = moonfed(*whole, folder)
        assert answer.code == 0, (call, answer)
        assert bits(folder) == expected, call
    assert crashes > 5 * 3  # state, two parties and two manifests, each written, synced and renamed


def test_a_crash_in_every_resume_after_the_other_costs_nothing(undisturbed: dict[str, Path], tmp_path: Path) -> None:
    asked = [*RUNS["moon"], "--out", tmp_path / "run", "--resume"]
    codes: list[int] = []
    for call in range(1, 1000):
        codes.append(Attempt(*asked, prepare=crash_at, given=(call, CHANGES)).end().code)
        if codes[-1] == 0:
            break
    assert codes == [CRASHED] * (len(codes) - 1) + [0]
    assert len(codes) > 20
    assert bits(tmp_path / "run") == bits(undisturbed["moon"])


def test_a_comparison_that_crashes_between_two_commits_goes_back_to_the_lowest_common_round(tmp_path: Path) -> None:
    asked = ["compare", "moon", "--seeds", "0,1", *HALF, "--rounds", "2", "--out"]
    assert moonfed(*asked, tmp_path / "undisturbed").code == 0
    expected = bits(tmp_path / "undisturbed")
    apart = 0
    for call in range(1, 1000):
        folder = tmp_path / str(call)
        code = Attempt(*asked, folder, prepare=crash_at, given=(call, ("replace",))).end().code
        if code == 0:
            break
        assert code == CRASHED
        rounds = saved(folder)
        apart += len(rounds) == 1 or len(set(rounds)) == 2
        answer = moonfed(*asked, folder, "--resume")
        assert answer.code == 0, (call, answer)
        assert bits(folder) == expected, call
    assert apart >= 2 * 3  # in every round, while the second trial wrote its state, two parties and manifests


def test_what_stands_in_the_log_behind_the_last_commit_is_forgotten(
    undisturbed: dict[str, Path], tmp_path: Path
) -> None:
    asked = [*RUNS["moon"], "--out", tmp_path / "run"]
    assert moonfed(*asked, "--rounds", "3").code == 0
    log = tmp_path / "run" / "rounds.jsonl"
    committed = log.read_bytes()
    log.write_bytes(committed + b'{"round": 4}\n{"round": 5, "accura')
    assert moonfed(*asked, "--rounds", "3", "--resume").code == 0
    assert log.read_bytes() == committed
    log.write_bytes(committed + b'{"round": 4}\n{"round": 5, "accura')
    assert moonfed(*asked, "--resume").code == 0
    assert bits(tmp_path / "run") == bits(undisturbed["moon"])


def test_ctrl_c_saves_the_round_says_how_to_go_on_and_loses_nothing(tmp_path: Path) -> None:
    script = Path(sys.executable).with_name("moonfed")
    asked = ["run", *HALF, "--out", str(tmp_path / "run")]
    process = subprocess.Popen([script, *asked, "--rounds", "1000"], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    first = process.stderr.readline()
    assert first.startswith("round 1/1000")
    process.send_signal(signal.SIGINT)
    said = process.stderr.read().splitlines()
    process.stderr.close()
    assert process.wait() == 1
    assert "stopping after this round; press Ctrl-C again to stop at once" in said
    done = len(rows(tmp_path / "run"))
    assert said[-1] == f"moonfed: stopped after round {done}, saved in {tmp_path / 'run'}; continue with --resume"
    assert moonfed(*asked, "--rounds", str(done + 2), "--resume").code == 0
    assert moonfed(*asked[:-1], tmp_path / "undisturbed", "--rounds", str(done + 2)).code == 0
    assert bits(tmp_path / "run") == bits(tmp_path / "undisturbed")


def test_a_second_ctrl_c_stops_at_once_and_loses_no_saved_round(tmp_path: Path) -> None:
    asked = ["compare", "moon", "--seeds", "0,1", *QUICK, "--epochs", "9", "--out", tmp_path / "all"]
    attempt = Attempt(*asked, "--rounds", "1000")
    attempt.await_word("round 1/1000")
    attempt.send(signal.SIGINT)
    attempt.await_word("stopping after this round")
    attempt.send(signal.SIGINT)
    answer = attempt.end()
    assert answer.code == 1
    assert answer.err.splitlines()[-1] == "moonfed: stopped at once; continue from the last saved round with --resume"
    done = saved(tmp_path / "all")
    assert done[0] >= 1
    asked = [*asked[:-1], tmp_path / "other", "--rounds", str(done[-1])]
    assert moonfed(*asked).code == 0
    assert moonfed(*asked[:-3], tmp_path / "all", "--rounds", str(done[-1]), "--resume").code == 0
    assert bits(tmp_path / "all") == bits(tmp_path / "other")


def test_two_processes_cannot_hold_the_same_run(tmp_path: Path) -> None:
    asked = ["run", *HALF, "--rounds", "1000", "--out", tmp_path / "run"]
    first = Attempt(*asked)
    first.await_word("round 1/1000")
    second = moonfed(*asked, "--resume")
    assert second.code == 2
    assert "is in use by another process" in second.err
    assert second.err.count("\n") == 1
    first.process.kill()
    assert first.end().code == -signal.SIGKILL
    done = saved(tmp_path / "run")[0]
    assert moonfed(*asked, "--resume", "--rounds", str(done + 1)).code == 0  # the dead hold nothing
    assert len(rows(tmp_path / "run")) == done + 1


@pytest.mark.parametrize("algorithm", ["moon", "scaffold", "fedavgm", "solo", "centralised"])
def test_asking_for_more_rounds_later_is_asking_for_them_at_once(algorithm: str, tmp_path: Path) -> None:
    asked = ["run", *HALF, "--algorithm", algorithm, "--out"]
    for rounds in ("1", "2", "4"):
        assert moonfed(*asked, tmp_path / "later", "--rounds", rounds, "--resume").code == 0
    assert moonfed(*asked, tmp_path / "at once", "--rounds", "4").code == 0
    assert bits(tmp_path / "later") == bits(tmp_path / "at once")


def test_resuming_a_finished_run_says_so_and_changes_nothing(undisturbed: dict[str, Path]) -> None:
    for name, rounds in (("moon", 5), ("compare", 4)):
        before = contents(undisturbed[name])
        answer = moonfed(*RUNS[name], "--out", undisturbed[name], "--resume")
        assert answer.code == 0
        assert answer.err == f"nothing left to do: all {rounds} rounds were done before\n"
        assert contents(undisturbed[name]) == before


def test_a_run_killed_before_its_final_weights_can_be_resumed_and_is_listed_so(tmp_path: Path) -> None:
    asked = ["run", *HALF, "--rounds", "2", "--out", tmp_path / "run"]
    assert moonfed(*asked).code == 0
    expected = bits(tmp_path / "run")
    (tmp_path / "run" / "final.safetensors").unlink()
    assert [run["state"] for run in moonfed("runs", tmp_path, "--json").value] == ["can be resumed"]
    assert moonfed(*asked, "--resume").code == 0
    assert bits(tmp_path / "run") == expected


def written(folder: Path, before: dict[str, os.stat_result]) -> dict[str, int]:
    """The size of each file below a folder that was written since."""
    now = {path.relative_to(folder).as_posix(): path.stat() for path in folder.rglob("*") if path.is_file()}
    return {
        name: stat.st_size
        for name, stat in now.items()
        if name not in before or (stat.st_ino, stat.st_mtime_ns) != (before[name].st_ino, before[name].st_mtime_ns)
    }


def test_a_checkpoint_costs_what_the_cohort_costs_whatever_the_population(tmp_path: Path) -> None:
    cost: dict[int, dict[str, int]] = {}
    for parties in (20, 100):
        folder = tmp_path / str(parties)
        asked = ["run", "--model", "mlp", "--epochs", "1", "--partition", "iid", "--floor", "1", "--batch", "14"]
        asked += ["--parties", str(parties), "--fraction", str(10 / parties), "--out", str(folder)]
        assert moonfed(*asked, "--rounds", "12").code == 0
        before = {p.relative_to(folder).as_posix(): p.stat() for p in folder.rglob("*") if p.is_file()}
        assert moonfed(*asked, "--rounds", "13", "--resume").code == 0
        cost[parties] = {
            name: size for name, size in written(folder, before).items() if name.startswith("checkpoint/") and size
        }
        cohort = rows(folder)[-1]["cohort"]
        assert len(cohort) == 10
        files = {"state-13.safetensors", *(f"party-{party}-13.safetensors" for party in cohort)}
        assert set(cost[parties]) == {f"checkpoint/{f}" for f in files | {"manifest.json", "manifest-before.json"}}
        kept = [path.name.split("-")[1] for path in folder.glob("checkpoint/party-*")]
        assert max(kept.count(party) for party in kept) == 2
    # A party's number has one digit or two, and so have the names in the files' headers and the length of the log.
    assert abs(sum(cost[20].values()) - sum(cost[100].values())) < 100


def test_a_queue_of_three_negatives_is_saved_while_it_fills(place):
    words = ["run", *SMALL, "--negatives", "3"]
    assert moonfed(*words, "--out", place / "whole").code == 0
    assert moonfed(*words, "--out", place / "halved", "--rounds", "1").code == 0
    assert moonfed(*words, "--out", place / "halved", "--resume").code == 0
    assert bits(place / "halved") == bits(place / "whole")
