"""The command line."""

from moonfed.cli.main import main

__all__ = ["main"]
