"""What every engine takes and returns: jobs in, results out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, runtime_checkable

from torch import nn

from moonfed.core.rules import LocalRule
from moonfed.core.types import PartyInfo, Slots, State, Tensors, Upload
from moonfed.data.batches import BatchPlan
from moonfed.engines.local_optimizer import SGD, LocalOptimizer


@dataclass(frozen=True)
class Job:
    """One party's round of one trial, ready to run."""

    info: PartyInfo
    local: LocalRule
    state: State
    memory: Slots
    plan: BatchPlan
    round: int  # from 0
    lr: float
    momentum: float
    weight_decay: float
    probe: BatchPlan | None = None  # batches on which gamma is measured, if it is
    max_grad_norm: float = 0.0  # gradients are clipped to this norm; 0: never
    optimizer: LocalOptimizer = SGD
    private: frozenset[str] = frozenset()  # names of the tensors that never leave the party
    peers: int = 1  # parties of the same trial and round with batches of this size, this one included

    @property
    def party(self) -> int:
        """The number of the party."""
        return self.info.party


@dataclass(frozen=True)
class JobResult:
    """What a job returns."""

    upload: Upload
    memory: Slots
    losses: Tensors  # each named part of the loss: [step], on the CPU
    gamma: float | None = None  # norm of the local gradient after the round over before
    seconds: float = 0.0  # of one device or process; of a stack, the job's part by steps


@dataclass(frozen=True)
class EngineOptions:
    """How an engine executes its jobs; results are equal to the rounding of the precision."""

    precision: str = "fp32"
    lanes: int = 0  # maximum number; 0: as many as pay off
    compile: bool = False  # on a GPU; training goes on meanwhile
    wait_for_compiler: bool = False  # before the first step: to measure, and to test
    slices: int = 1  # of a cohort, each trained by itself


class Nets(NamedTuple):
    """The network twice, as code without trainable weights, and what trial forward passes showed of it."""

    training: nn.Module  # for steps
    inference: nn.Module  # for anchors and evaluation
    uses_dropout: bool  # drawn from the counter of engines/dropout.py
    uses_torch_rng: bool  # whether it draws from torch's generator, which lanes cannot share
    widest: int  # values that its widest layer outputs per row


@runtime_checkable
class Closing(Protocol):
    """What an engine can do beside that starts processes which outlast a cohort."""

    def close(self) -> None:
        """End the processes; the next cohort starts them again."""
        ...


class Engine(Protocol):
    """Trains the parties of a round."""

    def run_cohort(self, jobs: Sequence[Job]) -> list[JobResult]:
        """Train every job's party; results are in the order of the jobs."""
        ...
