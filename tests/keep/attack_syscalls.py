"""Fault injection below Python: every write, fsync, rename, truncation and removal, SQLite's own among them.

Run as a program, it builds ``fault_shim.c``, starts itself again behind it, and prints a JSON object. Needs Linux
and a C compiler.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
MODES = {"fail": 1, "full": 2, "kill": 3}


def available() -> str | None:
    """Why this attack cannot run here, or ``None``."""
    if sys.platform != "linux":
        return "needs Linux"
    return None if shutil.which("cc") else "needs a C compiler (cc)"


def run_syscalls(operations: list[str], modes: list[str], every: int, first: int = 1) -> dict:
    """Build the library, run the attack in a process behind it, and return its result."""
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "shim.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", library, HERE / "fault_shim.c", "-ldl"], check=True)
        settings = json.dumps({"operations": operations, "modes": modes, "every": every, "first": first})
        inherited = filter(None, [os.environ.get("PYTHONPATH")])
        environment = os.environ | {
            "LD_PRELOAD": str(library),
            "SHIM": str(library),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent), *inherited]),
        }
        done = subprocess.run(
            [sys.executable, __file__, settings, folder],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(done.stderr[-2000:])
        return json.loads(done.stdout)


def _attack(case, shim: ctypes.CDLL, at: int, mode: str) -> str | None:
    case.renew()
    child = os.fork()
    if child == 0:
        status = 3
        try:
            shim.shim_arm(str(case.work.parent).encode(), at, MODES[mode])
            case.run(case.work)
            status = 0
        except Exception as error:
            expected = isinstance(error, OSError) or type(error).__module__.startswith("ecbm")
            status = 1 if expected else 2
            if not expected:
                traceback.print_exc()
        finally:
            os._exit(status)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code not in (0, 1, -signal.SIGKILL):
        return f"an unexpected error (status {code})"
    return case.verdict()


def _count(case, shim: ctypes.CDLL) -> int:
    case.renew()
    shim.shim_arm(str(case.work.parent).encode(), -1, 0)
    case.run(case.work)
    found = int(shim.shim_count())
    shim.shim_arm(b"", -1, 0)
    return found


def _main(settings: dict, folder: Path) -> None:
    import torch
    from attack_faults import Case

    from ecbm.progress import silence

    torch.set_num_threads(1)
    silence()
    shim = ctypes.CDLL(os.environ["SHIM"])
    shim.shim_count.restype = ctypes.c_long
    shim.shim_arm.argtypes = [ctypes.c_char_p, ctypes.c_long, ctypes.c_int]
    tried: Counter[str] = Counter()
    failures: list[str] = []
    for name in settings["operations"]:
        case = Case(name, folder / "cases")
        steps = _count(case, shim)
        for mode in settings["modes"]:
            for at in range(settings["first"], steps + 1, settings["every"]):
                try:
                    wrong = _attack(case, shim, at, mode)
                except Exception as error:
                    wrong = f"{type(error).__name__}: {error}"
                tried[f"{name} ({mode})"] += 1
                if wrong is not None:
                    failures.append(f"{name}, call {at} of {steps}, {mode}: {wrong}")
    print(json.dumps({"tried": tried, "failures": failures}))


if __name__ == "__main__":
    _main(json.loads(sys.argv[1]), Path(sys.argv[2]))
