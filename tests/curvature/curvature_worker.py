"""Run by the tests in other processes: fits a small network and saves the result.

python curvature_worker.py OUT [--checkpoint DIR] [--die-after N] [--limit BYTES]
"""

from __future__ import annotations

import argparse
import os
import signal
from collections.abc import Sequence

import torch
from curvature_kit import Residual
from torch import Tensor, nn

from ecbm import parallel
from ecbm.curvature import EKFAC, ConceptLoss
from ecbm.progress import silence


class Rows:
    """Inputs that kill the process without warning when read too often."""

    def __init__(self, tensor: Tensor, die_after: int | None) -> None:
        self.tensor, self.left = tensor, die_after

    def __len__(self) -> int:
        return len(self.tensor)

    def raw(self, rows: Sequence[int] | Tensor) -> Tensor:
        return self.tensor[torch.as_tensor(rows)]

    def take(self, rows: Sequence[int] | Tensor) -> Tensor:
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return self.raw(rows)


def problem() -> tuple[nn.Module, Tensor, ConceptLoss]:
    torch.manual_seed(0)
    module = Residual().eval()
    inputs = torch.randn(90, 2, 6, 5)
    targets = torch.rand(90, 3)
    targets[torch.rand(90, 3) < 0.2] = float("nan")
    return module, inputs, ConceptLoss(targets)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out")
    parser.add_argument("--checkpoint")
    parser.add_argument("--die-after", type=int)
    parser.add_argument("--limit", type=int, default=0)
    options = parser.parse_args()
    silence()
    torch.set_num_threads(1)
    parallel.join_group()
    module, inputs, loss = problem()
    fitted = EKFAC.fit(
        module,
        Rows(inputs, options.die_after),
        loss,
        l2=1e-3,
        seed=5,
        batch_size=7,
        memory_limit_bytes=options.limit,
        checkpoint=options.checkpoint,
        checkpoint_seconds=0.0,
    )
    if parallel.rank() == 0:
        fitted.save(options.out)


if __name__ == "__main__":
    main()
