"""A large workspace: 200,000 samples, 1,000 versions, 100,000 ledger entries. Prints what commands cost."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from workspace_kit import RECIPE

import ecbm
from ecbm.keep import database, ledger, transaction
from ecbm.keep.checking import check_workspace
from ecbm.keep.ledger import Detail
from ecbm.keep.transaction import NewVersion
from ecbm.keep.workspace import Workspace
from kit import tabular


def large_workspace(folder: Path, samples: int, versions: int, entries: int, width: int = 64) -> Workspace:
    """A workspace that is large in every direction; its many versions share their arrays."""
    names = [f"concept{number}" for number in range(40)]
    workspace = Workspace.create(folder, tabular(samples, width, concepts=names), RECIPE)
    workspace.train(RECIPE)
    version, report = workspace.edit(ecbm.Edit(correct_concepts=[("s0", "concept3", 0.5)]), "exact")
    sample = workspace.version(version)
    assert sample.data is not None
    facts = workspace.described([sample])[0]["fingerprints"]
    with transaction.begin(folder, version) as opened, database.atomically(opened.connection):
        for number in range(version + 1, versions):
            new = NewVersion("edit", number - 1, sample.model, sample.data, sample.summary, facts)
            item = Detail("item", {"correct_concepts": {"concept3": 1}}, f"s{number}")
            details = [
                Detail("author", "anna"),
                Detail("reason", f"reading {number}"),
                Detail("report", report),
                item,
            ]
            opened.insert_version(new, details)
        done = opened.connection.execute("SELECT max(sequence) FROM ledger").fetchone()[0]
        for _ in range(done, entries):
            public = {"kind": "redo", "version": versions - 1, "head": versions - 1, "time": ledger.now()}
            ledger.append(opened.connection, public, [Detail("author", "anna")])
    return workspace


def written_by_edit(workspace: Workspace) -> tuple[int, float]:
    """Bytes of new array files, and seconds, of correcting one label."""
    before, started = workspace.counts()["bytes"], time.monotonic()
    workspace.edit(ecbm.Edit(correct_concepts=[("s1", "concept5", 0.5)]), "exact")
    return workspace.counts()["bytes"] - before, time.monotonic() - started


def main() -> None:
    """Build, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("samples", 200_000), ("versions", 1000), ("entries", 100_000)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="ecbm-scale-")) / "w"
    workspace = Workspace(folder) if folder.exists() else None
    if workspace is None:
        workspace = large_workspace(folder, options.samples, options.versions, options.entries)
    print(f"{folder}: {json.dumps(workspace.counts())}")
    last = str(workspace.head)
    commands = (["log"], ["log", "--json"], ["log", "--operations", "-n", "50"], ["show"], ["status"])
    for command in commands:
        started = time.monotonic()
        arguments = [command[0], str(folder), *([last] if command[0] == "show" else []), *command[1:]]
        subprocess.run([sys.executable, "-m", "ecbm.show.cli", *arguments], check=True, stdout=subprocess.DEVNULL)
        whole, started = time.monotonic() - started, time.monotonic()
        _in_process(arguments)
        print(
            f"ecbm {' '.join(command)}: {whole:.2f} s as a process, {time.monotonic() - started:.2f} s of it work"
        )
    size, seconds = written_by_edit(workspace)
    print(f"an edit of one label writes {size:,} bytes of arrays, in {seconds:.1f} s")
    started = time.monotonic()
    print(f"ecbm check: ok {check_workspace(folder)['ok']}, {time.monotonic() - started:.1f} s")


def _in_process(arguments: list[str]) -> None:
    from attack_malformed import command

    status, _, err = command(*arguments)
    assert status == 0, err


if __name__ == "__main__":
    main()
