"""Measures federations on this machine: seconds per round beyond the training, and bytes sent relative to the model.

python results/federation/measure.py 3 mlp 6: three sites, a network, six rounds. Every byte between the sites and the
coordinator's proxy, with TLS, HTTP and polls, goes through a relay that counts it.
"""

import itertools
import json
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import torch

from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.flower.launcher import create_coordinator, run_coordinator, start_site
from moonfed.federation.flower.processes import free_port, log_to, stop_all
from moonfed.federation.pki.coordinator_folder import CoordinatorFolder
from moonfed.federation.pki.site_folder import SiteSettings, make_site_folder
from moonfed.training.callbacks import Callback, Finished
from moonfed.training.config import Config, make_config
from moonfed.training.trial import Trial


class Relay:
    """Forwards connections to a port and counts the bytes in both directions."""

    def __init__(self, port: int) -> None:
        self.port, self.up, self.down = port, 0, 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self.listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self.port))
            except OSError:
                near.close()
                continue
            threading.Thread(target=self._pass, args=(near, far, "up"), daemon=True).start()
            threading.Thread(target=self._pass, args=(far, near, "down"), daemon=True).start()

    def _pass(self, source: socket.socket, goal: socket.socket, way: str) -> None:
        try:
            while content := source.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(content))
                goal.sendall(content)
        except OSError:
            pass
        for end in (source, goal):
            end.close()


def make_folders(path: Path, sites: int) -> tuple[CoordinatorFolder, Relay, list[Path]]:
    """Make the folders of a coordinator and its sites, whose invitation names the relay's address."""
    coordinator = create_coordinator(path / "coordinator", "127.0.0.1", free_port(), 1)
    relay = Relay(coordinator.address()[1])
    address = f"127.0.0.1:{relay.listener.getsockname()[1]}"
    invitation = path / "invitation.json"
    invitation.write_text(json.dumps(json.loads(coordinator.invitation.read_text()) | {"address": address}))
    folders: list[Path] = []
    for i in range(sites):
        site = make_site_folder(path / f"s{i}", invitation, SiteSettings(f"s{i}", share=i, threads=1))
        coordinator.admit(f"s{i}", site.public_key_path)
        folders.append(site.path)
    return coordinator, relay, folders


def run(path: Path, config: Config, sites: int) -> list[tuple[int, int, float]]:
    """Run a federation; return the relay's bytes up and down, and seconds, at the start and after each round."""
    coordinator, relay, folders = make_folders(path, sites)
    children = [start_site(folder, path / f"{folder.name}.log") for folder in folders]
    marks: list[tuple[int, int, float]] = []
    began = time.perf_counter()

    class Marks(Callback):
        def on_start(self, trials: Sequence[Trial]) -> None:
            marks.append((relay.up, relay.down, time.perf_counter() - began))

        def on_round(self, finished: Finished) -> None:
            marks.append((relay.up, relay.down, finished[0][1]["seconds"]))

    settings, stop_sites = FederationSettings(), partial(stop_all, children)  # type: ignore[call-arg]
    try:
        where = (coordinator, "127.0.0.1", config, path / "run", False, settings)
        run_coordinator(*where, [Marks()], before_end=stop_sites)
    finally:
        stop_sites()
    return marks


def main() -> None:
    """Measure one federation and print its cost as JSON."""
    sites, model, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    log_to(sys.stderr)
    torch.set_num_threads(1)
    path = Path(tempfile.mkdtemp())
    config = make_config(
        {
            "algorithm": {"name": "moon"},
            "data": {"parties": sites, "partition": "iid"},
            "model": {"model": model},
            "train": {"rounds": rounds, "epochs": 1, "batch": 64},
            "run": {"threads": 1},
        }
    )
    marks = run(path, config, sites)
    size = (path / "run" / "final.safetensors").stat().st_size
    logs = [(path / f"s{i}.log").read_text() for i in range(sites)]
    spent = [[float(s) for s in re.findall(r"steps in ([\d.]+) s", log)] for log in logs]
    training = [max(own[r] for own in spent) for r in range(rounds)]
    beyond = [mark[2] - t for mark, t in zip(marks[1:], training, strict=True)]
    ups = [(b[0] - a[0]) / sites / size for a, b in itertools.pairwise(marks[1:])]
    downs = [(b[1] - a[1]) / sites / size for a, b in itertools.pairwise(marks[1:])]
    print(
        json.dumps(
            {
                "sites": sites,
                "model": model,
                "MB": round(size / 1e6, 2),
                "start_s": round(marks[0][2], 1),
                "round_s": [round(m[2], 2) for m in marks[1:]],
                "longest_training_s": training,
                "beyond_s_median": round(statistics.median(beyond), 2),
                "up_times_model": round(statistics.median(ups), 4),
                "down_times_model": round(statistics.median(downs), 4),
            }
        )
    )


if __name__ == "__main__":
    main()
