"""The time that a call of an engine took, divided among its results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from moonfed.engines.base import JobResult


def timed(run: Callable[[], Sequence[JobResult]]) -> list[JobResult]:
    """Run jobs and note on each result its part, by steps, of the seconds that all of them took."""
    began = time.perf_counter()
    results = run()
    seconds, steps = time.perf_counter() - began, sum(result.upload.steps for result in results)
    return [replace(result, seconds=seconds * result.upload.steps / steps) for result in results]
