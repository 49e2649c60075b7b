"""The stacked engine: lanes (trial x party) side by side, parties one behind the other in them, one step for all."""

import logging
from collections.abc import Hashable, Sequence
from dataclasses import fields
from typing import Any

import torch
from torch import nn

from moonfed.core.errors import RunFailed
from moonfed.core.tree import pack
from moonfed.data.augment import normalise
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import EngineOptions, Job, JobResult, Nets
from moonfed.engines.cuda.cuda_graphs import CannotCapture, GraphedStack
from moonfed.engines.cuda.precision import in_precision, numerics
from moonfed.engines.dropout import drawing, draws, listen
from moonfed.engines.stacked.executor import run_schedule
from moonfed.engines.stacked.graph_cache import Traces
from moonfed.engines.stacked.lanes import CACHE, LaneState, Stack, StackSpec
from moonfed.engines.stacked.layout import BF16, CPU, FP16, GPU, TF32, SideBySide
from moonfed.engines.stacked.schedule import CHUNK, Schedule, pick_chunk, pick_width, schedule
from moonfed.engines.step import conclude, float_settings, gamma_of, on_device, prepare

logger = logging.getLogger(__name__)

KEPT = 12  # stacks whose graphs and memory are kept on a GPU: as many methods may share a command without recompiling
LAYOUTS = {"fp32": GPU, "tf32": TF32, "fp16": FP16, "bf16": BF16}
OVERHEAD = {"cpu": 1.0, "cuda": 7.0}  # what a step costs however few lanes it has, in lanes; measured


class Stacked:
    """Runs all jobs of one shape as one stack; on a GPU its step is captured as a graph and replayed."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        listen(nets.training, data)
        self.nets, self.data, self.options = in_precision(nets, options.precision), data, options
        self.plain = nets  # for lanes that bring their own precision
        self.cuda = data.inputs.is_cuda
        self.widest = widest_layer(nets.inference, data)
        self.most = options.lanes or 10**6  # falls when memory runs out
        self.kept: dict[Hashable, GraphedStack] = {}
        self.uncaptured: set[Hashable] = set()
        self.traces = Traces()
        self.room: dict[Hashable, int] = {}  # most lanes of a shape
        self.width = 1  # lanes of the last stack

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results come in the order of the jobs."""
        stacks: dict[Hashable, list[int]] = {}
        for i, job in enumerate(jobs):
            stacks.setdefault(_shape_of(job), []).append(i)
        done: dict[int, JobResult] = {}
        with numerics(self.options.precision), drawing(self.nets.training, self.data.inputs.device):
            for shape, members in stacks.items():
                results = self._fit(shape, [jobs[i] for i in members])
                done |= dict(zip(members, results, strict=True))
        return [done[i] for i in range(len(jobs))]

    def _fit(self, shape: Hashable, jobs: Sequence[Job]) -> list[JobResult]:
        """Run a stack; where it cannot be captured or does not fit into memory, run it again another way."""
        while True:
            try:
                return self._run(shape, jobs)
            except torch.OutOfMemoryError:
                pass  # outside of the except clause, so that what the failed stack held is let go
            except CannotCapture as error:
                self.kept.pop(shape, None)
                self.uncaptured.add(shape)
                logger.info(f"steps run one operation at a time: they cannot be captured ({error})")
                continue
            except Exception as refusal:
                if self.room.get(shape, 1) == 1 or self.most == 1:
                    raise
                self._in_turn(refusal)
                self.room[shape] = 1
                continue
            self.kept.clear()
            torch.cuda.empty_cache()
            if self.width <= 1:
                raise RunFailed("one party alone does not fit into memory; use a smaller --batch")
            self.most = self.width // 2
            logger.info(f"out of memory: going on with {self.most} lanes")

    def _run(self, shape: Hashable, jobs: Sequence[Job]) -> list[JobResult]:
        held = [LaneState(*prepare(job)) for job in jobs]
        plans = [job.plan for job in jobs]
        stack, order = self._stack(shape, plans, jobs[0], held[0])
        passed = run_schedule(stack, order, plans, held, self.data)
        return [
            conclude(job, end, had.fixed, losses, gamma_of(self.nets, self.data, job, end.model))
            for job, had, (end, losses) in zip(jobs, held, passed, strict=True)
        ]

    def _stack(self, shape: Hashable, plans: Sequence[BatchPlan], job: Job, like: LaneState) -> tuple[Stack, Schedule]:
        """Choose how many lanes a cohort gets, and set them up or take those of an earlier round."""
        lengths = [len(plan.rows) for plan in plans]
        had = self.kept.get(shape)
        most = min(self.most, len(plans), self._most(shape, plans[0], job, like))
        chunk = had.chunk if had else pick_chunk(lengths, self._longest_chunk(most * plans[0].rows.shape[1]))
        self.width = width = pick_width(lengths, chunk, most, OVERHEAD["cuda" if self.cuda else "cpu"])
        if had and serves(had.width, width):
            self.width = had.width
            return had, schedule(lengths, had.width, chunk)
        work = self._work(shape, job, alone=width == 1)
        if not self.cuda or shape in self.uncaptured or draws(self.nets.training):
            return Stack(work, width, chunk, like), schedule(lengths, width, chunk)
        self.kept.pop(shape, None)
        while len(self.kept) >= KEPT:  # the oldest makes room
            del self.kept[next(iter(self.kept))]
        self.kept[shape] = GraphedStack(
            work, width, chunk, like, on_device(self.data, in_window(plans[0], chunk)), self.options.compile
        )
        return self.kept[shape], schedule(lengths, width, chunk)

    def _work(self, shape: Hashable, job: Job, alone: bool) -> StackSpec:
        layout = LAYOUTS[self.options.precision] if self.cuda else CPU
        lanes = None if alone else SideBySide(layout)
        clip = job.max_grad_norm > 0
        if alone or self.cuda:  # a lone net may branch on its values; a GPU has CUDA graphs instead of FX ones
            nets = self.nets if alone or not layout.half else self.plain
            return StackSpec(nets, self.data, job.local, lanes, self.widest, clip)
        return StackSpec(self.nets, self.data, job.local, lanes, self.widest, clip, shape, self.traces)

    def _longest_chunk(self, rows: int) -> int:
        """Say how many steps may be gathered at once, with this many rows a step: a CPU's cache is soon full."""
        bytes_a_step = rows * self.data.inputs[0].numel() * 4
        return CHUNK if self.cuda else min(CHUNK, max(1, 2 * CACHE // bytes_a_step))

    def _most(self, shape: Hashable, plan: BatchPlan, job: Job, like: LaneState) -> int:
        """Find out how many lanes can work at once: one, if vmap refuses the net or the rule; else what fits."""
        if shape not in self.room:
            self.room[shape] = self._measured(shape, plan, job, like)
        return self.room[shape]

    def _measured(self, shape: Hashable, plan: BatchPlan, job: Job, like: LaneState) -> int:
        window = on_device(self.data, in_window(plan, 1))
        if self.most == 1:
            return 1
        try:
            used = self._tried(self._work(shape, job, alone=False), window, like)
        except torch.OutOfMemoryError:
            return 1
        except Exception as refusal:
            # What fails by itself, too, is no matter of stacking.
            self._tried(self._work(shape, job, alone=True), window, like)
            self._in_turn(refusal)
            return 1
        if not self.cuda:
            return max(1, CACHE // (plan.rows.shape[1] * self.widest * 4))
        free = torch.cuda.mem_get_info()[0] + torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
        return max(1, int(0.8 * free / max(1, used * CHUNK)))

    def _in_turn(self, refusal: Exception) -> None:
        why = (str(refusal).strip() or type(refusal).__name__).splitlines()[0][:160]
        logger.info(f"parties train in turn: the network or the rule cannot be stacked ({why})")

    def _tried(self, work: StackSpec, window: BatchPlan, like: LaneState) -> int:
        """Take a first step with one lane, for nothing but to see whether it can be done; return the bytes it took."""
        if self.cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if self.cuda else 0
        stack = Stack(work, 1, 1, like)
        stack.begin(None)
        stack.load(0, like)
        stack.look(window, window.rows, 1)
        stack.step()
        return torch.cuda.max_memory_allocated() - before if self.cuda else 0


def serves(had: int, wanted: int) -> bool:
    """Say whether a stack that is there serves where another width was wanted: setting one up can take a minute."""
    return 0.8 * wanted <= had <= 2 * wanted


def in_window(plan: BatchPlan, chunk: int) -> BatchPlan:
    """Take as many of a plan's steps as a chunk has, in one lane; a plan may be shorter."""
    return BatchPlan(*(torch.cat([part[:chunk]] * -(-chunk // len(part)))[None, :chunk] for part in plan))


def widest_layer(net: nn.Module, data: Dataset) -> int:
    """Count the numbers that the widest layer of a network gives for one row."""
    widest = 1

    def note(layer: nn.Module, given: Any, made: Any) -> None:
        nonlocal widest
        found = made if isinstance(made, tuple | list) else (made,)  # an LSTM gives more than it says
        widest = max([widest, *(t.numel() for t in found if isinstance(t, torch.Tensor))])

    hooks = [layer.register_forward_hook(note) for layer in net.modules()]
    own = next(net.parameters())
    with torch.no_grad():
        net(normalise(data, data.inputs[:1], own.dtype))
    for hook in hooks:
        hook.remove()
    return widest


def _shape_of(job: Job) -> Hashable:
    """Say which jobs may share a stack: the same rule but for its float settings, memories of the same shape."""
    floats = float_settings(job.local)
    rule = tuple((f.name, getattr(job.local, f.name)) for f in fields(job.local) if f.name not in floats)  # type: ignore[arg-type]
    memory = tuple(sorted((k, tuple(v.shape)) for k, v in (pack(job.memory) | pack(job.state.sent)).items()))
    return type(job.local), rule, memory, job.plan.rows.shape[1], job.max_grad_norm > 0
