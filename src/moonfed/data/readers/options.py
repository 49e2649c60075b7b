"""How data of one's own is to be read."""

from dataclasses import dataclass

NUMBERS, TEXT, TABLE, PICTURES, SOUND = "numbers", "text", "table", "pictures", "sound"


@dataclass(frozen=True)
class ReaderOptions:
    """Which part of the data says what, and what is done with the rest."""

    label: str | None = None  # the column with the class; default: label in a table, y in an .npz file
    party: str | None = None  # the column that says whose a row is; "folder" for folders of parties
    text: str | None = None  # the column to read as text instead of all the others
    ignore: tuple[str, ...] = ()  # columns that are left out
    categories: tuple[str, ...] = ()  # columns of numbers that are names
    test: str | None = None  # where the test rows are; default: some are held out
    holdout: float = 0.2  # share of each party's rows that is held out
    holdout_seed: int = 0
    skip_bad_rows: bool = False
    size: tuple[int, int] | None = None  # height and width of pictures
    seconds: float | None = None  # of sounds
    vocabulary: int = 10_000  # most words that are told apart
    length: int | None = None  # most words of a text that are read
    standardise: bool = True  # numbers of arrays; from Python they may be ready as they are
