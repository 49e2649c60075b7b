"""Fingerprints of the final weights of a fixed set of runs: a refactoring must not change a single bit.

    python tools/golden_runs.py write golden.json      # with the version before
    python tools/golden_runs.py check golden.json      # with the version after, on the same machine

Bits depend on the CPU and on the version of torch, so the file is not committed: write it, change the code, check.
"""

import argparse
import csv
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from safetensors import safe_open
from sklearn.datasets import load_wine

ALGORITHMS = (
    *("centralised", "fedavg", "fedavgm", "fednova", "fedprox", "median", "moon", "moon-l2"),
    *("scaffold", "scaffold-niid", "solo", "trimmed-mean"),
)
SMALL = "--parties 4 --rounds 3 --epochs 2 --projection 16"
TABLE = "--data wine.csv --label kind --rounds 3 --epochs 2"
ENCODER = '''"""An encoder with dropout."""
from torch import nn


class Dropping(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.LayerNorm(32), nn.ReLU(), nn.Dropout(0.3))

    def forward(self, x):
        return self.layers(x)
'''
RUNS: dict[str, list[str]] = {
    **{
        f"{name}, sequential": [f"run --algorithm {name} --engine sequential --model mlp {SMALL}"]
        for name in ALGORITHMS
    },
    **{f"{name}, stacked": [f"run --algorithm {name} --engine stacked --model cnn {SMALL}"] for name in ALGORITHMS},
    "three negatives, sequential": [f"run --negatives 3 --engine sequential --model mlp {SMALL} --rounds 5"],
    "three negatives, stacked": [f"run --negatives 3 --engine stacked --model mlp {SMALL} --rounds 5"],
    "half of the parties": [f"run --fraction 0.5 --model mlp {SMALL}"],
    "parties drawn by rows": [f"run --fraction 0.5 --sampling by-rows --model mlp {SMALL}"],
    "stragglers kept": [f"run --algorithm fednova --stragglers 0.5 --model mlp {SMALL}"],
    "stragglers dropped": [f"run --stragglers 0.5 --stragglers-drop --model mlp {SMALL}"],
    "own table, stacked": [f"run {TABLE} --party region"],
    "own table, sequential": [f"run {TABLE} --parties 3 --engine sequential --algorithm scaffold"],
    "own encoder with dropout, stacked": [f"run --model dropping.py:Dropping --engine stacked {SMALL}"],
    "own encoder with dropout, sequential": [f"run --model dropping.py:Dropping --engine sequential {SMALL}"],
    "server momentum behind moon": [f"run --server fedavgm --model mlp {SMALL}"],
    "batch norm": [f"run --algorithm fedavg --model resnet8 --norm batch {SMALL} --rounds 2 --epochs 1"],
    "held-out rows and gamma": [f"run --validation 0.2 --gamma --model mlp {SMALL}"],
    "trials in one stack": [f"compare moon:mu=5 fedavg --seeds 0,1 --model mlp {SMALL}"],
    "a sweep": [f"sweep --mu 0.1,1 --seeds 0,1 --model cnn {SMALL} --rounds 2 --epochs 1"],
    "stopped and resumed": [f"run --model mlp {SMALL} --rounds 2", f"run --model mlp {SMALL} --rounds 4 --resume"],
}


def write_inputs(folder: Path) -> None:
    """Write the table and the encoder that two of the runs use."""
    (folder / "dropping.py").write_text(ENCODER)
    wine: Any = load_wine()
    with (folder / "wine.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["kind", "region", *(name.replace("/", "_") for name in wine.feature_names)])
        for place, (row, kind) in enumerate(zip(wine.data, wine.target, strict=True)):
            out.writerow([f"kind{kind}", f"region{(place * 7 + kind) % 3}", *row])


def fingerprint(folder: Path) -> dict[str, str]:
    """Hash the tensors of every final model below a folder, by name."""
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("final.safetensors")):
        digest = hashlib.sha256()
        with safe_open(path, framework="numpy") as tensors:
            for name in sorted(tensors.keys()):
                value = tensors.get_tensor(name)
                digest.update(f"{name} {value.dtype} {value.shape}".encode() + value.tobytes())
        found[str(path.parent.relative_to(folder))] = digest.hexdigest()[:16]
    return found


def run_all(only: list[str]) -> dict[str, dict[str, str]]:
    """Carry every run out in an empty folder of its own."""
    results: dict[str, dict[str, str]] = {}
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    for name, commands in RUNS.items():
        if only and not any(part in name for part in only):
            continue
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            write_inputs(folder)
            for command in commands:
                words = [sys.executable, "-c", "from moonfed.cli import main; main()", *command.split(), "--out", "out"]
                done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
                if done.returncode:
                    print(f"{name}: {done.stderr.strip().splitlines()[-1:]}")
            results[name] = fingerprint(folder / "out")
        print(f"{name}: {' '.join(results[name].values())}", flush=True)
    return results


def main() -> int:
    """Write the fingerprints to a file, or compare with those in it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "check"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--only", nargs="*", default=[], help="runs whose name contains one of these")
    asked = parser.parse_args()
    results = run_all(asked.only)
    if asked.what == "write":
        asked.file.write_text(json.dumps(results, indent=1) + "\n")
        return 0
    before = json.loads(asked.file.read_text())
    different = [name for name, found in results.items() if not found or found != before[name]]
    print(
        f"{len(results) - len(different)} of {len(results)} runs are equal to the bit"
        + "".join(map("\n  differs: {}".format, different))
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
