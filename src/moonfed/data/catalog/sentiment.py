"""Sentences from four sites with the mean rating of twenty people, from the package vaderSentiment."""

import csv
import io
from pathlib import Path

from moonfed.data.catalog.archive import read_tar
from moonfed.data.catalog.monitor import SILENT, SourceError, TransferMonitor

INNER_ARCHIVE = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
SITES = {
    "amazon": "amazonReviewSnippets",
    "movies": "movieReviewSnippets",
    "nytimes": "nytEditorialSnippets",
    "tweets": "tweets",
}
MAX_FILE_BYTES = 10 << 20  # the files are smaller
RATING_CUT = 0.5  # ratings range from -4 to 4: up to -0.5 is negative, from 0.5 on positive


def read_sentiment(path: Path, monitor: TransferMonitor = SILENT) -> bytes:
    """Make the table of sentences from the package's archive, or from the archive inside it."""
    names = {site: f"hutto_ICWSM_2014/{name}_GroundTruth.txt" for site, name in SITES.items()}
    if path.name.startswith("hutto"):
        files = read_tar(path, dict.fromkeys(names.values(), MAX_FILE_BYTES))
    else:
        inner = io.BytesIO(read_tar(path, {INNER_ARCHIVE: MAX_FILE_BYTES})[INNER_ARCHIVE])
        files = read_tar(inner, dict.fromkeys(names.values(), MAX_FILE_BYTES))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("site", "sentiment", "text"))
    for site, name in names.items():
        try:
            writer.writerows((site, *_parse_line(line)) for line in files[name].decode().splitlines())
        except ValueError as error:
            raise SourceError(f"{name} is not a file of ratings: {error}") from None
    return out.getvalue().encode()


def _parse_line(line: str) -> tuple[str, str]:
    """Turn a line of number, rating and sentence into class and sentence."""
    _, rating, text = line.split("\t")
    value = float(rating)
    return "negative" if value <= -RATING_CUT else "positive" if value >= RATING_CUT else "neutral", text.strip()
