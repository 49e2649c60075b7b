"""The reference engine: one party after the other, one step after the other."""

from collections.abc import Sequence

import torch

from moonfed.core.types import Outputs, Tensors
from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import EngineOptions, Job, JobResult, Nets
from moonfed.engines.cuda.precision import numeric_precision, with_precision
from moonfed.engines.dropout import inspect_randomness, preserve_torch_rng, seed_step
from moonfed.engines.stacked.schedule import MAX_CHUNK_STEPS
from moonfed.engines.step import Batch, conclude, forward_anchor, gamma_of, on_device, prepare, step


class Sequential:
    """Runs each job by itself."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        inspect_randomness(nets.training, data)
        self.nets, self.data = with_precision(nets, options.precision), data
        self.precision = options.precision

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results are in the order of the jobs."""
        with numeric_precision(self.precision), preserve_torch_rng(self.nets.training, self.data.inputs.device):
            return [self._run(job) for job in jobs]

    def _run(self, job: Job) -> JobResult:
        carry, fixed, anchors = prepare(job)
        dtype = next(iter(carry.model.weights.values())).dtype
        plan = on_device(self.data, job.plan)
        history: list[Tensors] = []
        for first in range(0, len(plan.rows), MAX_CHUNK_STEPS):
            x, y = gather(self.data, BatchPlan(*(part[first : first + MAX_CHUNK_STEPS] for part in plan)), dtype)
            outputs = {k: forward_anchor(self.nets.inference, a, x.flatten(0, 1)) for k, a in anchors.items()}
            for s in range(len(x)):
                rows = slice(s * x.shape[1], (s + 1) * x.shape[1])
                of_batch = {k: Outputs(*(part[rows] for part in out)) for k, out in outputs.items()}
                batch = Batch(x[s], y[s], of_batch, plan.keys[first + s])
                seed_step(self.nets.training, batch.key)
                carry, parts = step(self.nets.training, job.local, carry, batch, fixed, job.max_grad_norm > 0)
                history.append(parts)
        losses = {k: torch.stack([parts[k] for parts in history]).cpu() for k in history[0]}
        return conclude(job, carry, fixed, losses, gamma_of(self.nets, self.data, job, carry.model))
