"""The command line."""

import os

# Before torch is loaded: threads that wait should sleep. Spinning ones take the cores from each other as soon as the
# machine has anything else to do: with a second run on two cores a round took ten times as long.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from moonfed.cli.main import main

__all__ = ["main"]
