"""Write src/moonfed/api/algorithm_names.pyi from the registry, so that type checkers know every algorithm's keywords.

    python tools/write_algorithm_stub.py

A test fails while the file is not what this writes.
"""

import inspect
from dataclasses import Field
from pathlib import Path
from textwrap import indent
from typing import Any

import moonfed
from moonfed.api.algorithm_functions import FUNCTIONS
from moonfed.core.rules import settings_of
from moonfed.training.registry import ALGORITHMS, PHASES, SERVERS, TERMS, preset_of

STUB = Path(moonfed.__file__).parent / "api" / "algorithm_names.pyi"


def stub_text() -> str:
    """Write the stub: a function for each algorithm, with its settings and those of every server rule and phase."""
    names = "\n".join(f'    "{name}",' for name in sorted(FUNCTIONS))
    return "\n".join(
        [
            "# Written by tools/write_algorithm_stub.py; run it again after a change of an algorithm.",
            "from typing import Literal",
            "",
            "from moonfed.core.algorithm import Algorithm",
            "",
            f"__all__ = [\n{names}\n]",
            "",
            *(_function(name) for name in ALGORITHMS),
        ]
    )


def _function(name: str) -> str:
    """Write the signature of an algorithm's function, and its help."""
    own = {k: f for rule in preset_of(name).rules for k, f in settings_of(rule).items()}
    keywords = [_keyword(field, repr(field.default)) for field in own.values()]
    keywords.append("server: str | None = None")
    rules = [rule for server in SERVERS.values() for rule in filter(None, server)]
    rules += [phase for preset in PHASES.values() for phase in preset.phases]
    theirs = {k: f for rule in rules for k, f in settings_of(rule).items()}
    if not (preset_of(name).personal or preset_of(name).pooled):
        theirs |= {k: f for term in TERMS if term != name for k, f in settings_of(preset_of(name, term).local).items()}
    keywords += [_keyword(field, "...") for key, field in theirs.items() if key not in own]
    python_name = name.replace("-", "_")
    lines = "".join(f"    {keyword},\n" for keyword in keywords)
    help = indent(f'"""{inspect.getdoc(FUNCTIONS[python_name])}\n"""', "    ")
    return f"def {python_name}(\n    *,\n{lines}) -> Algorithm:\n{help}\n"


def _keyword(field: Field[Any], default: str) -> str:
    choices = field.metadata["choices"]
    kind = f"Literal[{', '.join(map(repr, choices))}]" if choices else field.type.__name__  # type: ignore[union-attr]
    return f"{field.name}: {kind} = {default}".replace("'", '"')


if __name__ == "__main__":
    STUB.write_text(stub_text(), encoding="utf-8")
    print(f"written to {STUB}")
