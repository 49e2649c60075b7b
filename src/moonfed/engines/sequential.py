"""The reference engine: one party after the other, one step after the other."""

from collections.abc import Sequence

import torch

from moonfed.data.augment import gather
from moonfed.data.batches import BatchPlan
from moonfed.data.dataset import Dataset
from moonfed.engines.base import EngineOptions, Job, JobResult, Nets
from moonfed.engines.cuda.precision import in_precision, numerics
from moonfed.engines.dropout import begin_step, drawing, listen
from moonfed.engines.stacked.schedule import CHUNK
from moonfed.engines.step import Batch, conclude, forward_anchor, gamma_of, on_device, prepare, step


class Sequential:
    """Runs each job by itself."""

    def __init__(self, nets: Nets, data: Dataset, options: EngineOptions) -> None:
        listen(nets.training, data)
        self.nets, self.data = in_precision(nets, options.precision), data
        self.precision = options.precision

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results come in the order of the jobs."""
        with numerics(self.precision), drawing(self.nets.training, self.data.inputs.device):
            return [self._run(job) for job in jobs]

    def _run(self, job: Job) -> JobResult:
        carry, fixed, anchors = prepare(job)
        dtype = next(iter(carry.model.weights.values())).dtype
        plan, history = on_device(self.data, job.plan), []
        for first in range(0, len(plan.rows), CHUNK):
            x, y = gather(self.data, BatchPlan(*(part[first : first + CHUNK] for part in plan)), dtype)
            seen_by = {k: forward_anchor(self.nets.inference, a, x.flatten(0, 1)) for k, a in anchors.items()}
            for s in range(len(x)):
                now = slice(s * x.shape[1], (s + 1) * x.shape[1])
                said = {k: type(out)(*(part[now] for part in out)) for k, out in seen_by.items()}
                seen = Batch(x[s], y[s], said, plan.keys[first + s])
                begin_step(self.nets.training, seen.key)
                carry, parts = step(self.nets.training, job.local, carry, seen, fixed, job.max_grad_norm > 0)
                history.append(parts)
        losses = {k: torch.stack([parts[k] for parts in history]).cpu() for k in history[0]}
        return conclude(job, carry, fixed, losses, gamma_of(self.nets, self.data, job, carry.model))
