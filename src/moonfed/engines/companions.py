"""Companions: second local rules that train beside the first ones, on the same batches, and upload nothing."""

from collections.abc import Sequence
from dataclasses import replace

from moonfed.core.tree import union
from moonfed.engines.base import Engine, Job, JobResult

PREFIX = "personal/"  # of the names of a companion's loss parts


def run_with_companions(engine: Engine, jobs: Sequence[Job]) -> list[JobResult]:
    """Train every job's party, and the companions of the rules that have one, in one call of an engine."""
    companions = {place: companion for place, job in enumerate(jobs) if (companion := companion_job(job)) is not None}
    results = engine.run_cohort([*jobs, *companions.values()])
    merged = list(results[: len(jobs)])
    for place, result in zip(companions, results[len(jobs) :], strict=True):
        merged[place] = merge(merged[place], result)
    return merged


def companion_job(job: Job) -> Job | None:
    """Make the job of a rule's companion: the same batches, state and memory; all of its model is the party's own."""
    rule = job.local.companion
    return None if rule is None else replace(job, local=rule, probe=None, private=frozenset())


def merge(first: JobResult, companion: JobResult) -> JobResult:
    """Return the first result with the companion's memory, losses (by other names) and seconds added."""
    losses = {f"{PREFIX}{name}": values for name, values in companion.losses.items()}
    memory = union(first.memory, companion.memory)
    return replace(first, memory=memory, losses=first.losses | losses, seconds=first.seconds + companion.seconds)
