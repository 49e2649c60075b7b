"""One thread a process: the suite runs two processes on two cores, and bits depend on the number of threads."""

import os

os.environ["OMP_NUM_THREADS"] = "1"

import torch

torch.set_num_threads(1)
