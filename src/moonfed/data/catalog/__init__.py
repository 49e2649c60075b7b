"""Data sets by name: where each comes from, how it is verified and cached."""
