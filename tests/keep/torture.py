"""``make torture``: every attack on the workspace in full, with counts. ``--quick`` takes every tenth point."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import attack_syscalls
import torch
from attack_faults import MODES, run_faults
from attack_malformed import Malformed
from attack_others import run_editors, run_flips
from rich.console import Console
from rich.table import Table
from workspace_kit import OPERATIONS

from ecbm.progress import silence


def _faults(folder: Path, name: str, every: int) -> tuple[int, list[str]]:
    tried, failures = run_faults(folder / "faults", [name], MODES, every)
    return sum(tried.values()), failures


def _syscalls(name: str, every: int) -> tuple[int, list[str]]:
    found = attack_syscalls.run_syscalls([name], list(attack_syscalls.MODES), every)
    return sum(found["tried"].values()), found["failures"]


def _malformed(malformed: Malformed, kind: str, count: int) -> tuple[int, list[str]]:
    ended, failures = malformed.run(kind, count)
    print(f"malformed, {kind}: {malformed.accepted} of {count} were still valid", file=sys.stderr)
    return sum(ended.values()), failures


def main() -> int:
    """Run the attacks; the exit status says whether all were survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of it")
    parser.add_argument("--only", default="", help="attacks whose name contains this")
    options = parser.parse_args()
    silence()
    torch.set_num_threads(1)
    share = 10 if options.quick else 1
    folder = Path(tempfile.mkdtemp(prefix="ecbm-torture-"))
    attacks: list[tuple[str, str, Callable[[], tuple[int, list[str]]]]] = []
    for name in OPERATIONS:
        attacks.append(("fault at a durable step", name, lambda name=name: _faults(folder, name, share)))
    reason = attack_syscalls.available()
    if reason is None:
        # Every third call: there are many, and each point costs a process and two full checks.
        for name in ("init", "train", "edit: mixed", "undo", "erase"):
            attacks.append(("fault at a system call", name, lambda name=name: _syscalls(name, 3 * share)))
    else:
        print(f"no faults at system calls: {reason}", file=sys.stderr)
    for processes in (2, 8):
        count = 200 // share
        count -= count % processes
        attacks.append(
            (
                "edits at once",
                f"{processes} processes",
                lambda p=processes, c=count: run_editors(folder / f"e{p}", p, c),
            )
        )
    attacks.append(("one flipped bit", "records, seal, arrays", lambda: run_flips(folder / "flips", 4000 // share)))
    malformed = Malformed(folder / "malformed")
    for kind, count in (("edits", 5500), ("tables", 1500), ("datasets", 2500), ("models", 2500)):
        attacks.append(("malformed", kind, lambda k=kind, c=count: _malformed(malformed, k, c // share)))

    table = Table("attack", "on", "tried", "survived", "seconds", title="ecbm torture", title_justify="left")
    total, lost, started = 0, 0, time.monotonic()
    for kind, on, run in attacks:
        if options.only not in f"{kind} {on}":
            continue
        mark = time.monotonic()
        tried, failures = run()
        total, lost = total + tried, lost + len(failures)
        table.add_row(kind, on, str(tried), str(tried - len(failures)), f"{time.monotonic() - mark:.0f}")
        print(f"{kind}, {on}: {tried} tried, {len(failures)} failed", file=sys.stderr, flush=True)
        for failure in failures[:5]:
            print(f"  {failure[:500]}", file=sys.stderr)
    table.add_section()
    table.add_row("all", "", str(total), str(total - lost), f"{time.monotonic() - started:.0f}")
    Console(width=100).print(table)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
