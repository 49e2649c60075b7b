"""Sentences of four sites with the mean rating of twenty people, from the package vaderSentiment."""

import csv
import io
from pathlib import Path

from moonfed.data.catalog.archive import read_tar
from moonfed.data.catalog.monitor import QUIET, SourceError, Watch

INNER = "vaderSentiment-3.3.2/additional_resources/hutto_ICWSM_2014.tar.gz"
SITES = {
    "amazon": "amazonReviewSnippets",
    "movies": "movieReviewSnippets",
    "nytimes": "nytEditorialSnippets",
    "tweets": "tweets",
}
MOST = 10 << 20  # bytes of one file, more than any has
CUT = 0.5  # ratings go from -4 to 4: up to minus this is negative, from this on positive


def read_sentiment(path: Path, watch: Watch = QUIET) -> bytes:
    """Make the table of sentences from the package's archive, or from the archive inside it."""
    names = {site: f"hutto_ICWSM_2014/{name}_GroundTruth.txt" for site, name in SITES.items()}
    if path.name.startswith("hutto"):
        found = read_tar(path, dict.fromkeys(names.values(), MOST))
    else:
        inner = io.BytesIO(read_tar(path, {INNER: MOST})[INNER])
        found = read_tar(inner, dict.fromkeys(names.values(), MOST))
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(("site", "sentiment", "text"))
    for site, name in names.items():
        try:
            writer.writerows((site, *_sentence(line)) for line in found[name].decode().splitlines())
        except ValueError as error:
            raise SourceError(f"{name} is not a file of ratings: {error}") from None
    return out.getvalue().encode()


def _sentence(line: str) -> tuple[str, str]:
    """Read a line: number, rating, sentence."""
    _, rating, text = line.split("\t")
    value = float(rating)
    return "negative" if value <= -CUT else "positive" if value >= CUT else "neutral", text.strip()
