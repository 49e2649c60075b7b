"""What the encoder of a trained model makes of test rows."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from moonfed.core.errors import UserError
from moonfed.core.files import read_tensors
from moonfed.core.seeds import generator
from moonfed.core.tree import batches, under
from moonfed.core.types import Snapshot, Tensors
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset
from moonfed.engines import nets_of
from moonfed.models.custom import CustomEncoder
from moonfed.storage.checkpoint import Checkpoint
from moonfed.storage.run_files import FINAL
from moonfed.storage.run_record import RunRecord
from moonfed.training.config import Config
from moonfed.training.network import build, net_spec
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import resolve

BATCH = 500
SHOWN = 10  # classes; more cannot be told apart by their colours


def sample_rows(data: Dataset, rows: int) -> Tensor:
    """Draw test rows of the first ten classes, the same ones for every model."""
    known = np.flatnonzero(data.test_labels.cpu().numpy() < SHOWN)
    drawn = generator(0, "features", data.name).permutation(known)[:rows]
    return torch.as_tensor(np.sort(drawn))


def model_of(record: RunRecord, data: Dataset, own: CustomEncoder | None, party: int | None) -> tuple[str, Snapshot]:
    """Read the last model of a trial and say which it is: the global one, or a party's where each has its own.

    Without a party it is the global model that is trained beside the personal ones.
    """
    net, which = network(record.config, data, own), "consensus model" if record.is_graph else "global model"
    apart = ALGORITHMS[record.config.algorithm.name].personal
    path = record.folder / FINAL
    if record.finished and path.exists():
        tensors, _ = read_tensors(path)
        if apart:
            if party is None:
                return which, as_model(net, under("global", tensors), path)
            if not (of_party := under(f"party{party}", tensors)):
                raise UserError(
                    f"{path} holds no model of party {party}: a site's own model is in its folder, in memory/"
                )
            return f"model of party {party}", as_model(net, of_party, path)
        return which, as_model(net, tensors, path)
    checkpoint = Checkpoint(record.folder)
    committed = checkpoint.manifests()
    if apart and not record.finished:
        raise UserError(f"{record.folder} keeps its parties' models after the last round; finish it with --resume")
    if apart or not committed:
        raise UserError(f"{record.folder} keeps no model of its last round")
    released = checkpoint.load_released(committed[0])  # none after a round that was not evaluated
    model = checkpoint.load_state(committed[0]).model if released is None else released
    return f"{which} of round {committed[0].round}", model


def final_temperature(record: RunRecord) -> float | None:
    """Read the temperature of a calibrated final model; None where there is none, as before the last round."""
    path = record.folder / FINAL
    if not (record.finished and path.exists()):
        return None
    text = read_tensors(path)[1].get("temperature")
    try:
        found = None if text is None else float(text)
    except ValueError:
        found = 0.0
    if found is not None and not 0 < found < float("inf"):
        raise UserError(f"{path} is damaged: its temperature should be a positive number, it is {text}")
    return found


def network(config: Config, data: Dataset, own: CustomEncoder | None = None) -> nn.Module:
    """Build the code of a config's network, in eval mode, with those of its weights that never learn."""
    return nets_of(build(net_spec(resolve(config, data, own), data, own)), data).inference


def as_model(net: nn.Module, tensors: Tensors, path: Path) -> Snapshot:
    """Sort a network's tensors, read from a file, into weights and buffers."""
    weights, buffers = dict(net.named_parameters()), dict(net.named_buffers())
    if {k: v.shape for k, v in tensors.items()} != {k: v.shape for k, v in (weights | buffers).items()}:
        raise UserError(f"{path} holds another network than the run's settings say; name a file of this run")
    return Snapshot({k: tensors[k] for k in weights}, {k: tensors[k] for k in buffers})


@torch.no_grad()
def features(net: nn.Module, model: Snapshot, data: Dataset, rows: Tensor) -> Tensor:
    """Compute the encoder's features of test rows: [row, feature], on the CPU."""
    dtype = next(iter(model.weights.values())).dtype
    parts = [
        functional_call(net, model, normalise(data, data.test_inputs[part], dtype)).features
        for part in batches(rows, BATCH)
    ]
    return torch.cat(parts).cpu()
