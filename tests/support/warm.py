"""Importing this runs one small round, so that processes forked from here find torch awake."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

from tempfile import TemporaryDirectory

import torch
from commands import QUICK, moonfed

torch.set_num_threads(1)
with TemporaryDirectory() as folder:
    moonfed("run", *QUICK, "--rounds", "1", "--out", folder)
