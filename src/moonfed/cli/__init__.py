"""The command line."""

import os
import sys
from pathlib import Path

from platformdirs import user_cache_dir

# Before torch is loaded: threads that wait should soon sleep. Spinning ones take the cores from each other as soon as
# the machine has anything else to do (with a second run on two cores a round took ten times as long), and waking one
# up between any two operations costs a plain training loop a third of its speed.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

# What was compiled for a GPU stays on disk, beside the data sets, and not in a folder that is emptied at night.
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(Path(user_cache_dir("moonfed")) / "compiled"))

try:
    from moonfed.cli.main import main
except KeyboardInterrupt:  # of somebody who noticed at once: there is nothing yet to stop or to save
    print("moonfed: stopped", file=sys.stderr)
    sys.exit(1)

__all__ = ["main"]
