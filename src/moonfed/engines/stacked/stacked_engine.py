"""The stacked engine: parties of all trials train at once in the lanes of a stack, with one step for all lanes."""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import fields
from typing import Any, cast

import torch
from torch import Tensor, nn

from moonfed.core.errors import RunFailed
from moonfed.core.files import pack
from moonfed.data.augment import normalise
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import EngineOptions, Job, JobResult, Nets
from moonfed.engines.cuda.cuda_graphs import CaptureError, CudaGraphStack
from moonfed.engines.cuda.precision import numeric_precision, with_precision
from moonfed.engines.devices import free_memory, is_gpu, peak_memory, release_memory, reset_peak_memory
from moonfed.engines.dropout import inspect_randomness, preserve_torch_rng, uses_torch_rng
from moonfed.engines.stacked.executor import run_schedule
from moonfed.engines.stacked.graph_cache import GraphCache, first_line
from moonfed.engines.stacked.lanes import LaneState, Stack
from moonfed.engines.stacked.layout import CPU_LAYOUT, GPU_LAYOUTS
from moonfed.engines.stacked.schedule import MAX_CHUNK_STEPS, Schedule, make_schedule, pick_chunk, pick_width
from moonfed.engines.stacked.stack_spec import CPU_CACHE_BYTES, StackSpec
from moonfed.engines.stacked.stacked_ops import StackedOps
from moonfed.engines.step import conclude, float_settings, gamma_of, on_device, prepare

logger = logging.getLogger(__name__)

MAX_CACHED_STACKS = 12  # on a GPU: as many methods may share a command without a new compilation
CPU_STEP_OVERHEAD = 1.0  # what a step costs beside its lanes, in lanes; measured
GPU_STEP_OVERHEAD = 7.0
NO_LIMIT = 10**6  # lanes


class Stacked:
    """Runs all jobs of one shape as one stack; on a GPU its step is captured as a CUDA graph and replayed."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        inspect_randomness(nets.training, data)
        self.nets, self.data, self.options = with_precision(nets, options.precision), data, options
        self.fp32_nets = nets  # for stacked lanes, whose operations bring their own precision
        self.device = data.inputs.device
        self.gpu = is_gpu(self.device)
        self.widest = widest_layer(nets.inference, data)
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
            groups.setdefault(_shape_of(job), []).append(i)
        done: dict[int, JobResult] = {}
        with numeric_precision(self.options.precision), preserve_torch_rng(self.nets.training, self.device):
            for shape, members in groups.items():
                results = self._run_or_retry(shape, [jobs[i] for i in members])
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
        states = [LaneState(*prepare(job)) for job in jobs]
        plans = [job.plan for job in jobs]
        stack, schedule = self._stack_for(shape, plans, jobs[0], states[0])
        ends = run_schedule(stack, schedule, plans, states, self.data)
        return [
            conclude(job, carry, state.fixed, losses, gamma_of(self.nets, self.data, job, carry.model))
            for job, state, (carry, losses) in zip(jobs, states, ends, strict=True)
        ]

    def _stack_for(
        self, shape: Hashable, plans: Sequence[BatchPlan], job: Job, like: LaneState
    ) -> tuple[Stack, Schedule]:
        """Choose the number of lanes for a cohort; make a stack, or reuse one of an earlier round."""
        lengths = [len(plan.rows) for plan in plans]
        earlier = self.stacks.get(shape)
        limit = min(self.lane_limit, len(plans), self._lanes_that_fit(shape, plans[0], job, like))
        chunk = earlier.chunk if earlier else pick_chunk(lengths, self._max_chunk(limit * plans[0].rows.shape[1]))
        self.width = width = pick_width(lengths, chunk, limit, GPU_STEP_OVERHEAD if self.gpu else CPU_STEP_OVERHEAD)
        if earlier and is_reusable(earlier.width, width):
            self.width = earlier.width
            return earlier, make_schedule(lengths, earlier.width, chunk)
        spec = self._make_spec(shape, job, single=width == 1)
        schedule = make_schedule(lengths, width, chunk)
        if not self.gpu or shape in self.uncapturable or uses_torch_rng(self.nets.training):
            return Stack(spec, width, chunk, like), schedule
        self.stacks.pop(shape, None)
        while len(self.stacks) >= MAX_CACHED_STACKS:  # the oldest is dropped
            del self.stacks[next(iter(self.stacks))]
        plan = on_device(self.data, first_chunk(plans[0], chunk))
        self.stacks[shape] = CudaGraphStack(spec, width, chunk, like, plan, self.options.compile)
        return self.stacks[shape], schedule

    def _make_spec(self, shape: Hashable, job: Job, single: bool) -> StackSpec:
        layout = GPU_LAYOUTS[self.options.precision] if self.gpu else CPU_LAYOUT
        ops = None if single else StackedOps(layout)
        clip = job.max_grad_norm > 0
        if single or self.gpu:  # a single net may branch on values; a GPU has CUDA graphs instead of traces
            nets = self.nets if single or not layout.fp16 else self.fp32_nets
            return StackSpec(nets, self.data, job.local, ops, self.widest, clip)
        return StackSpec(self.nets, self.data, job.local, ops, self.widest, clip, shape, self.graphs)

    def _max_chunk(self, rows: int) -> int:
        """Return how many steps with this many rows may be gathered at once; on a CPU they should fit its cache."""
        bytes_per_step = rows * self.data.inputs[0].numel() * 4
        return MAX_CHUNK_STEPS if self.gpu else min(MAX_CHUNK_STEPS, max(1, 2 * CPU_CACHE_BYTES // bytes_per_step))

    def _lanes_that_fit(self, shape: Hashable, plan: BatchPlan, job: Job, like: LaneState) -> int:
        """Return the most lanes of a shape: one if vmap refuses the net or the rule, else what fits into memory."""
        if shape not in self.max_lanes:
            self.max_lanes[shape] = self._measure_max_lanes(shape, plan, job, like)
        return self.max_lanes[shape]

    def _measure_max_lanes(self, shape: Hashable, plan: BatchPlan, job: Job, like: LaneState) -> int:
        one_step = on_device(self.data, first_chunk(plan, 1))
        if self.lane_limit == 1:
            return 1
        try:
            used = self._trial_step(self._make_spec(shape, job, single=False), one_step, like)
        except torch.OutOfMemoryError:
            return 1
        except RuntimeError as error:  # what vmap raises
            self._trial_step(self._make_spec(shape, job, single=True), one_step, like)  # raises what is no refusal
            _log_not_vectorisable(error)
            return 1
        if not self.gpu:
            return max(1, CPU_CACHE_BYTES // (plan.rows.shape[1] * self.widest * 4))
        return max(1, int(0.8 * free_memory(self.device) / max(1, used * MAX_CHUNK_STEPS)))

    def _trial_step(self, spec: StackSpec, plan: BatchPlan, like: LaneState) -> int:
        """Take a step with one lane to see whether it is possible; return the bytes of GPU memory that it took."""
        before = reset_peak_memory(self.device)
        stack = Stack(spec, 1, 1, like)
        stack.start_round(None)
        stack.load_lane(0, like)
        stack.gather_chunk(plan, plan.rows, 1)
        stack.step()
        return peak_memory(self.device) - before


def _log_not_vectorisable(error: RuntimeError) -> None:
    logger.info(
        "parties train one after the other: the network or the rule cannot be vectorised (%s)", first_line(error)
    )


def is_reusable(width: int, wanted: int) -> bool:
    """Whether a stack of one width may be used where another is wanted: making one can take a minute."""
    return 0.8 * wanted <= width <= 2 * wanted


def first_chunk(plan: BatchPlan, chunk: int) -> BatchPlan:
    """Return the first steps of a plan, in one lane; a plan that is shorter than a chunk is repeated."""
    return BatchPlan(*(torch.cat([part[:chunk]] * -(-chunk // len(part)))[None, :chunk] for part in plan))


def widest_layer(net: nn.Module, data: Dataset) -> int:
    """Count the values that the widest layer of a network outputs per row."""
    widest = 1

    def record(layer: nn.Module, args: Any, output: Any) -> None:
        nonlocal widest
        several = isinstance(output, tuple | list)  # an LSTM returns its state as well
        outputs: Sequence[Any] = cast(Sequence[Any], output) if several else (output,)
        widest = max([widest, *(t.numel() for t in outputs if isinstance(t, Tensor))])

    hooks = [layer.register_forward_hook(record) for layer in net.modules()]
    dtype = next(net.parameters()).dtype
    with torch.no_grad():
        net(normalise(data, data.inputs[:1], dtype))
    for hook in hooks:
        hook.remove()
    return widest


def _shape_of(job: Job) -> Hashable:
    """Identify jobs that may share a stack: equal rules except for float settings, memories of equal shapes."""
    floats = float_settings(job.local)
    rule = tuple((f.name, getattr(job.local, f.name)) for f in fields(job.local) if f.name not in floats)
    memory = tuple(sorted((k, tuple(v.shape)) for k, v in (pack(job.memory) | pack(job.state.sent)).items()))
    return type(job.local), rule, memory, job.plan.rows.shape[1], job.max_grad_norm > 0
