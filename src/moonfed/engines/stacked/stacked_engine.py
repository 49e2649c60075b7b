"""The stacked engine: parties of all trials train at once in the lanes of a stack, with one step for all lanes."""

import logging
import re
from collections.abc import Hashable, Sequence
from contextlib import nullcontext
from dataclasses import fields
from functools import lru_cache, partial

import torch
from torch import Tensor

from moonfed.core.errors import RunFailed
from moonfed.core.rules import LocalRule
from moonfed.core.seeds import torch_aside
from moonfed.core.types import Slots, Snapshot, Tensors
from moonfed.data.augment import sample_inputs
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import EngineOptions, Job, JobResult, Nets
from moonfed.engines.cuda.cuda_graphs import CaptureError, CudaGraphStack
from moonfed.engines.cuda.precision import numeric_precision, with_precision
from moonfed.engines.devices import free_memory, is_gpu, peak_memory, release_memory, reset_peak_memory
from moonfed.engines.gamma import gamma_of
from moonfed.engines.party_round import conclude, prepare
from moonfed.engines.stacked.fused_blocks import fuse_blocks, has_fused_blocks
from moonfed.engines.stacked.graph_cache import GraphCache, first_line
from moonfed.engines.stacked.lanes import LaneState, Stack, run_schedule
from moonfed.engines.stacked.schedule import MAX_CHUNK_STEPS, Schedule, make_schedule, pick_chunk, pick_width
from moonfed.engines.stacked.stack_spec import CPU_CACHE_BYTES, MIN_LANES, StackSpec
from moonfed.engines.stacked.stacked_ops import GPU_LAYOUTS, StackedOps, cpu_layout
from moonfed.engines.step import on_device
from moonfed.engines.stopwatch import timed

logger = logging.getLogger(__name__)

MAX_CACHED_STACKS = 12  # on a GPU: as many methods may share a command without a new compilation
CPU_STEP_OVERHEAD = 1.0  # what a step costs beside its lanes, in lanes; measured
GPU_STEP_OVERHEAD = 7.0
NO_LIMIT = 10**6  # lanes

# Cohorts of equally long jobs ask the same in every round.
chunk_for, width_for, schedule_for = (
    lru_cache(maxsize=64)(pick_chunk),
    lru_cache(maxsize=64)(pick_width),
    lru_cache(maxsize=64)(make_schedule),
)


class Stacked:
    """Runs all jobs of one shape as one stack; on a GPU its step is captured as a CUDA graph and replayed."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        self.data, self.options, self.device = data, options, data.inputs.device
        self.gpu = is_gpu(self.device)
        self.nets = with_precision(nets, options.precision, sample_inputs(data)) if self.gpu else nets
        self.stacked_nets = fuse_blocks(nets) if self.gpu else nets  # their operations bring their own precision
        self.lane_limit = options.lanes or NO_LIMIT  # halved when memory runs out
        self.stacks: dict[Hashable, CudaGraphStack] = {}  # of earlier rounds
        self.uncapturable: set[Hashable] = set()
        self.graphs = GraphCache()
        self.max_lanes: dict[Hashable, int] = {}  # by shape
        self.width = 1  # lanes of the last stack

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results are in the order of the jobs."""
        groups: dict[Hashable, list[int]] = {}
        for i, job in enumerate(jobs):
            groups.setdefault(shape_of(job), []).append(i)
        done: dict[int, JobResult] = {}
        precision = numeric_precision(self.options.precision) if self.gpu else nullcontext()
        generator_aside = torch_aside(self.device) if self.nets.uses_torch_rng else nullcontext()
        with precision, generator_aside:
            for shape, members in groups.items():
                own = [jobs[i] for i in members]
                results = timed(partial(self._run_or_retry, shape, own))
                done |= dict(zip(members, results, strict=True))
        return [done[i] for i in range(len(jobs))]

    def _run_or_retry(self, shape: Hashable, jobs: Sequence[Job]) -> list[JobResult]:
        """Run a stack; if it cannot be captured or vectorised or does not fit into memory, run it another way."""
        while True:
            try:
                return self._run(shape, jobs)
            except torch.OutOfMemoryError:
                pass  # handled outside of the except clause, so that the failed stack's memory is released
            except CaptureError as error:
                self.stacks.pop(shape, None)
                self.uncapturable.add(shape)
                logger.info("steps run one operation at a time: they cannot be captured (%s)", error)
                continue
            except RuntimeError as error:  # what vmap raises
                if self.max_lanes.get(shape, 1) == 1 or self.lane_limit == 1:
                    raise
                _log_not_vectorisable(error)
                self.max_lanes[shape] = 1
                continue
            self._halve_lanes()

    def _halve_lanes(self) -> None:
        """React to a lack of memory."""
        self.stacks.clear()
        release_memory(self.device)
        if self.width <= 1:
            raise RunFailed("one party alone does not fit into memory; use a smaller --batch")
        self.lane_limit = self.width // 2
        logger.info("out of memory: continuing with %d lanes", self.lane_limit)

    def _run(self, shape: Hashable, jobs: Sequence[Job]) -> list[JobResult]:
        states = [LaneState(*prepared) for prepared in prepare(jobs)]
        plans = [job.plan for job in jobs]
        stack, schedule = self._stack_for(shape, plans, jobs[0], states[0])
        ends, losses = run_schedule(stack, schedule, plans, states)
        models = [end.model for end in ends]
        gammas = [gamma_of(self.nets, self.data, job, model) for job, model in zip(jobs, models, strict=True)]
        return conclude(jobs, ends, [state.fixed for state in states], losses, gammas)

    def _stack_for(
        self, shape: Hashable, plans: Sequence[BatchPlan], job: Job, like: LaneState
    ) -> tuple[Stack, Schedule]:
        """Choose the number of lanes for a cohort; make a stack, or reuse one of an earlier round."""
        spec = self._make_spec(shape, job)
        lengths = tuple(len(plan.rows) for plan in plans)
        earlier = self.stacks.get(shape)
        limit = min(self.lane_limit, len(plans), self._lanes_that_fit(spec, plans[0], like))
        chunk = earlier.chunk if earlier else chunk_for(lengths, self._max_chunk(limit * plans[0].rows.shape[1]))
        width = width_for(lengths, chunk, limit, GPU_STEP_OVERHEAD if self.gpu else CPU_STEP_OVERHEAD)
        width = width if self.gpu else max(width, min(MIN_LANES, limit))
        reused = earlier if earlier and is_reusable(earlier.width, width) else None
        self.width = width = reused.width if reused else width
        schedule = schedule_for(lengths, width, chunk)
        if reused:
            return reused, schedule
        spec = self._one_lane(spec) if width == 1 else spec
        if not self.gpu or shape in self.uncapturable or self.nets.uses_torch_rng:
            return Stack(spec, width, chunk, like), schedule
        self.stacks.pop(shape, None)
        while len(self.stacks) >= MAX_CACHED_STACKS:  # the oldest is dropped
            del self.stacks[next(iter(self.stacks))]
        plan = on_device(self.data, first_chunk(plans[0], chunk))
        self.stacks[shape] = CudaGraphStack(spec, width, chunk, like, plan, self.options)
        return self.stacks[shape], schedule

    def _make_spec(self, shape: Hashable, job: Job) -> StackSpec:
        """Specify stacked lanes; their steps are traced on a CPU, since a GPU has CUDA graphs."""
        layout = GPU_LAYOUTS[self.options.precision] if self.gpu else cpu_layout()
        layout = layout._replace(batch_last=has_fused_blocks(self.stacked_nets))
        graphs = None if self.gpu else self.graphs
        ops, clip = StackedOps(layout), job.max_grad_norm > 0
        return StackSpec(self.stacked_nets, self.data, job.local, ops, clip, job.optimizer, shape, graphs)

    def _one_lane(self, spec: StackSpec) -> StackSpec:
        """Specify one lane, neither vectorised nor traced: its net may branch on values."""
        return spec._replace(nets=self.nets, ops=None, graphs=None)

    def _max_chunk(self, rows: int) -> int:
        """Return how many steps with this many rows may be gathered at once; on a CPU they should fit its cache."""
        bytes_per_step = rows * self.data.inputs[0].numel() * 4
        return MAX_CHUNK_STEPS if self.gpu else min(MAX_CHUNK_STEPS, max(1, 2 * CPU_CACHE_BYTES // bytes_per_step))

    def _lanes_that_fit(self, spec: StackSpec, plan: BatchPlan, like: LaneState) -> int:
        """Return the most lanes: those whose widest layer fits a CPU's cache, or those that fit a GPU's memory."""
        if spec.key not in self.max_lanes:
            layer_bytes = plan.rows.shape[1] * self.nets.widest * 4
            in_cache = max(1, CPU_CACHE_BYTES // layer_bytes)
            self.max_lanes[spec.key] = self._lanes_in_memory(spec, plan, like) if self.gpu else in_cache
        return self.max_lanes[spec.key]

    def _lanes_in_memory(self, spec: StackSpec, plan: BatchPlan, like: LaneState) -> int:
        """Take a trial step on the GPU: one lane if vmap refuses the net or the rule, else what fits into memory."""
        one_step = on_device(self.data, first_chunk(plan, 1))
        if self.lane_limit == 1:
            return 1
        try:
            used = self._trial_step(spec, one_step, like)
        except torch.OutOfMemoryError:
            return 1
        except RuntimeError as error:  # what vmap raises
            self._trial_step(self._one_lane(spec), one_step, like)  # raises what is no refusal
            _log_not_vectorisable(error)
            return 1
        return max(1, int(0.8 * free_memory(self.device) / max(1, used * MAX_CHUNK_STEPS)))

    def _trial_step(self, spec: StackSpec, plan: BatchPlan, like: LaneState) -> int:
        """Take a step with one lane to see whether it is possible; return the bytes of memory that it took."""
        before = reset_peak_memory(self.device)
        stack = Stack(spec, 1, 1, like)
        stack.start_round(None)
        stack.load_lanes({0: like})
        stack.gather_chunk(plan, plan.rows, 1)
        stack.step()
        return peak_memory(self.device) - before


def _log_not_vectorisable(error: RuntimeError) -> None:
    """Say in one line that stacking is not possible here, and why; torch's own words are for developers."""
    missing = re.search(r"aten::_?([a-z]+)", str(error))  # Batching rule not implemented for aten::lstm.input
    if missing:
        why = f"torch cannot vectorise the operation {missing[1]} over several networks"
    elif "data-dependent" in str(error) or ".item()" in str(error):
        why = "the network or the rule branches on the values of tensors, which cannot be vectorised"
    else:
        why = "torch cannot vectorise an operation of the network or the rule"
    logger.info("parties train one after the other: %s", why)
    logger.debug("vmap: %s", first_line(error))


def is_reusable(width: int, wanted: int) -> bool:
    """Whether a stack of one width may be used where another is wanted: making one can take a minute."""
    return 0.8 * wanted <= width <= 2 * wanted


def first_chunk(plan: BatchPlan, chunk: int) -> BatchPlan:
    """Return the first steps of a plan, in one lane; a plan that is shorter than a chunk is repeated."""
    return BatchPlan(*(torch.cat([part[:chunk]] * -(-chunk // len(part)))[None, :chunk] for part in plan))


def shape_of(job: Job) -> Hashable:
    """Identify jobs that may share a stack: equal rules except for float settings, memories of equal shapes."""
    slots = _shapes(job.memory), _shapes(job.state.sent)
    rule = type(job.local), _static_settings(job.local)
    return *rule, slots, job.plan.rows.shape[1], job.max_grad_norm > 0, job.optimizer


@lru_cache(maxsize=64)
def _static_settings(local: LocalRule) -> tuple[tuple[str, Hashable], ...]:
    """List the settings of a rule that all lanes of a stack share."""
    free = local.float_settings
    return tuple((f.name, getattr(local, f.name)) for f in fields(local) if f.name not in free)


def stackable(jobs: Sequence[Job]) -> tuple[list[int], list[list[int]]]:
    """Find the places of jobs that may share a stack, by shape, and before them those that train alone.

    Alone is the only party of its trial with batches of its size: any other has company of its own trial, so that a
    trial gets the same bits whether other trials are there or not.
    """
    alone = [i for i, job in enumerate(jobs) if job.peers == 1]
    groups: dict[Hashable, list[int]] = {}
    for i, job in enumerate(jobs):
        if job.peers > 1:
            groups.setdefault(shape_of(job), []).append(i)
    return alone, list(groups.values())


def _shapes(value: Slots | Snapshot | Tensors | Tensor) -> Hashable:
    """List the names, shapes and types of all tensors in a slot or in several."""
    if isinstance(value, Tensor):
        return tuple(value.shape), value.dtype
    named = value._asdict() if isinstance(value, Snapshot) else value
    return tuple(sorted((name, _shapes(inner)) for name, inner in named.items()))
