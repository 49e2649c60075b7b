"""Small archives like the published ones of flights, sentiment and spoken-digits."""

import io
import zipfile

import numpy as np
from official import tarred

from moonfed.data.catalog.flights import FLIGHTS_MEMBER
from moonfed.data.catalog.sentiment import INNER_ARCHIVE, SITES
from moonfed.data.catalog.spoken_digits import SPEAKERS

HEAD = "year,month,day,dep_delay,arr_delay,carrier,origin,distance,hour"


def flights_archive(rows: list[str]) -> bytes:
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w") as archive:
        archive.writestr("flights.csv", "\n".join([HEAD, *rows]) + "\n")
    return tarred({FLIGHTS_MEMBER: inner.getvalue()})


def some_flights(carriers: dict[str, int]) -> list[str]:
    """Flights that are late when they leave late; one a carrier never arrives."""
    return [
        f"2013,{1 + i % 12},{1 + i % 28},{60 * (i % 3) - 60},{'NA' if not i else 60 * (i % 3) - 60},{c},JFK,{500 + i},8"
        for c, count in carriers.items()
        for i in range(count + 1)
    ]


def sentences_archive(per_site: int, line: str = "") -> bytes:
    words = {-1.2: "bad awful poor", 0.1: "plain usual so", 1.5: "good great fine"}
    text = "\r\n".join(f"{i}\t{rating}\t{words[rating]}, say {i}" for i in range(per_site) for rating in words)
    files = {f"hutto_ICWSM_2014/{name}_GroundTruth.txt": (text + line).encode() for name in SITES.values()}
    return tarred({INNER_ARCHIVE: tarred(files)})


def recordings() -> dict[str, np.ndarray]:
    """Tones: a digit has its pitch, a speaker a loudness and a length."""
    clips, labels, speakers, index = [], [], [], []
    for digit in range(10):  # another order than the one they are kept in
        for who in range(6):
            for take in range(50):
                time = np.arange(1600 + 100 * who + take) / 8000
                clips.append((4000 + 1000 * who) * np.sin(2 * np.pi * (300 + 300 * digit) * time))
                labels.append(digit)
                speakers.append(who)
                index.append(take)
    audio = np.concatenate(clips).astype(np.int16)
    offsets = np.cumsum([0, *(len(clip) for clip in clips)])
    held = {"audio": audio, "offsets": offsets, "labels": np.array(labels), "speakers": np.array(speakers)}
    return held | {"index": np.array(index), "speaker_names": np.array(SPEAKERS)}
