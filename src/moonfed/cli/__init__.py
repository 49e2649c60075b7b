"""The command line."""

import os

# Before torch is loaded: threads that wait should soon sleep. Spinning ones take the cores from each other as soon as
# the machine has anything else to do (with a second run on two cores a round took ten times as long), and waking one
# up between any two operations costs a plain training loop a third of its speed.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")

from moonfed.cli.main import main

__all__ = ["main"]
