"""Which of a network's tensors are trained, and which stay as they are."""

from torch import nn

from moonfed.core.types import Snapshot, Tensors


def frozen_parts(model: nn.Module) -> list[nn.Module]:
    """List the modules that have parameters and let none of them learn: what is in them stays as it is, buffers too."""
    return [part for part in model.modules() if _all_frozen(part)]


def trained_tensors(model: nn.Module) -> Snapshot:
    """Take the parameters that learn, and the buffers outside of frozen parts: all that travels of a network."""
    still = {id(buffer) for part in frozen_parts(model) for buffer in part.buffers()}
    return Snapshot(
        {name: weight.detach() for name, weight in model.named_parameters() if weight.requires_grad},
        {name: buffer for name, buffer in model.named_buffers() if id(buffer) not in still},
    )


def frozen_tensors(model: nn.Module) -> Tensors:
    """Take what a network holds beside what is trained."""
    trained = trained_tensors(model)
    whole = dict(model.named_parameters()) | dict(model.named_buffers())
    return {k: v.detach() for k, v in whole.items() if k not in trained.weights and k not in trained.buffers}


def _all_frozen(part: nn.Module) -> bool:
    learns = [weight.requires_grad for weight in part.parameters()]
    return bool(learns) and not any(learns)
