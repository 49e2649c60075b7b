"""An encoder of the user's own: where it comes from, how it is called, and what is wrong with it, in one line."""

import copy
import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from moonfed.core.errors import UserError, unknown
from moonfed.core.seeds import torch_seeded
from moonfed.core.tree import finite
from moonfed.data.augment import normalise
from moonfed.data.dataset import Dataset
from moonfed.models import Encoder, EncoderSpec

ROWS = 2  # of the dry run


@dataclass(frozen=True)
class CustomEncoder:
    """An encoder that is not in the package: its name with a digest of what it is, and how to make one."""

    name: str
    make: Callable[[EncoderSpec], Any]
    features: int = 0  # found by a dry run
    file: str = ""  # where its code stands, if in a file

    @property
    def title(self) -> str:
        """The name without the digest."""
        return self.name.partition("@")[0]

    def made(self, spec: EncoderSpec) -> nn.Module:
        """Make one; a factory's weights come from torch's stream as it stands, an instance's are kept."""
        try:
            module = self.make(spec)
            if isinstance(module, nn.Module) and any(is_lazy(weight) for weight in module.parameters()):
                kind = torch.int64 if spec.words else torch.get_default_dtype()
                module(torch.zeros(ROWS, *spec.shape, dtype=kind))
        except UserError:
            raise
        except Exception as error:
            raise UserError(f"{self.title} cannot be built for inputs {list(spec.shape)}: {self.told(error)}") from None
        if not isinstance(module, nn.Module):
            raise UserError(f"{self.title} gives {_article(module)}, an encoder is a torch.nn.Module")
        return module

    def told(self, error: Exception) -> str:
        """Say in one line what went wrong in the user's code, and in which line of it."""
        said = str(error).strip().splitlines()
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if self.file and f.filename == self.file]
        where = f" ({Path(self.file).name}, line {frames[-1]})" if frames else ""
        return f"{type(error).__name__}{': ' + said[0] if said else ''}{where}"


def is_custom(name: str) -> bool:
    """Whether a setting names an encoder in a file, or the record of one: FILE.py:NAME, NAME@DIGEST."""
    return ":" in name or "@" in name or name.endswith(".py")


def load_custom(text: str) -> CustomEncoder:
    """Read an encoder from a file of the user's: my_file.py:Encoder, a class, a function or a module."""
    file, colon, name = text.rpartition(":")
    name, at, digest = name.partition("@")
    if not (colon and file and name):
        raise UserError(f"an encoder of your own is FILE.py:NAME, my_file.py:Encoder for one, got {text!r}")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"no file {file} to take the encoder {name} from; --model needs FILE.py:NAME")
    code = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    if at and digest != code:
        raise UserError(f"{file} has changed: its digest was {digest}, now {code}; use the file of that time")
    found = vars(_imported(path))
    if name not in found:
        own = [k for k, v in found.items() if not k.startswith("_") and callable(v)]
        raise unknown(f"class or function in {file}", name, own)
    return _own(found[name], f"{path.name}:{name}@{code}", str(path.resolve()))


def custom_encoder(encoder: Any) -> CustomEncoder:
    """Take an encoder as Python has it: a module, whose weights are kept, or a class or function that makes one."""
    if isinstance(encoder, nn.Module):
        return _own(encoder, f"{type(encoder).__name__}@{_digest(encoder)}", _file_of(type(encoder)))
    name = getattr(encoder, "__qualname__", type(encoder).__name__).rpartition(".")[2].strip("<>")
    return _own(encoder, f"{name}@{_digest(encoder)}", _file_of(encoder))


def measured(own: CustomEncoder, data: Dataset) -> CustomEncoder:
    """Let an encoder see training rows, as it is judged and as it trains, and note how wide it is.

    It sees one row, two and a batch: code that takes the rows of a batch for something else is noticed before a run.
    """
    spec = EncoderSpec(tuple(data.inputs.shape[1:]), words=data.words)
    x = normalise(data, data.inputs[: max(ROWS, data.batch)], torch.get_default_dtype())
    with torch_seeded(0, "init", "network"):
        encoder = own.made(spec).to(x.device)
        weights = list(encoder.parameters())
        if not weights:
            raise UserError(f"{own.title} has no parameters: there is nothing in it to train or to keep")
        judged = [_seen(own, encoder.eval(), x[:rows]) for rows in (ROWS, 1)]
        trained = [_seen(own, encoder.train(), x[:rows]) for rows in (ROWS, len(x))]
    features = judged[0]
    for training, found in (*((False, seen) for seen in judged), *((True, seen) for seen in trained)):
        if found.shape[1:] != features.shape[1:]:
            when = f"{list(found.shape)} for {len(found)} rows when it {'trains' if training else 'is judged'}"
            raise UserError(
                f"{own.title} gives {list(features.shape)} for {ROWS} rows when it is judged and {when}; "
                "an encoder gives every row features of one shape"
            )
    if any(weight.requires_grad for weight in weights) and not trained[0].requires_grad:
        raise UserError(f"no gradient reaches the parameters of {own.title}; is there a detach or no_grad in forward?")
    return replace(own, features=features[0].numel())


def _seen(own: CustomEncoder, encoder: nn.Module, x: Tensor) -> Tensor:
    """See rows through an encoder and check what it says of them."""
    try:
        out = encoder(x.clone())  # which it may write into
    except Exception as error:
        raise UserError(f"{own.title} fails on a batch of shape {list(x.shape)}: {own.told(error)}") from None
    if not isinstance(out, Tensor):
        advice = "; return the features alone" if isinstance(out, tuple | list | dict) else ""
        raise UserError(f"{own.title} gives {_article(out)}, an encoder gives one tensor [batch, features]{advice}")
    if out.dim() < 2 or len(out) != len(x) or not out[0].numel():
        raise UserError(
            f"{own.title} gives {list(out.shape)} for a batch of shape {list(x.shape)}, "
            f"an encoder gives [{len(x)}, features]"
        )
    if out.dtype != torch.get_default_dtype():
        raise UserError(f"{own.title} gives {out.dtype}, an encoder gives {torch.get_default_dtype()}")
    if not finite(out):
        raise UserError(f"{own.title} gives numbers that are not finite for the first {len(x)} training rows")
    return out


def _own(encoder: Any, name: str, file: str) -> CustomEncoder:
    if isinstance(encoder, nn.Module):
        if any(is_lazy(weight) for weight in encoder.parameters()):
            raise UserError(f"{name.partition('@')[0]} has lazy layers that have seen no input yet; give its class")
        still = copy.deepcopy(encoder).cpu()
        return CustomEncoder(name, lambda spec: copy.deepcopy(still), file=file)
    if not callable(encoder):
        raise UserError(
            f"{name.partition('@')[0]} is {_article(encoder)}; an encoder is a torch.nn.Module, "
            "or a class or function that makes one"
        )
    return CustomEncoder(name, _caller(encoder, name.partition("@")[0]), file=file)


def _caller(factory: Callable[..., Any], title: str) -> Callable[[EncoderSpec], Any]:
    """Say how a factory is called: with the shape of one input and the number of words, if it asks for them."""
    if isinstance(factory, type) and issubclass(factory, Encoder):
        return factory
    asked = inspect.signature(factory).parameters.values()
    plain = [p for p in asked if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    wanted = [p.name for p in plain if p.default is p.empty or p.name in ("shape", "words")]
    others = [name for name in wanted if name not in ("shape", "words")]
    if len(others) > 1 or (others and "shape" in wanted):
        raise UserError(
            f"{title} wants {', '.join(wanted)}; an encoder is made with nothing, with shape (of one input), "
            "with words (how many there are), or with both"
        )
    positional = bool(others)

    def call(spec: EncoderSpec) -> Any:
        named = {k: getattr(spec, k) for k in ("shape", "words") if k in wanted}
        return factory(spec.shape, **named) if positional else factory(**named)

    return call


def _imported(path: Path) -> Any:
    """Run a file as a module of its own; what lies beside it can be imported by it."""
    name = f"moonfed_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is no Python file; --model needs FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    beside = str(path.resolve().parent)
    sys.modules[name] = module
    sys.path.insert(0, beside)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path.resolve())]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        words = error.msg if isinstance(error, SyntaxError) else str(error)
        what = f"{type(error).__name__}: {words.splitlines()[0] if words else 'no more is said'}"
        raise UserError(f"{path} cannot be imported: {what}{f' (line {line})' if line else ''}") from None
    finally:
        sys.path.remove(beside)
    return module


def _digest(encoder: Any) -> str:
    """Hash what is known of an encoder: its code where it can be read, its layers and its weights where it has any."""
    digest = hashlib.sha256()
    code = encoder if not isinstance(encoder, nn.Module) else type(encoder)
    try:
        digest.update(inspect.getsource(code).encode())
    except (OSError, TypeError):
        digest.update(getattr(code, "__qualname__", "").encode())
    if isinstance(encoder, nn.Module):
        digest.update(repr(encoder).encode())
        for name, tensor in [*encoder.named_parameters(), *encoder.named_buffers()]:
            if not is_lazy(tensor):
                digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)} {tensor.requires_grad}".encode())
                digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:12]


def _file_of(code: Any) -> str:
    try:
        return inspect.getfile(code)
    except (OSError, TypeError):
        return ""


def _article(value: Any) -> str:
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"{article} {kind}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")
