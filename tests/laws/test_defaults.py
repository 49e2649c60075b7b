"""Every setting of every method has the default that docs/methods.md gives it, and is in its table."""

import re
from pathlib import Path

from moonfed.core.rules import settings_of
from moonfed.training.registry import ALGORITHMS, PHASES

PAGE = Path(__file__).parents[2] / "docs" / "methods.md"


def documented() -> dict[str, dict[str, str]]:
    """The settings in the table of defaults, by method."""
    text = PAGE.read_text().split("## Settings and their defaults")[1].split("\n## ")[0]
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if line.startswith("| `"):
            names, values = line.strip("|").split("|")[:2]
            settings = dict(re.findall(r"`(\w+)` ([\w.]+)", values))
            found |= {name.removeprefix("...+"): settings for name in re.findall(r"`([^`]+)`", names)}
    return found


def test_the_table_of_defaults_is_what_the_rules_declare():
    declared = {
        name: {key: f"{f.default:g}" if isinstance(f.default, float) else str(f.default) for key, f in settings.items()}
        for name, preset in {**ALGORITHMS, **PHASES}.items()
        if (settings := {key: f for rule in preset.rules for key, f in settings_of(rule).items()})
    }
    assert documented() == declared
