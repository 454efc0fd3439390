"""Processes end with the status they should, whatever the threads of libraries are doing at that moment."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from endings import TRAINING, Endings, free_port, python

# Keeps the interpreter's lock from the end of the script until the interpreter is gone, so that a thread that wants
# something of Python's now is caught waiting for it every time, not once in a hundred.
UNLUCKY = """
import atexit, sys, time

def hold():
    end = time.perf_counter() + 0.05
    while time.perf_counter() < end:
        pass

atexit.register(hold)
sys.setswitchinterval(0.3)
"""

READING = """
from pathlib import Path
from ecbm.errors import InputError
from ecbm.read.table_files import read_table
table = read_table(Path(sys.argv[1]), {"id", "label", "split", "name"})
"""

STORED = """
import numpy as np
from ecbm.keep.stored_tables import StoredTable, read_table, table_bytes
table = StoredTable(["a", "b"], ["train", "val"], np.array([0, 1]), np.zeros((2, 1), np.float32), ["c"], ["x", "y"],
                    np.arange(2))
read_table(table_bytes(table))
"""

# Registered first, so run last: the threads of the process when all that it has to end has ended.
THREADS = """
import atexit, pathlib

def left():
    for task in pathlib.Path("/proc/self/task").iterdir():
        print((task / "comm").read_text().strip())

atexit.register(left)
"""


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> Endings:
    return Endings(tmp_path_factory.mktemp("endings"))


@pytest.mark.parametrize("table", ["no id.csv", "ids twice.parquet"])
def test_arrow_threads_want_nothing_of_an_ending_interpreter(endings: Endings, table: str) -> None:
    for _ in range(5):
        done = python("-c", UNLUCKY + READING, endings.folder / table)
        assert done.returncode == 0, done.stderr[-1000:]


def test_nor_after_reading_a_table_of_a_workspace() -> None:
    for _ in range(3):
        done = python("-c", UNLUCKY + STORED)
        assert done.returncode == 0, done.stderr[-1000:]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="needs /proc to see the threads of a process")
def test_the_threads_of_a_process_group_end_before_the_interpreter() -> None:
    group = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    with ThreadPoolExecutor(2) as pool:
        ranks = [pool.submit(python, "-c", THREADS + TRAINING, RANK=rank, **group) for rank in ("0", "1")]
    for done in (rank.result() for rank in ranks):
        assert done.returncode == 0, done.stderr[-2000:]
        assert "python" in done.stdout, "the main thread is listed"
        assert "gloo" not in done.stdout


@pytest.mark.parametrize("kind", ["refused table, doubtful column", "refused Parquet table", "two processes train"])
def test_a_few_endings_of_each_kind(endings: Endings, kind: str) -> None:
    for _ in range(2):
        assert endings.run(kind) is None
