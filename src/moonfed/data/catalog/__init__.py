"""Data sets by name: where each comes from, and how it is verified and cached."""
