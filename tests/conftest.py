"""Settings for the whole suite."""

from __future__ import annotations

import os

# Before torch is imported: two test processes with two threads each would fight over two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from ecbm.progress import silence

torch.set_num_threads(1)
silence()
