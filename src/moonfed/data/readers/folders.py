"""Folders of files by class, and by party if asked for."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from moonfed.core.errors import UserError
from moonfed.core.files import short
from moonfed.data.readers.options import ReaderOptions
from moonfed.data.readers.raw_rows import Bad

LEVEL = "folder"  # what --party says if folders of parties hold folders of classes
_NO_DATA = {"thumbs.db", "desktop.ini", "__macosx"}


@dataclass(frozen=True)
class Clip:
    """One picture or sound: where its bytes are, and what is said of it."""

    source: Path | bytes
    place: str
    label: str | None
    party: str | None


def check_flags(name: str, settings: ReaderOptions) -> None:
    """Refuse columns of a folder."""
    for flag, value in (("--label", settings.label), ("--text", settings.text)):
        if value is not None:
            raise UserError(f"{name} is a folder whose folders name the classes; leave {flag} {value} away")
    if settings.party not in (None, LEVEL):
        raise UserError(
            f"{name} is a folder: --party {LEVEL} takes PARTY/CLASS/FILE apart, got --party {settings.party}"
        )


def clips_in(
    folder: Path, base: Path, suffixes: Sequence[str], settings: ReaderOptions, labelled: bool = True
) -> tuple[list[Clip], list[Bad]]:
    """List the files CLASS/FILE or PARTY/CLASS/FILE of a folder, in the order of their names.

    Files that are to be predicted may lie in the folder itself. What is no such file is bad.
    """
    clips: list[Clip] = []
    bad: list[Bad] = []
    files, folders = _listed(folder)
    loose = [path for path in files if path.suffix.lower() in suffixes]
    if loose and not labelled:
        return [Clip(path, _place(path, base), None, None) for path in loose], bad
    bad += [Bad(_place(path, base), "lies in no folder of a class") for path in loose]
    if settings.party != LEVEL:
        for own in folders:
            _class(own, base, suffixes, None, clips, bad)
        return clips, bad
    for party in folders:
        files, classes = _listed(party)
        bad += [Bad(_place(path, base), "lies in no folder of a class") for path in files]
        for own in classes:
            _class(own, base, suffixes, party.name, clips, bad)
    return clips, bad


def _class(
    folder: Path, base: Path, suffixes: Sequence[str], party: str | None, clips: list[Clip], bad: list[Bad]
) -> None:
    files, deeper = _listed(folder)
    for path in files:
        if path.suffix.lower() in suffixes:
            clips.append(Clip(path, _place(path, base), folder.name, party))
        else:
            bad.append(Bad(_place(path, base), f"none of {', '.join(suffixes)}"))
    for path in deeper:
        advice = "" if party else f"; if the outer folders are parties, use --party {LEVEL}"
        bad.append(Bad(f"{_place(path, base)}/", f"a folder in the folder of a class{advice}"))
    if not files and not deeper:
        bad.append(Bad(f"{_place(folder, base)}/", "an empty folder"))


def has_any(folder: Path, suffixes: Sequence[str], depth: int = 4) -> bool:
    """Whether there is a file of some kind in a folder, or a few levels below it."""
    files, folders = _listed(folder)
    if any(path.suffix.lower() in suffixes for path in files):
        return True
    return depth > 1 and any(has_any(path, suffixes, depth - 1) for path in folders)


def folders_in(folder: Path) -> list[Path]:
    """List the folders of a folder by name; hidden ones are no data."""
    return _listed(folder)[1]


def _listed(folder: Path) -> tuple[list[Path], list[Path]]:
    """List the files and the folders of a folder by name; hidden ones are no data."""
    try:
        entries = sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.name.lower() not in _NO_DATA)
        return [p for p in entries if not p.is_dir()], [p for p in entries if p.is_dir()]
    except OSError as error:
        raise UserError(f"{folder} cannot be read: {short(error)}") from None


def _place(path: Path, base: Path) -> str:
    return path.relative_to(base).as_posix()
