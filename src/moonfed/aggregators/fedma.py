"""FedMA (Wang, Yurochkin, Sun, Papailiopoulos & Khazaeni 2020): match the parties' hidden units, then average.

The order of a layer's units is arbitrary, so units of two parties that do the same may be in different
places. Layer by layer from the input, the units of party j go to the places i of the global model by

    min over permutations P_j of sum_i ||w_{j, P_j(i)} - theta_i||^2        (section 2.1, one unit per place)

where w is a unit's row of weights, its inputs in the order of the layer before, and its bias. Then, with
shares p_j, theta_i <- sum_j p_j w_{j, P_j(i)}; the columns of the next layer follow. Classes stay.

What differs from the paper:
- Units are matched to those of the model that the round began with, once. The paper matches them to the
  estimate of the other parties, in turns, with a Beta-Bernoulli process prior that lets the global network
  grow (BBP-MAP). Here its width is fixed and the costs are plain squared distances.
- All layers are matched after each round of full training. The paper matches one layer, sends it back frozen
  and lets the parties retrain the rest: one exchange per layer.
- The output layer is averaged with the parties' shares; in the paper with their shares of each class.
- Weights and statistics of a normalisation move with the units before it. The paper has none.

Where no unit moves this is FedAvg to the bit. That is the usual case, as all parties begin a round with the
same model: docs/methods.md has the counts.
"""

from dataclasses import dataclass

from moonfed.core.algorithm import Preset
from moonfed.core.matching import ChainLayer, layer_chain, match_units, reorder
from moonfed.core.reduction import mean_update
from moonfed.core.rules import Aggregator
from moonfed.core.types import InitModel, Population, ReceivedUpload, Slots, Snapshot, State, Tensors, Update, Upload


@dataclass(frozen=True)
class FedMAAggregator(Aggregator):
    """The mean update, each party's hidden units first in the order nearest to the global model's."""

    linear = False
    reorders_units = True

    def init(self, model: Snapshot, init_model: InitModel, population: Population) -> Slots:
        layer_chain(model, "fedma")  # refuses a network that is none
        return {}

    def reduce(self, state: State, received: dict[int, ReceivedUpload], population: Population) -> Update:
        uploaded = next(iter(received.values())).upload
        public = Snapshot(
            {k: v for k, v in state.model.weights.items() if k in uploaded.delta},
            {k: v for k, v in state.model.buffers.items() if k in uploaded.buffers},
        )
        chain = layer_chain(public, "fedma")
        placed = [e._replace(upload=match_upload(chain, public.weights, e.upload)) for e in received.values()]
        return mean_update(self, state, placed, population)


def match_upload(chain: list[ChainLayer], sent: Tensors, upload: Upload) -> Upload:
    """Put the units of a party's model in the order that is nearest to the model it was sent."""
    trained = {k: v + upload.delta[k] for k, v in sent.items()}
    orders = match_units(chain, trained, sent)
    after = reorder(chain, trained, orders)
    delta = {k: d if after[k] is trained[k] else after[k] - sent[k] for k, d in upload.delta.items()}
    return upload._replace(delta=delta, buffers=reorder(chain, upload.buffers, orders))


PRESET = Preset("fedma", aggregator=FedMAAggregator)
