"""Layers of encoders: their normalisation, and which are trained and which are frozen."""

from torch import nn

from moonfed.core.errors import UserError
from moonfed.core.types import Snapshot, Tensors


def norm_layer(norm: str, channels: int, flat: bool = False, group_size: int = 2) -> nn.Module:
    """Make the normalisation of a layer's channels: none, group (of group_size channels each) or batch."""
    if norm == "batch":
        return nn.BatchNorm1d(channels) if flat else nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(max(1, channels // group_size), channels)
    return nn.Identity()


def tensors_of_roles(model: nn.Module, roles: frozenset[str]) -> frozenset[str]:
    """Name the tensors of some roles: head, the output layer, and norm, the normalisation layers with their buffers."""
    of_batches = nn.modules.batchnorm._NormBase  # pyright: ignore[reportPrivateUsage]  (BatchNorm and InstanceNorm)
    norms = (nn.GroupNorm, nn.LayerNorm, nn.RMSNorm, of_batches)
    parts = {
        "head": [name for name, _ in model.named_modules() if name == "head"],
        "norm": [name for name, part in model.named_modules() if isinstance(part, norms)],
    }
    if unknown := roles - parts.keys():
        raise UserError(f"private names roles of tensors, {' and '.join(parts)}; got {', '.join(sorted(unknown))}")
    owners = tuple(f"{name}." for role in roles for name in parts[role])
    return frozenset(name for name in model.state_dict() if owners and name.startswith(owners))


def normalises_rows(model: nn.Module) -> bool:
    """Whether a network may divide by the deviation over the rows of a batch alone, which one row does not have."""
    frozen = {inner for part in frozen_parts(model) for inner in part.modules()}
    return any(isinstance(part, nn.BatchNorm1d) and part not in frozen for part in model.modules())


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
