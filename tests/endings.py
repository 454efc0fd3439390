"""``make endings``: processes that end while threads of libraries are at work, many times, on a loaded machine.

A thread of Arrow's or gloo's that needs the interpreter while it is ending aborts the process. That takes bad luck:
a core that is busy elsewhere for the few milliseconds that matter. Hence many runs, beside processes that keep the
cores busy and do nothing else. ``tests/test_endings.py`` runs a handful.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent

TRAINING = """
import torch
torch.set_num_threads(1)
import ecbm
from ecbm import parallel
from ecbm.progress import silence
from kit import tabular

silence()
model = ecbm.train(tabular(61), ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=1))
assert parallel.world_size() == 2
# Nothing after this: the process ends while the threads of the group still hold the tensor.
parallel.broadcast(torch.ones(1000))
"""


@contextlib.contextmanager
def busy(processes: int) -> Iterator[None]:
    """Other processes that take all the time of the cores they can get."""
    running = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def python(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run this Python with the tests' modules at hand."""
    places = os.pathsep.join([str(HERE), str(HERE / "curvature"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=900,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": places} | environment,
        check=False,
    )


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


class Endings:
    """The ways to end, by name: each runs once and returns what went wrong, or None."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "training.py").write_text(TRAINING)
        np.save(folder / "features.npy", np.zeros((30, 4), np.float32))
        rows = [f"train,{'ab'[row % 2]},{row % 2}" for row in range(30)]
        tables = {
            "no id": "name,split,label,striped\n" + "".join(f"s{i},{row}\n" for i, row in enumerate(rows)),
            "ids twice": "id,split,label,striped\n" + "".join(f"s{i // 2},{row}\n" for i, row in enumerate(rows)),
        }
        for name, text in tables.items():
            (folder / f"{name}.csv").write_text(text)
        columns = {"id": [f"s{i // 2}" for i in range(30)], "label": ["a", "b"] * 15, "striped": [0.0, 1.0] * 15}
        pa.parquet.write_table(pa.table(columns), folder / "ids twice.parquet")
        self.kinds = {
            "refused table, doubtful column": lambda: self._refused("no id.csv", "say what they are"),
            "refused table, ids twice": lambda: self._refused("ids twice.csv", "duplicate id 's0'"),
            "refused Parquet table": lambda: self._refused("ids twice.parquet", "duplicate id 's0'"),
            "two processes train": lambda: self._torchrun(folder / "training.py"),
            "two processes fit curvature": lambda: self._torchrun(
                HERE / "curvature" / "curvature_worker.py", folder / "curvature", "--limit", "1000000000"
            ),
        }

    def run(self, kind: str) -> str | None:
        """One run."""
        return self.kinds[kind]()

    def _refused(self, table: str, because: str) -> str | None:
        options = ["--data", self.folder / table, "--features", self.folder / "features.npy"]
        done = python("-m", "ecbm.show.cli", "init", self.folder / "workspace", *options)
        if done.returncode == 2 and because in done.stderr and done.stderr.count("\n") == 1:
            return None
        return f"status {done.returncode} instead of 2: {done.stderr[-300:]}"

    def _torchrun(self, *script: str | Path) -> str | None:
        launcher = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1"]
        done = python(*launcher, "--master-port", str(free_port()), *script)
        return None if done.returncode == 0 else f"status {done.returncode} instead of 0: {done.stderr[-2000:]}"


def main() -> int:
    """Run every kind many times; the exit status says whether all ended as they should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=200, help="of each kind")
    parser.add_argument("--busy", type=int, default=os.cpu_count() or 1, help="processes that keep the cores busy")
    parser.add_argument("--only", default="", help="kinds whose name contains this")
    options = parser.parse_args()
    endings = Endings(Path(tempfile.mkdtemp(prefix="ecbm-endings-")))
    table = Table("ending", "runs", "as it should", "seconds", title="ecbm endings", title_justify="left")
    failed: Counter[str] = Counter()
    with busy(options.busy):
        for kind in endings.kinds:
            if options.only not in kind:
                continue
            started = time.monotonic()
            for turn in range(1, options.runs + 1):
                problem = endings.run(kind)
                if problem is not None:
                    failed[kind] += 1
                    print(f"{kind}, run {turn}: {problem}", file=sys.stderr, flush=True)
            seconds = f"{time.monotonic() - started:.0f}"
            table.add_row(kind, str(options.runs), str(options.runs - failed[kind]), seconds)
            print(f"{kind}: {options.runs} runs, {failed[kind]} failed", file=sys.stderr, flush=True)
    Console(width=100).print(table)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
