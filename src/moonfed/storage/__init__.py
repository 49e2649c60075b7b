"""Storage owns the disk: run folders, checkpoints and the records of runs at rest."""
