"""Settings for the whole suite."""

from __future__ import annotations

import os

# Before torch is imported: two test processes with two threads each would fight over two cores.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import hypothesis
import torch

from ecbm.progress import silence

torch.set_num_threads(1)
silence()

# The suite draws the same examples every time, so that a pass here is a pass elsewhere; `HYPOTHESIS_PROFILE=search`
# looks for new ones.
hypothesis.settings.register_profile("suite", derandomize=True, deadline=None)
hypothesis.settings.register_profile("search", deadline=None)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "suite"))
