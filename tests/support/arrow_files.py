"""Data sets as save_to_disk of Hugging Face writes them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow


def save_hugging_face(
    folder: Path, tables: Sequence[Any], features: Any = None, state: dict[str, Any] | None = None
) -> None:
    """Save tables as the data files of one split; features and the list of files may be anything."""
    folder.mkdir(parents=True)
    names = [f"data-{k}.arrow" for k in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        path = str(folder / name)
        with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(table)
    listed = {"_data_files": [{"filename": name} for name in names]} if state is None else state
    (folder / "state.json").write_text(json.dumps(listed))
    (folder / "dataset_info.json").write_text(json.dumps({"features": features or {}}))
