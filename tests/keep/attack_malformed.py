"""Malformed edit files, datasets and model folders: one line, status 2, and a workspace that did not change."""

from __future__ import annotations

import io
import json
import random
import shutil
import sys
from collections import Counter
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
from workspace_kit import bytes_of, trained_workspace

import ecbm
from ecbm.show import cli
from kit import tabular


def command(*arguments: object) -> tuple[int, str, str]:
    """Run the ``ecbm`` command in this process: status, output, error output."""
    out, err = io.StringIO(), io.StringIO()
    kept, sys.argv = sys.argv, ["ecbm", *map(str, arguments)]
    status: Any = None
    try:
        with redirect_stdout(out), redirect_stderr(err):
            cli.main()
    except SystemExit as stopped:
        status = stopped.code
    finally:
        sys.argv = kept
    return int(status or 0), out.getvalue(), err.getvalue()


def wrong_answer(status: int, out: str, err: str) -> str | None:
    """What is wrong with how the command ended, or ``None``."""
    if "Traceback" in out + err:
        return "traceback"
    if status == 0:
        return None
    if status != 2:
        return f"status {status}"
    if out or not err.startswith("ecbm: ") or len(err.splitlines()) != 1:
        return f"not one clear line: {out!r} {err!r}"
    return None


def mutate(content: bytes, draw: random.Random) -> bytes:
    """A few bytes changed, cut, repeated or put in."""
    result = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 5))):
        at = draw.randrange(len(result) + 1)
        kind = draw.randrange(6)
        if kind == 0 and result:
            result[at % len(result)] ^= 1 << draw.randrange(8)
        elif kind == 1:
            result[at:at] = draw.choice(
                (b"{", b"[", b"]", b'"', b",", b"\xff", b"\0", b"NaN", b"-1", b"1e999", b"\\u")
            )
        elif kind == 2:
            del result[at : at + draw.randrange(1, 20)]
        elif kind == 3:
            result[at:at] = result[max(0, at - 20) : at]
        elif kind == 4:
            del result[at:]
        elif result:
            result[at % len(result)] = draw.randrange(256)
    return bytes(result)


_SCRAPS: list[Any] = [
    None, True, 0, 1, -1, 2, 0.5, 1e308, 10**40, "", "s1", "s2", "nobody", "round", "size=big", "finch", "crow",
    "\ud800", "../..", "/", "more.csv", "none.csv", "more.npy", "\0", [], {}, ["s1"], [["s1"]], {"id": "s1"},
    {"id": "s1", "concept": "round", "value": 2}, {"id": "s1", "concept": "rund", "value": 1},
    {"id": "s1", "label": "kestrel"}, {"id": 1, "label": "crow"}, {"table": "more.csv"},
    {"table": "more.csv", "x": 1},
    {"table": "more.csv", "features": "more.csv"}, {"new": {"s1": 3}}, {"new": {"nobody": 1}}, {"": {"s1": 1}},
]  # fmt: skip
_FIELDS = (
    "correct_concepts", "correct_labels", "remove_concepts", "add_concepts", "remove_samples", "add_samples",
    "corect_labels", "", "id",
)  # fmt: skip


def odd_edit(draw: random.Random) -> bytes:
    """An edit of odd pieces: the right fields with the wrong things in them."""

    def piece(depth: int) -> Any:
        if depth and draw.random() < 0.4:
            return [piece(depth - 1) for _ in range(draw.randrange(3))]
        return draw.choice(_SCRAPS)

    fields = draw.sample(_FIELDS, draw.randrange(1, 4))
    return json.dumps({name: piece(2) for name in fields}).encode()


class Malformed:
    """A workspace, valid files, and ways to spoil them."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.draw, self.accepted = folder, random.Random(seed), 0
        self.workspace = trained_workspace(folder / "w")
        self.before = bytes_of(self.workspace.folder)
        self.stamp = self._stamp()
        more = tabular(42, 4, seed=7).select([40, 41])
        ecbm.write_dataset(more, folder / "written")
        (folder / "more.csv").write_bytes((folder / "written" / "samples.csv").read_bytes())
        np.save(folder / "more.npy", more.x.numpy())
        (folder / "concepts.csv").write_text("id,new\ns1,1\ns2,0\ns3,\n")
        self.edit = json.dumps(
            {
                "correct_concepts": [{"id": "s1", "concept": "round", "value": 1}],
                "correct_labels": [{"id": "s4", "label": "crow"}],
                "remove_concepts": ["size=small"],
                "remove_samples": ["s9"],
                "add_samples": {"table": "more.csv", "features": "more.npy"},
                "add_concepts": "concepts.csv",
            }
        ).encode()
        data = tabular(30, 4)
        ecbm.write_dataset(data, folder / "dataset")
        ecbm.save(self.workspace.model(), folder / "model")

    def _stamp(self) -> list[tuple[str, int, int]]:
        files = sorted(p for p in self.workspace.folder.rglob("*") if p.is_file() and p.name != "lock")
        return [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in files]

    def _answer(self, status: int, out: str, err: str) -> str | None:
        # A spoilt file may still be a valid one; how many were is counted, not hidden.
        self.accepted += status == 0
        return wrong_answer(status, out, err)

    def edits(self) -> str | None:
        """One malformed edit file, previewed."""
        path = self.folder / "edit.json"
        path.write_bytes(mutate(self.edit, self.draw) if self.draw.random() < 0.5 else odd_edit(self.draw))
        return self._answer(*command("edit", self.workspace.folder, path, "--preview", "--json"))

    def tables(self) -> str | None:
        """One edit whose table or features are malformed."""
        path, victim = self.folder / "edit.json", self.draw.choice(("more.csv", "more.npy", "concepts.csv"))
        path.write_bytes(self.edit)
        original = (self.folder / victim).read_bytes()
        (self.folder / victim).write_bytes(mutate(original, self.draw))
        try:
            return self._answer(*command("edit", self.workspace.folder, path, "--preview", "--json"))
        finally:
            (self.folder / victim).write_bytes(original)

    def datasets(self) -> str | None:
        """One malformed dataset, from which a workspace should be made."""
        source = self.folder / "dataset"
        victim = self.draw.choice([p for p in source.iterdir() if p.is_file()])
        original = victim.read_bytes()
        victim.write_bytes(mutate(original, self.draw))
        target = self.folder / "fresh"
        try:
            status, out, err = command("init", target, "--data", source, "--json")
            if status and target.exists():
                return "a refused dataset left a folder"
            return self._answer(status, out, err)
        finally:
            victim.write_bytes(original)
            shutil.rmtree(target, ignore_errors=True)

    def models(self) -> str | None:
        """One malformed model folder, loaded."""
        source = self.folder / "model"
        victim = source / self.draw.choice(("config.json", "model.safetensors"))
        original = victim.read_bytes()
        victim.write_bytes(mutate(original, self.draw))
        try:
            ecbm.load(source)
        except ecbm.InputError as error:
            return None if len(str(error)) < 2000 else "a message without end"
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        finally:
            victim.write_bytes(original)
        self.accepted += 1
        return None

    def run(self, kind: str, count: int) -> tuple[Counter, list[str]]:
        """Try ``count`` of a kind; returns how they ended and what was wrong."""
        ended: Counter[str] = Counter()
        failures = []
        self.accepted = 0
        for number in range(count):
            try:
                wrong = getattr(self, kind)()
            except Exception as error:
                wrong = f"{type(error).__name__}: {str(error)[:300]}"
            if wrong is None and self._stamp() != self.stamp:
                wrong = "the workspace changed"
                self.stamp = self._stamp()
            ended[kind] += 1
            if wrong is not None:
                failures.append(f"{kind} {number}: {wrong}")
        if bytes_of(self.workspace.folder) != self.before:
            failures.append(f"{kind}: the workspace's bytes changed")
        return ended, failures
