"""What has been run below a folder."""

from pathlib import Path
from typing import Any

from moonfed.core.errors import UserError
from moonfed.core.files import read_json
from moonfed.storage.checkpoint import Checkpoint
from moonfed.storage.run_folder import CONFIG, FAILURE, has_final_weights, last_accuracy, read_rounds


def list_runs(folder: Path) -> list[dict[str, Any]]:
    """List the runs in a folder and below it, each with its last accuracy and its state."""
    if not folder.is_dir():
        raise UserError(f"no folder {folder}; runs go to runs/ unless --out says otherwise")
    return [_describe(path.parent) for path in sorted(folder.rglob(CONFIG)) if path.parent.name != "checkpoint"]


def _describe(path: Path) -> dict[str, Any]:
    try:
        there = read_json(path / CONFIG)
        settings = there["config"]
        rows = read_rounds(path)
        done = next((m.round for m in Checkpoint(path / "checkpoint").manifests()), 0)
        asked = int(settings["train"]["rounds"])
        name, server = settings["algorithm"]["name"], settings["algorithm"].get("server")
        return {
            "folder": str(path),
            "algorithm": f"{name}+{server}" if server else name,
            "dataset": settings["data"]["dataset"],
            "seed": settings["run"]["seed"],
            "rounds": done,
            "asked": asked,
            "accuracy": last_accuracy(rows[:done]),
            "state": _state(path, done, asked),
        }
    except (UserError, KeyError, TypeError, ValueError) as error:
        return {"folder": str(path), "state": f"damaged: {error}"}


def _state(path: Path, done: int, asked: int) -> str:
    if (path / FAILURE).exists():
        return f"failed: {read_json(path / FAILURE).get('failure')}"
    return "finished" if done >= asked and has_final_weights(path, done) else "can be resumed"
