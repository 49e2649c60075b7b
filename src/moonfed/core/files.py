"""Writing so that a crash at any instant leaves the old file or the new one, and reading with suspicion."""

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import IO, Any, cast

from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from moonfed.core.errors import UserError
from moonfed.core.types import Tensors


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file of a run whole, or say in one line why it cannot be written."""
    try:
        write_whole(path, content)
    except OSError as error:
        raise unwritable(path, error) from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it, or say in one line why it cannot be made."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from None


def write_whole(path: Path, content: bytes) -> None:
    """Write a file whole: to a temporary name, flushed to the disk, renamed into place."""
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
    _sync_folder(path.parent)


def append_line(path: Path, after: int, line: str) -> int:
    """Put a line behind the first `after` bytes of a file and return the file's new length."""
    content = line.encode() + b"\n"
    try:
        new = not path.exists()
        with path.open("x+b" if new else "r+b") as file:
            file.truncate(after)
            file.seek(after)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if new:
            _sync_folder(path.parent)
    except OSError as error:
        raise unwritable(path, error) from None
    return after + len(content)


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
    return save(here, metadata=facts | {"sha256": _digest(name, here, facts)})


def apart(tensors: Tensors) -> Tensors:
    """Lay tensors out plainly on the CPU; one under two names (a queue not full yet) is there twice."""
    here: Tensors = {}
    taken: set[int] = set()
    for key, tensor in tensors.items():
        own = tensor.detach().cpu().contiguous()
        here[key] = own.clone() if own.data_ptr() in taken else own
        taken.add(own.data_ptr())
    return here


def lock_file(path: Path) -> IO[str]:
    """Open and lock a file; the operating system unlocks it when this process ends, however it ends.

    A lock that another process holds raises BlockingIOError.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("w")
    try:
        import fcntl
    except ImportError:  # no such locks on this system
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
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
        raise UserError(f"{path} is damaged: its content does not match its own digest")
    return tensors, facts


def _digest(name: str, tensors: Tensors, facts: dict[str, str]) -> str:
    digest = hashlib.sha256(json.dumps([name, sorted(facts.items())]).encode())
    for name in sorted(tensors):
        digest.update(f"{name} {tensors[name].dtype} {tuple(tensors[name].shape)}".encode())
        digest.update(tensors[name].reshape(-1).numpy().data)  # no copy: a data set is large
    return digest.hexdigest()


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
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
