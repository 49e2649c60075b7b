"""The training rows of each party: those of a split less the rows set aside, or those that virtual parties draw."""

from typing import NamedTuple

import numpy as np

from moonfed.core.errors import UserError
from moonfed.data import Dataset
from moonfed.data.partition import Rows, Split, partition
from moonfed.data.population import IndexedRows, PartyRows, VirtualRows
from moonfed.training.registry import ALGORITHMS
from moonfed.training.resolve import ResolvedConfig
from moonfed.training.settings import DataSettings
from moonfed.training.validation_rows import divide_rows


class DividedData(NamedTuple):
    """The training rows of each party, and the rows set aside of them."""

    training: PartyRows
    validation: list[Rows]  # to evaluate on instead of the test rows
    monitor: list[Rows]  # for early stopping and calibration


def divide_data(config: ResolvedConfig, data: Dataset) -> DividedData:
    """Give every party its training rows, and set rows aside where the settings ask for it."""
    labels, settings, seed = data.labels.cpu().numpy(), config.data, config.run.seed
    if settings.population is None or ALGORITHMS[config.algorithm.name].pooled:
        divided = divide_rows(split_rows(config, data), settings, seed)
        return DividedData(IndexedRows(divided.training, labels, data.classes), divided.validation, divided.monitor)
    (pool,), validation, monitor = divide_rows([np.arange(len(labels))], settings, seed)
    beta = None if settings.partition == "iid" else settings.beta
    size, split_seed = settings.rows_per_party, settings.partition_seed
    rows = VirtualRows(pool, labels, data.classes, settings.parties, size, beta, split_seed)
    return DividedData(rows, validation, monitor)


def split_rows(config: ResolvedConfig, data: Dataset) -> list[Rows]:
    """Return the training rows of each party; a pooled algorithm has one party with all rows."""
    labels = data.labels.cpu().numpy()
    if ALGORITHMS[config.algorithm.name].pooled:
        return [np.arange(len(labels))]
    settings = config.data
    party = None if data.party is None else data.party.cpu().numpy()
    if settings.parties > len(labels):
        raise UserError(
            f"{settings.parties} parties need at least as many rows, the data has {len(labels)}; use fewer --parties"
        )
    default = DataSettings.model_fields["classes_per_party"].default
    if settings.partition != "shards" and settings.classes_per_party != default:
        raise UserError(
            f"--classes-per-party {settings.classes_per_party} is for --partition shards, the partition is "
            f"{settings.partition}; omit it, or use --partition shards"
        )
    floor = 1 if settings.partition == "natural" else settings.floor
    split = Split(settings.parties, settings.beta, settings.classes_per_party, floor, settings.partition_seed, party)
    if settings.partition == "feature-skew":
        if data.words:
            raise UserError(
                f"feature-skew needs inputs that are numbers, {data.name} has texts; use another --partition"
            )
        split = split._replace(inputs=data.inputs.cpu().numpy())
    return partition(settings.partition, labels, split)
