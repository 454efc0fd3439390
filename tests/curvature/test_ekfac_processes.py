"""Killed and resumed, or spread over processes, a fit gives the same factors."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from curvature_kit import flatten, random_vector, relative_error
from curvature_worker import Rows, problem

from ecbm.curvature import EKFAC
from ecbm.errors import InputError

WORKER = Path(__file__).parent / "curvature_worker.py"


def run(arguments: list[str], processes: int = 0) -> int:
    command = [sys.executable]
    if processes:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        command += ["-m", "torch.distributed.run", "--nproc-per-node", str(processes)]
        command += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(WORKER.parent)}
    done = subprocess.run(
        [*command, str(WORKER), *arguments], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr[-2000:]
    return done.returncode


@pytest.mark.parametrize("die_after", [1, 4, 7, 10])
def test_a_killed_fit_resumes_to_identical_factors(die_after: int, tmp_path: Path) -> None:
    module, inputs, loss = problem()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    whole = EKFAC.fit(module, inputs, loss, l2=1e-3, seed=5, batch_size=7, memory_limit_bytes=0)
    torch.set_num_threads(threads)
    points, out = str(tmp_path / "points"), str(tmp_path / "out")
    # one read for the probe, five blocks of batches in each of two passes
    assert run([out, "--checkpoint", points, "--die-after", str(die_after)]) == -signal.SIGKILL
    assert not Path(out).exists()
    assert run([out, "--checkpoint", points]) == 0
    assert not Path(points).exists()
    resumed = EKFAC.load(out, module)
    for one, two in zip(whole.blocks, resumed.blocks, strict=True):
        for key in ("left", "right", "sums", "vectors", "values"):
            if hasattr(one, key):
                assert torch.equal(getattr(one, key), getattr(two, key)), (one.name, key)


def test_a_checkpoint_of_another_fit_is_refused(tmp_path: Path) -> None:
    module, inputs, loss = problem()
    points = tmp_path / "points"
    assert run([str(tmp_path / "out"), "--checkpoint", str(points), "--die-after", "4"]) == -signal.SIGKILL
    with pytest.raises(InputError, match="belongs to another fit"):
        EKFAC.fit(module, inputs, loss, l2=0.5, seed=5, batch_size=7, checkpoint=points)


def test_one_two_and_four_processes_give_the_same_answer(tmp_path: Path) -> None:
    module, inputs, loss = problem()
    vector = None
    answers = []
    for processes in (1, 2, 4):
        out = str(tmp_path / str(processes))
        assert run([out, "--limit", str(2**30)], processes) == 0
        fitted = EKFAC.load(out, module)
        vector = vector or random_vector(module, fitted.covered)
        answers.append(flatten(fitted.solve(vector, 1e-3), fitted.covered))
    alone = EKFAC.fit(module, Rows(inputs, None), loss, l2=1e-3, seed=5, batch_size=7)
    answers.append(flatten(alone.solve(vector, 1e-3), alone.covered))
    for answer in answers[1:]:
        assert relative_error(answer, answers[0]) <= 1e-5
