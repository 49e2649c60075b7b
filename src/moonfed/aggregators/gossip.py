"""Gossip averaging (DFedAvgM; Sun, Li & Wang 2022): no server, parties average with their neighbours in a graph.

Party i starts from its own model x_i, trains it to z_i with any local rule, and mixes: x_i <- sum_j W_ij
z_j, W the Metropolis weights of the graph (core/topology.py). Only parties that took part mix, among
themselves; the others keep their models. MOON's positive anchor is x_i, the mean of the neighbourhood. Buffers
are mixed alike. The consensus model, the plain mean over all parties, takes the place of the server's. D-PSGD
(Lian et al. 2017) mixes x_j instead and adds the party's own unmixed step; it is not here.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from moonfed.core.algorithm import Preset
from moonfed.core.averaging import moved
from moonfed.core.errors import UserError
from moonfed.core.party_stack import mean_over, mix, party_model, remembered_stack, size_of, stack_of
from moonfed.core.rules import Aggregator, ServerOptimizer, setting
from moonfed.core.topology import GRAPH_KINDS, Edges, is_random, make_edges, metropolis, neighbours_of
from moonfed.core.types import (
    InitModel,
    PartyInfo,
    Population,
    ReceivedUpload,
    Slots,
    Snapshot,
    State,
    Update,
    as_tensor,
)

MODELS, MIXINGS = "models", "mixings"  # every party's model with a leading party axis; how often they were mixed


@dataclass(frozen=True)
class GossipAggregator(Aggregator):
    """Every party's model becomes the weighted mean of its neighbours' and its own."""

    linear = False
    chosen_by = "topology"
    for_optimizer = frozenset({MODELS})
    topology: str = setting("ring", f"graph of the parties instead of a server: {GRAPH_KINDS}")
    topology_changes: str = setting(
        "never", "when a graph random:K is drawn anew: never, every-round", choices=("never", "every-round")
    )

    def init(self, model: Snapshot, init_model: InitModel, population: Population) -> Slots:
        if self.topology_changes != "never" and not is_random(self.topology):
            raise UserError(
                f"--topology-changes {self.topology_changes} needs a graph that is drawn, --topology random:K, got "
                f"{self.topology[:60]}; omit one of the two"
            )
        make_edges(self.topology, population.parties, population.seed)  # refuses a graph that these parties cannot form
        return {}

    def edges(self, state: State, population: Population) -> Edges:
        """Return the graph of a state's next mixing."""
        drawing = int(as_tensor(state.server_state, MIXINGS)) if self.topology_changes == "every-round" else 0
        return make_edges(self.topology, population.parties, population.seed, drawing)

    def party_models(self, state: State) -> dict[int, Snapshot]:
        stack = remembered_stack(state.server_state, MODELS)
        return {} if stack is None else {i: party_model(stack, i, state.model) for i in range(size_of(stack))}

    def send(self, state: State, info: PartyInfo) -> State:
        stack = remembered_stack(state.server_state, MODELS)
        own = state.model if stack is None else party_model(stack, info.party, state.model)
        return super().send(state._replace(model=own), info)

    def copies(self, state: State, parties: Sequence[int], population: Population) -> list[int]:
        return [len(others) for others in neighbours_of(self.edges(state, population), parties).values()]

    def reduce(self, state: State, received: dict[int, ReceivedUpload], population: Population) -> Update:
        uploads = {party: each.upload for party, each in received.items()}
        mixing = metropolis(self.edges(state, population), list(uploads))
        models = remembered_stack(state.server_state, MODELS) or stack_of(state.model, population.parties)
        stack = mix(models, uploads, mixing)
        mean = mean_over(stack)
        delta = {k: v - state.model.weights[k] for k, v in mean.weights.items()}
        return Update(delta, mean.buffers, {}, {MODELS: stack})


@dataclass(frozen=True)
class GossipOptimizer(ServerOptimizer):
    """Remembers the parties' models; the consensus model moves to their mean."""

    needs = frozenset({MODELS})

    def init(self, model: Snapshot) -> Slots:
        return {MIXINGS: torch.zeros((), dtype=torch.int64)}

    def step(self, state: State, update: Update) -> State:
        count = as_tensor(state.server_state, MIXINGS) + 1
        return moved(state, update.delta, update)._replace(server_state={MIXINGS: count, **update.for_optimizer})


PRESET = Preset("gossip", aggregator=GossipAggregator, server_optimizer=GossipOptimizer)
