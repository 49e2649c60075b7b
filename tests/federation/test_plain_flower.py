"""The commands of docs/federation.md for Flower's own tools, run as written with one site on loopback."""

import json
import re
import subprocess
import time
from pathlib import Path

from commands import Attempt
from federations import assert_nothing_runs, moonfed, simulated, weights

from moonfed.federation.flower.processes import ChildProcess, environment, free_port, wait_for_port

PAGE = (Path(__file__).parents[2] / "docs" / "federation.md").read_text().split("## Flower's own commands")[1]
SETTINGS = """
[data]
parties = 1
[model]
model = "mlp"
[train]
rounds = 1
epochs = 1
batch = 16
"""


class Shell:
    """Runs the page's lines as they stand, with another address and in a folder of the test."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.left = folder, port, list[ChildProcess]()
        self.blocks = [self._here(block) for block in re.findall(r"```bash\n(.*?)```", PAGE, flags=re.DOTALL)]

    def _here(self, text: str) -> str:
        return text.replace("10.77.0.1", "127.0.0.1").replace("0.0.0.0", "127.0.0.1").replace("9443", str(self.port))

    def start(self, text: str, log: str) -> ChildProcess:
        """Start lines whose last one does not end by itself."""
        script = f"cd {self.folder}\n{text.rstrip()}\n"
        words = ["-c", "import os, sys; os.execvp('bash', ['bash', '-ec', sys.argv[1]])", script]
        self.left.append(ChildProcess(words, self.folder / log, self.folder / "flower"))
        return self.left[-1]

    def run(self, text: str) -> str:
        """Run lines to their end."""
        env = environment(self.folder / "flower")
        words = ["bash", "-ec", text]
        done = subprocess.run(words, cwd=self.folder, env=env, text=True, capture_output=True)
        assert done.returncode == 0, done
        return done.stdout


def test_flowers_own_commands_give_the_same_model(tmp_path: Path):
    port = free_port()
    assert moonfed("federation", "init", tmp_path / "coordinator", "--host", "127.0.0.1", "--port", str(port)).code == 0
    invitation = ("--invitation", tmp_path / "coordinator" / "invitation.json")
    made = moonfed("site", "init", tmp_path / "north", *invitation, "--name", "north", "--share", "0", "--threads", "1")
    assert made.code == 0
    key = tmp_path / "north" / "site.key.pub"
    assert moonfed("federation", "admit", tmp_path / "coordinator", "north", key).code == 0
    (tmp_path / "run.toml").write_text(SETTINGS)
    shell = Shell(tmp_path, port)
    superlink, register_and_run, supernode = shell.blocks
    register, run = register_and_run.split("flwr run", 1)
    try:
        wait_for_port("127.0.0.1", port, shell.start(superlink, "superlink.log"), "SuperLink")
        assert "registered successfully" in shell.run(register)
        node = shell.start(f"{supernode.rstrip()} --host 127.0.0.1 --port {free_port()}", "supernode.log")
        said = shell.start(f"flwr run{run}", "run.log")
        expected = simulated(tmp_path / "here", 1, "--rounds", "1", "--epochs", "1")
        _await(tmp_path / "run" / "final.safetensors", node, said)
        (listed,) = json.loads(shell.run("flwr list here --format json"))["runs"]
        assert listed["run-id"] in said.log.read_text()
    finally:
        for child in reversed(shell.left):
            child.stop()
    assert weights(tmp_path / "run") == expected
    assert_nothing_runs(tmp_path)


def _await(path: Path, node: ChildProcess, said: ChildProcess, seconds: float = 120) -> None:
    ends = time.monotonic() + seconds
    while not path.exists():
        assert node.alive, node.error_summary()
        assert time.monotonic() < ends, said.log.read_text()
        time.sleep(0.2)


def test_without_flower_a_federation_says_what_to_install(tmp_path: Path):
    for words in (("federate",), ("federation", "init", tmp_path / "f", "--host", "x"), ("site", "join", tmp_path)):
        answer = Attempt(*words, prepare=_hide).end(60)
        assert answer.code == 2
        assert answer.err == (
            "moonfed: a federation needs Flower, which is not installed; pip install 'moonfed[flower]'\n"
        )


def _hide(given: None) -> None:
    """Make this process one in which Flower is not installed."""
    import sys

    sys.modules["flwr"] = None  # type: ignore[assignment]
