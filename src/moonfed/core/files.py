"""Files: written so that a crash leaves the old one or the new one, read with suspicion; slots in a flat form."""

import errno
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, cast

from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from moonfed.core.errors import UserError
from moonfed.core.tree import under
from moonfed.core.types import Slots, Snapshot, Tensors


def write_bytes(path: Path, content: bytes, sync_name: bool = True) -> None:
    """Write a file of a run whole, or say in one line why it cannot be written."""
    try:
        write_whole(path, content, sync_name)
    except OSError as error:
        raise unwritable(path, error) from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it, or say in one line why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None


def write_whole(path: Path, content: bytes, sync_name: bool = True) -> None:
    """Write a file whole: to a temporary name, flushed to the disk, renamed into place.

    Without sync_name its new name is on the disk only after the next file of its folder was written with it.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:  # Ctrl-C too
        temporary.unlink(missing_ok=True)
        raise
    if sync_name:
        _sync(path.parent)


def append_line(path: Path, after: int, line: str, flush: bool = True) -> int:
    """Put a line behind the first `after` bytes of a file and return the file's new length.

    Unflushed it is as good as lost if the power fails, until a later line is flushed, or the file.
    """
    content = line.encode() + b"\n"
    try:
        new = not path.exists()
        with path.open("x+b" if new else "r+b") as file:
            file.truncate(after)
            file.seek(after)
            file.write(content)
            file.flush()
            if flush:
                os.fsync(file.fileno())
        if new:
            _sync(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    return after + len(content)


def flush_file(path: Path) -> None:
    """Flush to the disk what was written to a file."""
    try:
        _sync(path)
    except OSError as error:
        raise unwritable(path, error) from None


def cut(path: Path, length: int) -> None:
    """Forget what stands behind the first bytes of a file, if there is one."""
    try:
        if path.exists() and path.stat().st_size > length:
            os.truncate(path, length)
    except OSError as error:
        raise unwritable(path, error) from None


def read_log(path: Path) -> bytes:
    """Read a log whole; one that does not exist is empty."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""
    except OSError as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None


def parse_lines(content: bytes) -> list[Any]:
    """Parse a log of one JSON value per line; a last line that was cut off is ignored."""
    return [json.loads(line) for line in content.split(b"\n")[:-1]]


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole."""
    write_bytes(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object, or say in one line why it cannot be read."""
    try:
        value: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UserError(f"{path} cannot be read: {short(error)}") from None
    if not isinstance(value, dict):
        raise UserError(f"{path} should hold a JSON object, it holds {type(value).__name__}")
    return cast("dict[str, Any]", value)


def write_tensors(path: Path, tensors: Tensors, **facts: str) -> None:
    """Write tensors of a run whole, with a digest that is checked when they are read."""
    write_bytes(path, tensor_bytes(path.name, tensors, facts))


def tensor_bytes(name: str, tensors: Tensors, facts: dict[str, str]) -> bytes:
    """Put tensors and facts in the form of a file, with a digest of them and of the file's name."""
    here = apart(tensors)
    return _sort_facts(save(here, metadata=facts | {"sha256": _digest(name, here, facts)}))


def _sort_facts(file: bytes) -> bytes:
    """Sort the facts in a file's header, which safetensors writes in random order: equal runs have equal files."""
    size = int.from_bytes(file[:8], "little")
    head: dict[str, Any] = json.loads(file[8 : 8 + size])
    head["__metadata__"] = dict(sorted(head["__metadata__"].items()))
    text = json.dumps(head, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # tensors begin at a multiple of eight bytes
    return b"".join([len(text).to_bytes(8, "little"), text, memoryview(file)[8 + size :]])


def apart(tensors: Tensors) -> Tensors:
    """Lay tensors out plainly on the CPU; one under two names (a queue not full yet) is there twice."""
    here: Tensors = {}
    taken: set[int] = set()
    for key, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        here[key] = own.clone() if own.data_ptr() in taken else own
        taken.add(own.data_ptr())
    return here


def lock_folder(folder: Path, name: str) -> IO[str]:
    """Lock a run folder, made if needed, by a file in it."""
    try:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        return open_lock(folder / name)
    except BlockingIOError:
        raise UserError(
            f"{folder} is in use by another process; wait for it, or use --out for another folder"
        ) from None
    except OSError as error:
        raise unwritable(folder, error) from None


def open_lock(path: Path) -> IO[str]:
    """Open a lock file and lock it; BlockingIOError if another process has it.

    The lock lasts until the file is closed; the operating system also releases it when this process ends, however it
    ends. A system without such locks gives none.
    """
    file = path.open("w")
    try:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:
        pass
    except OSError:
        file.close()
        raise
    return file


def read_tensors(path: Path) -> tuple[Tensors, dict[str, str]]:
    """Read tensors to the CPU; a truncated, altered or missing file is refused."""
    try:
        opened: Any = safe_open(str(path), framework="pt")
        with opened as file:
            facts: dict[str, str] = dict(file.metadata() or {})
            tensors: Tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118 (not a dict)
    except (OSError, SafetensorError) as error:
        raise UserError(f"{path} cannot be read, it is missing or truncated: {short(error)}") from None
    if facts.pop("sha256", None) != _digest(path.name, tensors, facts):
        raise UserError(f"{path} is damaged: its content or its name does not match its own digest")
    return tensors, facts


def _digest(name: str, tensors: Tensors, facts: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps([name, sorted(facts.items())]).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).numpy().data)  # no copy: a data set is large
    return digest.hexdigest()


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def unwritable(path: Path, error: OSError) -> UserError:
    """Make the error for a place that cannot be written to."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    advice = "free some space, then continue with --resume" if full else "use --out for another place"
    return UserError(f"cannot write {path}: {short(error)}; {advice}")


def short(error: Exception) -> str:
    """Say in one line what went wrong."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return text.splitlines()[0] if text else type(error).__name__


def pack(slots: Slots) -> Tensors:
    """Flatten slots into one dictionary of tensors whose keys say what each was."""
    flat: Tensors = {}
    for name, value in slots.items():
        if isinstance(value, Tensor):
            flat[name] = value
        elif isinstance(value, Snapshot):
            flat |= {f"{name}/weights/{k}": v for k, v in value.weights.items()}
            flat |= {f"{name}/buffers/{k}": v for k, v in value.buffers.items()}
        else:
            flat |= {f"{name}/tensors/{k}": v for k, v in value.items()}
    return flat


def unpack(flat: Tensors) -> Slots:
    """Rebuild what pack flattened."""
    slots: Slots = {}
    for name in dict.fromkeys(key.split("/", 1)[0] for key in flat):
        if name in flat:
            slots[name] = flat[name]
            continue
        below = under(name, flat)
        tensors = under("tensors", below)
        slots[name] = tensors or Snapshot(under("weights", below), under("buffers", below))
    return slots


def in_order(slots: Slots, names: Sequence[str]) -> Slots:
    """Put tensors in the order of a model's names: files sort them, and sums depend on the order."""
    place = {name: i for i, name in enumerate(names)}

    def ordered(tensors: Tensors) -> Tensors:
        def key(name: str) -> int:
            return place.get(name.removeprefix("weights/").removeprefix("buffers/"), len(place))

        return {name: tensors[name] for name in sorted(tensors, key=key)}

    def slot(value: Snapshot | Tensors | Tensor) -> Snapshot | Tensors | Tensor:
        if isinstance(value, Snapshot):
            return Snapshot(ordered(value.weights), ordered(value.buffers))
        return ordered(value) if isinstance(value, dict) else value

    return {name: slot(value) for name, value in slots.items()}
