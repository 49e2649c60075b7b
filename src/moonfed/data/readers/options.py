"""How user data is read: the kinds of rows, and the options of all readers."""

from dataclasses import dataclass

NUMBERS, TEXT, TABLE, IMAGES, AUDIO = "numbers", "text", "table", "images", "audio"  # kinds of rows
FORMER_KINDS = {"pictures": IMAGES, "sound": AUDIO}  # names in files of earlier versions


@dataclass(frozen=True)
class ReaderOptions:
    """Which columns are label, party and text, and how rows become inputs."""

    label: str | None = None  # column of the class; default: label in a table, y in an .npz file
    party: str | None = None  # column of the party; "folder" for folders PARTY/CLASS/FILE
    text: str | None = None  # column to read as text; the other columns are then ignored
    ignore: tuple[str, ...] = ()  # columns to leave out
    categories: tuple[str, ...] = ()  # numeric columns to treat as categorical
    test: str | None = None  # path of the test rows; default: rows are held out
    holdout: float = 0.2  # share of each party's rows to hold out
    holdout_seed: int = 0
    skip_bad_rows: bool = False
    size: tuple[int, int] | None = None  # height and width of images
    seconds: float | None = None  # clip length of audio
    vocabulary: int = 10_000  # vocabulary size of texts
    length: int | None = None  # words read per text
    standardise: bool = True  # whether arrays of numbers are standardised
