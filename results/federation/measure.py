"""Measures federations on this machine: seconds of a round beyond the training, bytes on the wire against the model.

python results/federation/measure.py 3 mlp 6: three sites, a network, six rounds. Every byte between sites and
SuperLink, TLS, HTTP and polls included, goes through a relay that counts it.
"""

import itertools
import json
import os
import re
import socket
import statistics
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import torch

from moonfed.federation.coordinator.federation_config import FederationSettings
from moonfed.federation.coordinator.listener import Listener
from moonfed.federation.flower.launcher import coordinate
from moonfed.federation.flower.processes import Child, free_port, stop_all
from moonfed.federation.pki.coordinator_folder import make_home
from moonfed.federation.pki.site_folder import SiteSettings, make_site
from moonfed.training.config import make_config
from moonfed.training.loop import RoundRecord


class Relay:
    """Passes connections on to a port and counts what goes up and down."""

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


def main() -> None:
    """Run a federation through a relay and print what it took."""
    sites, model, rounds = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp())
    home = make_home(folder / "coordinator", "127.0.0.1", free_port(), 1)
    relay = Relay(home.address()[1])
    detour = folder / "detour.json"
    detour.write_text(
        json.dumps(
            json.loads(home.invitation.read_text()) | {"address": f"127.0.0.1:{relay.listener.getsockname()[1]}"}
        )
    )
    children: list[Child] = []
    for i in range(sites):
        place = make_site(folder / f"s{i}", detour, SiteSettings(f"s{i}", share=i, threads=1))
        home.admit(f"s{i}", place.public)
        words = ["-m", "moonfed.federation.flower.join_process", str(place.path), str(os.getpid())]
        children.append(Child(words, folder / f"s{i}.log", place.path / "flower"))
    config = make_config(
        {
            "algorithm": {"name": "moon"},
            "data": {"parties": sites, "partition": "iid"},
            "model": {"model": model},
            "train": {"rounds": rounds, "epochs": 1, "batch": 64},
            "run": {"threads": 1},
        }
    )
    marks: list[tuple[int, int, float]] = []
    began = time.perf_counter()

    def after(round: int, rows: list[RoundRecord]) -> bool:
        marks.append((relay.up, relay.down, rows[0]["seconds"]))
        return True

    try:
        coordinate(
            home,
            "127.0.0.1",
            config,
            folder / "run",
            False,
            FederationSettings(),  # type: ignore[call-arg]
            Listener(
                lambda trials: marks.append((relay.up, relay.down, time.perf_counter() - began)),
                after,
                lambda line: print(line, file=sys.stderr),
            ),
            partial(stop_all, children),
        )
    finally:
        stop_all(children)
    size = (folder / "run" / "final.safetensors").stat().st_size
    spent = [
        [float(s) for s in re.findall(r"steps in ([\d.]+) s", (folder / f"s{i}.log").read_text())] for i in range(sites)
    ]
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
