"""Custom encoders: loads the user's module, class or function, and reports what is wrong with it in one line."""

import copy
import hashlib
import importlib.util
import inspect
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from moonfed.core.errors import UserError, unknown
from moonfed.core.seeds import torch_seeded
from moonfed.core.tree import finite
from moonfed.models.model import Encoder, EncoderSpec

DRY_RUN_ROWS = 2
USER_FILE = "moonfed_custom_"  # the module of a user's file begins with it


@dataclass(frozen=True)
class CustomEncoder:
    """An encoder that is not in the package: its name with a digest of its code and weights, and its factory."""

    name: str
    make: Callable[[EncoderSpec], Any]
    features: int = 0  # set by a dry run
    file: str = ""  # the file of its code, if known

    @property
    def title(self) -> str:
        """The name without the digest."""
        return self.name.partition("@")[0]

    def build(self, spec: EncoderSpec) -> nn.Module:
        """Build the module; a factory draws its weights from torch's global generator, an instance keeps its own."""
        try:
            module = self.make(spec)
            if isinstance(module, nn.Module) and any(is_lazy(weight) for weight in module.parameters()):
                kind = torch.int64 if spec.words else torch.get_default_dtype()
                module(torch.zeros(DRY_RUN_ROWS, *spec.shape, dtype=kind))
        except UserError:
            raise
        except Exception as error:  # the user's code, which may raise anything
            raise UserError(
                f"{self.title} cannot be built for inputs {list(spec.shape)}: {self.explain(error)}"
            ) from None
        if not isinstance(module, nn.Module):
            raise UserError(f"{self.title} makes {_type_of(module)}, an encoder must be a torch.nn.Module")
        return module

    def explain(self, error: Exception) -> str:
        """Describe an error in the user's code in one line, with the line number."""
        lines = str(error).strip().splitlines()
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if self.file and f.filename == self.file]
        where = f" ({Path(self.file).name}, line {frames[-1]})" if frames else ""
        return f"{type(error).__name__}{': ' + lines[0] if lines else ''}{where}"


def is_custom(name: str) -> bool:
    """Whether a setting names a custom encoder: FILE.py:NAME, or NAME@DIGEST in the record of a run."""
    return ":" in name or "@" in name or name.endswith(".py")


def load_custom(text: str) -> CustomEncoder:
    """Load a class, function or module from the user's file, named like my_file.py:Encoder."""
    file, colon, name = text.rpartition(":")
    name, at, digest = name.partition("@")
    if not (colon and file and name):
        raise UserError(f"a custom encoder is named FILE.py:NAME, for example my_file.py:Encoder; got {text!r}")
    path = Path(file)
    if not path.is_file():
        raise UserError(f"no file {file} with the encoder {name}; --model needs FILE.py:NAME")
    code = hashlib.sha256(path.read_bytes()).hexdigest()[:12]
    if at and digest != code:
        raise UserError(f"{file} has changed: its digest was {digest}, now {code}; use the former file")
    names = vars(_import_file(path))
    if name not in names:
        public = [k for k, v in names.items() if not k.startswith("_") and callable(v)]
        raise unknown("class or function", name, public, f"in {file}")
    return _wrap(names[name], f"{path.name}:{name}@{code}", str(path.resolve()))


def custom_encoder(encoder: Any) -> CustomEncoder:
    """Wrap an encoder given in Python: a module, whose weights are kept, or a class or function that makes one."""
    if isinstance(encoder, nn.Module):
        return _wrap(encoder, f"{type(encoder).__name__}@{_digest(encoder)}", _file_of(type(encoder)))
    name = getattr(encoder, "__qualname__", type(encoder).__name__).rpartition(".")[2].strip("<>")
    return _wrap(encoder, f"{name}@{_digest(encoder)}", _file_of(encoder))


def measure_encoder(custom: CustomEncoder, inputs: Tensor, words: int) -> CustomEncoder:
    """Run an encoder on normalised training rows, check its outputs, and record its number of features.

    It sees one row, two rows and all of them, in eval and in training mode: code that confuses the batch axis with
    another one fails here, before a run.
    """
    spec = EncoderSpec(tuple(inputs.shape[1:]), words=words)
    with torch_seeded(0, "init", "network"):
        encoder = custom.build(spec).to(inputs.device)
        weights = list(encoder.parameters())
        if not weights:
            raise UserError(f"{custom.title} has no parameters: there is nothing to train or to save")
        evaluated = [_forward(custom, encoder.eval(), inputs[:rows]) for rows in (DRY_RUN_ROWS, 1)]
        trained = [_forward(custom, encoder.train(), inputs[:rows]) for rows in (DRY_RUN_ROWS, len(inputs))]
    features = evaluated[0]
    for mode, outputs in (("eval", evaluated), ("training", trained)):
        for out in outputs:
            if out.shape[1:] != features.shape[1:]:
                raise UserError(
                    f"{custom.title} returns {list(features.shape)} for {DRY_RUN_ROWS} rows in eval mode and "
                    f"{list(out.shape)} for {len(out)} rows in {mode} mode; every row needs features of one shape"
                )
    if any(weight.requires_grad for weight in weights) and not trained[0].requires_grad:
        raise UserError(f"no gradient reaches the parameters of {custom.title}; does forward use detach or no_grad?")
    return replace(custom, features=features[0].numel())


def _forward(custom: CustomEncoder, encoder: nn.Module, x: Tensor) -> Tensor:
    """Run an encoder on rows and check its output."""
    try:
        out = encoder(x.clone())  # the encoder may modify its input
    except Exception as error:  # the user's code, which may raise anything
        raise UserError(f"{custom.title} fails on a batch of shape {list(x.shape)}: {custom.explain(error)}") from None
    if not isinstance(out, Tensor):
        advice = "; return only the features" if isinstance(out, tuple | list | dict) else ""
        raise UserError(
            f"{custom.title} returns {_type_of(out)}, an encoder must return one tensor [batch, features]{advice}"
        )
    if out.dim() < 2 or len(out) != len(x) or not out[0].numel():
        raise UserError(
            f"{custom.title} returns {list(out.shape)} for a batch of shape {list(x.shape)}, "
            f"an encoder must return [{len(x)}, features]"
        )
    if out.dtype != torch.get_default_dtype():
        raise UserError(f"{custom.title} returns {out.dtype}, an encoder must return {torch.get_default_dtype()}")
    if not finite(out):
        raise UserError(f"{custom.title} returns numbers that are not finite for the first {len(x)} training rows")
    return out


def _wrap(encoder: Any, name: str, file: str) -> CustomEncoder:
    title = name.partition("@")[0]
    if isinstance(encoder, nn.Module):
        if any(is_lazy(weight) for weight in encoder.parameters()):
            raise UserError(f"{title} has uninitialised lazy layers; pass its class instead")
        original = copy.deepcopy(encoder).cpu()
        return CustomEncoder(name, lambda spec: copy.deepcopy(original), file=file)
    if not callable(encoder):
        raise UserError(
            f"{title} is {_type_of(encoder)}; an encoder must be a torch.nn.Module, "
            "or a class or function that makes one"
        )
    return CustomEncoder(name, _bind_factory(encoder, title), file=file)


def _bind_factory(factory: Callable[..., Any], title: str) -> Callable[[EncoderSpec], Any]:
    """Return a call of the factory that passes the input shape and the vocabulary size if it has such parameters."""
    if isinstance(factory, type) and issubclass(factory, Encoder):
        return factory
    parameters = inspect.signature(factory).parameters.values()
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    needed = [p.name for p in named if p.default is p.empty or p.name in ("shape", "words")]
    others = [name for name in needed if name not in ("shape", "words")]
    if len(others) > 1 or (others and "shape" in needed):
        raise UserError(
            f"{title} needs the parameters {', '.join(needed)}; an encoder may need none, shape (of one input), "
            "words (the vocabulary size), or both"
        )
    positional = bool(others)

    def call(spec: EncoderSpec) -> Any:
        keywords = {k: getattr(spec, k) for k in ("shape", "words") if k in needed}
        return factory(spec.shape, **keywords) if positional else factory(**keywords)

    return call


def user_modules() -> list[ModuleType]:
    """List the modules that were imported from users' files; no other process finds them by their names."""
    return [module for name, module in sys.modules.items() if name.startswith(USER_FILE)]


def _import_file(path: Path) -> Any:
    """Import a file as a separate module; it may import the files beside it."""
    name = f"{USER_FILE}{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise UserError(f"{path} is not a Python file; --model needs FILE.py:NAME")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    sys.modules[name] = module
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the user's code, which may raise anything
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path.resolve())]
        line = error.lineno if isinstance(error, SyntaxError) else frames[-1].lineno if frames else None
        message = error.msg if isinstance(error, SyntaxError) else str(error)
        what = f"{type(error).__name__}{': ' + message.splitlines()[0] if message else ''}"
        raise UserError(f"{path} cannot be imported: {what}{f' (line {line})' if line else ''}") from None
    finally:
        sys.path.remove(folder)
    return module


def _digest(encoder: Any) -> str:
    """Hash an encoder's source code if it can be read, and the layers and weights of a module."""
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


def _type_of(value: Any) -> str:
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"{article} {kind}" + (f" of {len(value)}" if isinstance(value, tuple | list) else "")
