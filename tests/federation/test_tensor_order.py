"""The order in which tensors arrive at a site: it changes no bit of what the site trains."""

from collections.abc import Callable
from pathlib import Path

import pytest
from federations import weights
from in_process import InProcessTransport, World

from moonfed.core.types import Slots, Tensors
from moonfed.federation.protocol.request import Envelope
from moonfed.federation.site import trainer
from moonfed.training.config import Config

Order = Callable[[Tensors], Tensors]


def by_name(tensors: Tensors) -> Tensors:
    return dict(sorted(tensors.items()))


def backwards(tensors: Tensors) -> Tensors:
    return dict(reversed(tensors.items()))


class Clipped(World):
    """Sites that clip gradients, whose norm is a sum over the tensors in their order."""

    def settings(self, rounds: int) -> Config:
        config = super().settings(rounds)
        return config.model_copy(update={"train": config.train.model_copy(update={"max_grad_norm": 0.5})})


class Reordering(InProcessTransport):
    """Delivers every request with its tensors in another order."""

    order: Order = staticmethod(by_name)

    def send(self, site: str, envelope: Envelope) -> None:
        super().send(site, Envelope(envelope.fields, self.order(envelope.tensors)))


@pytest.mark.parametrize("algorithm", ["fedavg", "moon", "scaffold"])
@pytest.mark.parametrize("order", [by_name, backwards])
def test_tensors_in_any_order_train_to_the_bits_of_the_models_order(
    tmp_path: Path, algorithm: str, order: Order
) -> None:
    world = Clipped(tmp_path, algorithm)
    transport = Reordering(world.folders)
    transport.order = order
    world.federate(transport)
    assert weights(tmp_path / "run") == world.simulated()


def test_without_the_models_order_the_bits_would_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def as_received(slots: Slots, names: list[str]) -> Slots:
        return slots

    monkeypatch.setattr(trainer, "in_order", as_received)
    world = Clipped(tmp_path, "fedavg")
    transport = Reordering(world.folders)
    transport.order = backwards
    world.federate(transport)
    assert weights(tmp_path / "run") != world.simulated()
