"""Replay: versions computed again from their parents, and compared to the bit with what is kept.

Digests find damage. A person who can write to the folder can make digests, records and seal anew; but other weights
than those that were kept do not come out of the recorded data and edits.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ecbm.edit.editor import Editor, EditResult
from ecbm.errors import EcbmError
from ecbm.keep import database, ledger
from ecbm.keep.edit_record import recorded_edit
from ecbm.keep.environment import as_in, digest_of_file, obstacles, suspects
from ecbm.keep.ledger import Detail
from ecbm.keep.noise import noise_of
from ecbm.keep.objects import DamagedError
from ecbm.keep.records import Version
from ecbm.keep.stored_datasets import fingerprint_of_bytes
from ecbm.keep.workspace import Workspace
from ecbm.progress import progress
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe
from ecbm.train.train import train

__all__ = ["Verdict", "replay_versions"]


# As many editors are held in memory for the versions behind them.
_EDITORS = 3
_CLOCK = "computed against a clock (seconds=), which never goes the same way twice"


@dataclasses.dataclass(frozen=True)
class Verdict:
    """Whether a version is what comes out when it is computed again; ``None`` where that cannot be said."""

    version: int
    same: bool | None
    why: str


class _Incomparable(Exception):
    """Why a version cannot be compared."""


class _Different(Exception):
    """In what a version differs."""


def replay_versions(workspace: Workspace, numbers: Sequence[int]) -> list[Verdict]:
    """Compute versions again, oldest first, each from its parent as it is kept."""
    verdicts, editors = [], _Editors(workspace)
    with progress("Replaying versions", len(numbers)) as bar:
        for number in sorted(set(numbers)):
            verdicts.append(_verdict(editors, number))
            bar.advance(1, version=number)
    return verdicts


class _Editors:
    """Editors of versions with the facts that an edit of them started from.

    Facts that edits brought forward from a ``root`` agree with fresh ones to rounding, not to the bit, so the edits
    since the root are made again on the way.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._last: dict[tuple[int, int], Editor] = {}

    def at(self, version: Version, root: int) -> Editor:
        """The editor of a version, as it is kept, whose facts were computed from the data at ``root``."""
        way = [version]
        while (way[-1].version, root) not in self._last and way[-1].version != root:
            latest = way[-1]
            if latest.parent is None or latest.kind != "edit" or latest.parent < root:
                raise _Incomparable(f"version {root}, at which its facts were computed, does not lead to it")
            way.append(self.workspace.version(latest.parent))
        number = way[-1].version
        if (number, root) not in self._last:
            self._keep(number, root, Editor(self.workspace.model(root), self.workspace.data(root)))
        editor = self._checked(way.pop(), root)
        for step in reversed(way):
            details = _details(self.workspace, step)
            recorded, options = _how(details)
            with as_in(recorded):
                self.applied(step, root, editor, options, details)
            editor = self._checked(step, root)
        return editor

    def _checked(self, version: Version, root: int) -> Editor:
        """The editor of a version, if what came out is what is kept."""
        number = version.version
        editor, model = self._last[number, root], self.workspace.model(number)
        prints = editor.model.fingerprint, editor.data.fingerprint
        if prints != (model.fingerprint, fingerprint_of_bytes(self.workspace.data(number))):
            words = f"version {number}, which it was made from,"
            excuses = _excuses(_details(self.workspace, version))
            if excuses:
                raise _Incomparable(f"{words} does not come out the same here: it was {'; '.join(excuses)}")
            raise _Different(f"{words} is not what was edited then")
        return editor

    def applied(
        self, version: Version, root: int, parent: Editor, options: Mapping[str, Any], details: Sequence[Detail]
    ) -> EditResult:
        """What the recorded edit of a version gives; its editor is kept for the versions behind it."""
        given = {name: value for name, value in options.items() if name != "method"}
        noise = noise_of(_single(details))
        given |= {} if noise is None else {"noise": noise}
        edit = recorded_edit(details, self.workspace.data(version.version))
        result = parent.apply(edit, options["method"], **given)
        self._keep(version.version, root, parent.follow(result, curvature=False))
        return result

    def _keep(self, version: int, root: int, editor: Editor) -> None:
        if len(self._last) >= _EDITORS:
            del self._last[next(iter(self._last))]
        self._last[version, root] = editor


def _details(workspace: Workspace, version: Version) -> list[Detail]:
    with database.reading(workspace.folder) as connection:
        return ledger.details_of(connection, [version.sequence])[version.sequence]


def _single(details: Sequence[Detail]) -> dict[str, Any]:
    """The details that speak of no sample, by name."""
    return {detail.part: detail.content for detail in details if detail.subject is None}


def _how(details: Sequence[Detail]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The environment in which a version was computed, and the options."""
    single = _single(details)
    recorded, options = single.get("environment"), single.get("options")
    if recorded is None or options is None:
        raise _Incomparable("with what it was computed is not recorded (by an earlier ecbm), or was erased")
    return recorded, options


def _excuses(details: Sequence[Detail]) -> list[str]:
    """Why a version may rightly come out otherwise here."""
    recorded, options = _how(details)
    clock = [_CLOCK] if options.get("seconds") is not None else []
    with as_in(recorded):
        return clock + obstacles(recorded) + suspects(recorded)


def _verdict(editors: _Editors, number: int) -> Verdict:
    version = editors.workspace.version(number)
    try:
        why = _replay(editors, version)
    except _Incomparable as reason:
        return Verdict(number, None, str(reason))
    except _Different as reason:
        return Verdict(number, False, str(reason))
    return Verdict(number, True, why)


def _replay(editors: _Editors, version: Version) -> str:
    """Compute a version again; returns how it was found to be the same."""
    workspace = editors.workspace
    if version.data is None:
        raise _Incomparable("its arrays were destroyed by an erasure")
    details = _details(workspace, version)
    single = _single(details)
    data, kept = _kept(workspace, version)
    prints = {"data": fingerprint_of_bytes(data), **({} if kept is None else {"model": kept.fingerprint})}
    _compare(prints, {name: single.get("facts", {}).get(name) for name in prints}, "is not the one in the ledger")
    if version.kind == "init":
        raise _Incomparable("there is nothing to compute: it is the data as it was given")
    if version.kind == "erase":
        raise _Incomparable("what it was computed from was destroyed with the erasure")
    if version.summary.get("method") == "import" or version.summary["words"].startswith("imported"):
        raise _Incomparable("its model was trained elsewhere")
    assert kept is not None
    assert version.parent is not None
    parent = workspace.version(version.parent)
    if parent.data is None:
        raise _Incomparable(f"version {parent.version}, which it was made from, was destroyed by an erasure")
    recorded, options = _how(details)
    if options.get("seconds") is not None:
        raise _Incomparable(f"it was {_CLOCK}")
    if "weights" in single and digest_of_file(kept.recipe.weights or "") != single["weights"]:
        raise _Incomparable("the file of weights it started from is gone or has changed")
    with as_in(recorded):
        different = obstacles(recorded)
        if different:
            raise _Incomparable("; ".join(different))
        doubts = suspects(recorded)
        try:
            root = int(single.get("facts_from", parent.version))
            found = _computed(editors, version, parent, root, options, details, kept)
            _compare(prints, found, f"is not what comes out of version {parent.version}")
        except _Different as difference:
            if doubts:
                raise _Incomparable(f"{difference}, perhaps because it was {'; '.join(doubts)}") from None
            raise
    return f"computed again from version {parent.version}: model and data are the same to the bit"


def _kept(workspace: Workspace, version: Version) -> tuple[Dataset, ConceptBottleneck | None]:
    try:
        data = workspace.data(version.version)
        return data, workspace.model(version.version) if version.model is not None else None
    except DamagedError as error:
        raise _Different(str(error)) from None
    except EcbmError as error:
        raise _Incomparable(f"it cannot be read ({error})") from None


def _computed(
    editors: _Editors,
    version: Version,
    parent: Version,
    root: int,
    options: Mapping[str, Any],
    details: Sequence[Detail],
    kept: ConceptBottleneck,
) -> dict[str, str]:
    """The fingerprints that come out of the parent, as it is kept."""
    try:
        before = editors.workspace.data(parent.version)
        if version.kind == "edit":
            editors.workspace.model(parent.version)
    except EcbmError as error:
        raise _Incomparable(f"version {parent.version}, which it was made from, cannot be read ({error})") from None
    try:
        if version.kind == "train":
            recipe = Recipe.from_dict(options["recipe"]).replace(weights=kept.recipe.weights)
            again = train(before, recipe, front=kept.front, noise=noise_of(_single(details)))
            return {"data": before.fingerprint, "model": again.fingerprint}
        result = editors.applied(version, root, editors.at(parent, root), options, details)
    except DamagedError as error:  # of a version further back
        raise _Incomparable(f"what it was made from cannot be read ({error})") from None
    # The same computation went through once: with the recorded inputs it would again.
    except (EcbmError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise _Different(f"it does not come out of version {parent.version} any more ({reason})") from None
    except (RuntimeError, MemoryError, OSError) as error:
        raise _Incomparable(f"computing it again failed ({' '.join(str(error).split())[:200]})") from None
    return {"data": result.data.fingerprint, "model": result.model.fingerprint}


def _compare(prints: Mapping[str, str], wanted: Mapping[str, str | None], words: str) -> None:
    different = [name for name in prints if prints[name] != wanted[name]]
    if different:
        raise _Different(f"the kept {' and the kept '.join(different)} {words}")
