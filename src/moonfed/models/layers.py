"""Layers of encoders: their normalisation, and which are trained and which are frozen."""

from torch import nn

from moonfed.core.types import Snapshot, Tensors


def norm_layer(norm: str, channels: int, flat: bool = False, group_size: int = 2) -> nn.Module:
    """Make the normalisation of a layer's channels: none, group (of group_size channels each) or batch."""
    if norm == "batch":
        return nn.BatchNorm1d(channels) if flat else nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(max(1, channels // group_size), channels)
    return nn.Identity()


def frozen_parts(model: nn.Module) -> list[nn.Module]:
    """List the modules that have parameters, all of them frozen; their buffers are frozen too."""
    return [part for part in model.modules() if _all_frozen(part)]


def trained_tensors(model: nn.Module) -> Snapshot:
    """Return the trainable parameters, and the buffers outside of frozen modules: the part that parties exchange."""
    frozen = {id(buffer) for part in frozen_parts(model) for buffer in part.buffers()}
    return Snapshot(
        {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad},
        {name: buffer for name, buffer in model.named_buffers() if id(buffer) not in frozen},
    )


def frozen_tensors(model: nn.Module) -> Tensors:
    """Take what a network holds beside what is trained."""
    trained = trained_tensors(model)
    whole = dict(model.named_parameters()) | dict(model.named_buffers())
    return {k: v.detach() for k, v in whole.items() if k not in trained.weights and k not in trained.buffers}


def _all_frozen(part: nn.Module) -> bool:
    trainable = [weight.requires_grad for weight in part.parameters()]
    return bool(trainable) and not any(trainable)
