"""The reference engine: one party after the other, one step after the other."""

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial

import torch
from torch.func import functional_call

from moonfed.core.seeds import torch_aside
from moonfed.core.types import Outputs, Tensors
from moonfed.data.augment import gather, sample_inputs
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import EngineOptions, Job, JobResult, Nets
from moonfed.engines.cuda.precision import numeric_precision, with_precision
from moonfed.engines.devices import is_gpu
from moonfed.engines.dropout import seed_step
from moonfed.engines.gamma import gamma_of
from moonfed.engines.party_round import conclude, prepare
from moonfed.engines.stacked.schedule import MAX_CHUNK_STEPS
from moonfed.engines.step import Batch, on_device, single_lane, step
from moonfed.engines.stopwatch import timed


class Sequential:
    """Runs each job by itself."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        self.gpu = is_gpu(data.inputs.device)
        self.nets = with_precision(nets, options.precision, sample_inputs(data)) if self.gpu else nets
        self.data, self.precision = data, options.precision

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results are in the order of the jobs."""
        precision = numeric_precision(self.precision) if self.gpu else nullcontext()
        generator_aside = torch_aside(self.data.inputs.device) if self.nets.uses_torch_rng else nullcontext()
        with precision, generator_aside:
            return [result for job in jobs for result in timed(partial(self._run_alone, job))]

    def _run_alone(self, job: Job) -> list[JobResult]:
        ((carry, fixed, anchors),) = prepare([job])
        dtype = next(iter(carry.model.weights.values())).dtype
        plan = on_device(self.data, job.plan)
        clip = job.max_grad_norm > 0
        history: list[Tensors] = []
        for first in range(0, len(plan.rows), MAX_CHUNK_STEPS):
            x, y = gather(self.data, BatchPlan(*(part[first : first + MAX_CHUNK_STEPS] for part in plan)), dtype)
            rows = x.flatten(0, 1)
            outputs = {k: functional_call(self.nets.inference, a, rows) for k, a in anchors.items()}
            for s in range(len(x)):
                own = slice(s * x.shape[1], (s + 1) * x.shape[1])
                of_batch = {k: Outputs(*(part[own] for part in out)) for k, out in outputs.items()}
                batch = Batch(x[s], y[s], of_batch, plan.keys[first + s], plan.numbers[first + s])
                seed_step(self.nets, batch.key)
                carry, parts = step(self.nets, job.local, job.optimizer, clip, single_lane, carry, batch, fixed)
                history.append(parts)
        losses = {k: torch.stack([parts[k] for parts in history]).cpu() for k in history[0]}
        gamma = gamma_of(self.nets, self.data, job, carry.model)
        return conclude([job], [carry], [fixed], [losses], [gamma])
