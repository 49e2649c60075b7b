"""FedMA: units in another order are recognised, and where none has moved it is FedAvg."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.func import functional_call
from worlds import gap, ready, run_one, same_bits, settings, some_digits, some_texts

from moonfed.aggregators.fedma import FedMAAggregator
from moonfed.core.errors import UserError
from moonfed.core.matching import layer_chain, match_units, reorder
from moonfed.core.private_tensors import private_part
from moonfed.core.rules import Aggregator
from moonfed.core.tree import sub
from moonfed.core.types import PartyInfo, Population, ReceivedUpload, Snapshot, State, Update, Upload
from moonfed.models.custom import custom_encoder
from moonfed.training.setup import set_up

NETS = [("cnn", 0, "none"), ("cnn", 16, "none"), ("cnn", 16, "batch"), ("mlp", 0, "none"), ("mlp", 16, "batch")]
INFO, ALL = PartyInfo(0, 1, (1,)), Population(2, 2)


def network(model: str, projection: int, norm: str) -> tuple[Any, Snapshot]:
    """A network with random weights, normalisation included, and a model of it."""
    config = settings("fedma", model__model=model, model__projection=projection, model__norm=norm)
    context, (trial,) = ready(config)
    torch.manual_seed(0)
    weights, buffers = trial.state.model
    return context.nets.inference, Snapshot(
        {k: torch.rand_like(v) - 0.3 for k, v in weights.items()},
        {k: torch.rand_like(v) if v.dim() else v for k, v in buffers.items()},
    )


def shuffled(model: Snapshot, seed: int) -> Snapshot:
    """The same function with the units of every hidden layer in a random order."""
    chain = layer_chain(model, "fedma")
    torch.manual_seed(seed)
    orders = [torch.randperm(layer.units) for layer in chain[:-1]]
    return Snapshot(reorder(chain, model.weights, orders), reorder(chain, model.buffers, orders))


def logits(net: Any, model: Snapshot) -> torch.Tensor:
    rows = some_digits().test_inputs.to(torch.get_default_dtype()) / 255
    return functional_call(net, (model.weights, model.buffers), (rows,)).logits


def average(sent: Snapshot, parties: list[Snapshot], shares: list[float], rule: Aggregator | None = None) -> Snapshot:
    """The model after a round in which the parties end with these models."""
    state = State(sent, {}, {})
    uploads = [Upload(sub(model.weights, sent.weights), model.buffers, {}, 1, 1.0) for model in parties]
    received = {k: ReceivedUpload(*pair, INFO) for k, pair in enumerate(zip(uploads, shares, strict=True))}
    update = (rule or FedMAAggregator()).reduce(state, received, ALL)
    return Snapshot({k: v + update.delta[k] for k, v in sent.weights.items()}, update.buffers)


def fedavg(sent: Snapshot, parties: list[Snapshot], shares: list[float]) -> Snapshot:
    class Mean(Aggregator):
        def reduce(self, state: State, received: dict[int, ReceivedUpload], population: Population) -> Update:
            parts = [self.contribute(each.upload, each.info, each.share) for each in received.values()]
            total = parts[0]
            for part in parts[1:]:
                total = {k: v + part[k] for k, v in total.items()}
            update = self.update(state, total, population)
            assert update is not None
            return update

    return average(sent, parties, shares, Mean())


@pytest.mark.parametrize(("model", "projection", "norm"), NETS)
def test_the_order_of_hidden_units_does_not_change_what_a_network_computes(model, projection, norm, float64):
    net, whole = network(model, projection, norm)
    other = shuffled(whole, 1)
    assert gap(other.weights, whole.weights) > 0.1
    assert torch.allclose(logits(net, whole), logits(net, other), rtol=1e-10)


@pytest.mark.parametrize(("model", "projection", "norm"), NETS)
def test_permuted_copies_of_a_network_are_recovered(model, projection, norm, float64):
    """From any start: every copy is brought into the same order, and into the start's own where they began there."""
    net, whole = network(model, projection, norm)
    copies = [shuffled(whole, seed) for seed in (1, 2, 3)]
    mean = average(whole, copies, [0.2, 0.3, 0.5])
    assert gap(mean, whole) < 1e-14
    elsewhere = Snapshot({k: torch.rand_like(v) for k, v in whole.weights.items()}, whole.buffers)
    assert torch.allclose(logits(net, average(elsewhere, copies, [0.2, 0.3, 0.5])), logits(net, whole), rtol=1e-9)
    assert not torch.allclose(logits(net, fedavg(whole, copies, [0.2, 0.3, 0.5])), logits(net, whole), rtol=0.01)


def test_one_party_and_equal_parties_give_the_partys_model(float64):
    net, sent = network("mlp", 16, "none")
    moved = Snapshot({k: v + 0.01 * torch.rand_like(v) for k, v in sent.weights.items()}, {})
    for parties in ([moved], [moved] * 3):
        assert gap(average(sent, parties, [0.5] * len(parties)), moved) < 1e-14
    there = shuffled(moved, 4)
    assert torch.allclose(logits(net, average(sent, [there], [2.0])), logits(net, moved), rtol=1e-10)


@pytest.mark.parametrize(("model", "projection", "norm"), NETS)
def test_near_the_start_no_unit_moves_and_fedma_is_fedavg_to_the_bit(model, projection, norm):
    _, sent = network(model, projection, norm)
    parties = [Snapshot({k: v + 0.01 * torch.randn_like(v) for k, v in sent.weights.items()}, sent.buffers)] * 2
    chain = layer_chain(sent, "fedma")
    assert match_units(chain, parties[0].weights, sent.weights) == [None] * (len(chain) - 1)
    assert same_bits(average(sent, parties, [0.7, 0.2]), fedavg(sent, parties, [0.7, 0.2]))


def chain_of(first: list[list[float]], bias: list[float], last: list[list[float]]) -> Snapshot:
    weights = {"a.weight": torch.tensor(first), "a.bias": torch.tensor(bias)}
    return Snapshot(weights | {"b.weight": torch.tensor(last), "b.bias": torch.zeros(len(last))}, {})


def test_shares_weight_the_mean_of_units_that_match_and_classes_stay():
    """The second party's units are swapped and 4 larger; with shares 3 and 1 the mean is 1 larger."""
    sent = chain_of([[0.0], [10.0]], [0.0, 0.0], [[1.0, 2.0], [3.0, 4.0]])
    swapped = chain_of([[14.0], [4.0]], [4.0, 0.0], [[2.0, 1.0], [4.0, 7.0]])
    after = average(sent, [sent, swapped], [3.0, 1.0]).weights
    assert after["a.weight"].tolist() == [[1.0], [11.0]]
    assert after["a.bias"].tolist() == [0.0, 1.0]
    assert after["b.weight"].tolist() == [[1.0, 2.0], [4.0, 4.0]]
    crossed = chain_of([[0.0], [10.0]], [0.0, 0.0], [[3.0, 4.0], [1.0, 2.0]])
    assert average(sent, [crossed], [1.0]).weights["b.weight"].tolist() == [[3.0, 4.0], [1.0, 2.0]], "classes stay"


def test_units_are_assigned_by_squared_distances():
    """Units at 1.5 and 2.25 for places 0 and 1: squares 1.5^2 + 1.25^2 < 2.25^2 + 0.5^2, by distances 2.75 each."""
    places, units = (chain_of([[x], [y]], [0.0, 0.0], [[1.0, 2.0]]) for x, y in ((0.0, 1.0), (2.25, 1.5)))
    (order,) = match_units(layer_chain(places, "fedma"), units.weights, places.weights)
    assert order is not None
    assert order.tolist() == [1, 0]


def test_the_bias_decides_where_weights_are_equal_and_equal_units_stay():
    sent = chain_of([[1.0], [1.0]], [0.0, 5.0], [[1.0, 2.0]])
    assert average(sent, [chain_of([[1.0], [1.0]], [5.0, 0.0], [[2.0, 1.0]])], [1.0]).weights["b.weight"].tolist() == [
        [1.0, 2.0]
    ]
    twins = chain_of([[1.0], [1.0]], [0.0, 0.0], [[1.0, 2.0]])
    assert match_units(layer_chain(twins, "fedma"), twins.weights, twins.weights) == [None]


def test_the_inputs_of_a_flattened_channel_move_together():
    """Two channels of three pixels: swapping the channels swaps blocks of three inputs."""
    weights = {"a.weight": torch.zeros(2, 1, 3, 3), "b.weight": torch.arange(6.0)[None]}
    chain = layer_chain(Snapshot(weights, {}), "fedma")
    assert [layer.block for layer in chain] == [1, 3]
    assert reorder(chain, weights, [torch.tensor([1, 0])])["b.weight"].tolist() == [[3, 4, 5, 0, 1, 2]]


@pytest.mark.parametrize("engine", ["sequential", "stacked"])
def test_a_run_in_which_no_unit_moves_is_fedavgs_to_the_bit(engine):
    fedavg, fedma = (run_one(settings(name), engine) for name in ("fedavg", "fedma"))
    assert same_bits(fedavg.state.model, fedma.state.model)


def test_where_the_output_layer_stays_at_the_party_the_units_before_it_keep_their_places():
    """FedPer's heads are private, so the last layer that travels is the one whose units are not permuted.

    The heads of the parties read its units by their places.
    """
    trial = run_one(settings("fedper+fedma"))
    assert trial.spec.private == {"head.weight", "head.bias"}
    public, private = trial.shared_model, private_part(trial.state.model, trial.spec.private)
    chain = layer_chain(public, "fedma")
    assert [layer.weight for layer in chain][-1] == "projector.2.weight"
    units = chain[-1].units
    for name, turn in (("a hidden unit", chain[-2]), ("a unit that the heads read", chain[-1])):
        orders = [None if layer is not turn else torch.arange(layer.units).flip(0) for layer in chain]
        turned = Snapshot(reorder(chain, public.weights, orders), public.buffers)
        after = average(public, [turned], [1.0])
        assert (gap(after.weights, public.weights) < 1e-6) == (turn is not chain[-1]), name
    assert private.weights["head.weight"].shape[1] == units
    assert same_bits(trial.state.model, run_one(settings("fedper")).state.model)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"model__model": "resnet8"}, "stem.0.weight|stages"),
        ({"model__model": "resnet8", "model__norm": "none"}, "do not follow each other"),
        ({"model__model": "mlp", "model__norm": "group"}, "the outputs of mlp depend on the order of its units"),
    ],
)
def test_a_network_whose_units_cannot_change_places_is_refused_in_one_line(changes, why):
    with pytest.raises(UserError, match=f"fedma needs a network that is a chain of layers.*({why}).*use --model") as e:
        ready(settings("fedma", **changes))
    assert "\n" not in str(e.value)


def test_normalisation_layers_that_stay_at_the_parties_are_refused_as_such():
    with pytest.raises(UserError, match="layers that stay at the parties keep the order that they have; use another"):
        ready(settings("fedbn", algorithm__server="fedma", model__norm="batch"))


@pytest.mark.parametrize(
    ("norm", "why"),
    [
        ("group", r"encoder.norms.0.weight of shape \[32\] is no part of one"),
        ("none", r"encoder.vectors.weight \[41, 32\] and encoder.neighbours.weight \[16, 96\] do not follow"),
    ],
)
def test_texts_are_refused_by_the_tensor_that_is_no_layer(norm, why):
    with pytest.raises(UserError, match=why):
        ready(settings("fedma", model__model="text", model__norm=norm), data=some_texts())


class Residual(nn.Module):
    """Layers that follow each other by their shapes, and a shortcut that no shape shows."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(64, 12), nn.Linear(12, 12)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.one(x.flatten(1))
        return first + self.two(first).relu()


def test_a_shortcut_that_no_shape_shows_is_refused_because_the_outputs_change():
    custom = custom_encoder(Residual)
    with pytest.raises(UserError, match="the outputs of Residual depend on the order of its units"):
        set_up([settings("fedma", model__model="auto")], data=some_digits(), custom=custom)
