"""docs/fidelity.md names files and tests that exist."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "fidelity.md").read_text()


def test_every_file_that_the_page_names_exists():
    named = set(re.findall(r"`([a-z_/]+\.py)`", PAGE))
    assert len(named) > 15
    assert {name for name in named if not ((ROOT / "src/moonfed" / name).exists() or (ROOT / name).exists())} == set()


def test_every_test_that_the_page_names_exists():
    named = set(re.findall(r"`(test_[a-z0-9_]+)`", PAGE))
    known = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    assert len(named) > 40
    assert named - known == set()
