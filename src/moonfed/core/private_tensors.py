"""Tensors that never leave a party: taken out of what it uploads, and put back into what it is sent."""

from collections.abc import Collection

from moonfed.core.types import Snapshot

PRIVATE = "private"  # the slot of a party's memory that holds them


def private_part(model: Snapshot, names: Collection[str]) -> Snapshot:
    """Take the tensors of these names alone."""
    return Snapshot(*({k: v for k, v in part.items() if k in names} for part in model))


def public_part(model: Snapshot, names: Collection[str]) -> Snapshot:
    """Take all tensors but those of these names."""
    if not names:
        return model
    return Snapshot(*({k: v for k, v in part.items() if k not in names} for part in model))


def with_private(model: Snapshot, private: Snapshot) -> Snapshot:
    """Put a party's own tensors in place of those of a model, in the model's order."""
    weights = {k: private.weights.get(k, v) for k, v in model.weights.items()}
    return Snapshot(weights, {k: private.buffers.get(k, v) for k, v in model.buffers.items()})
