"""A workspace: a folder that keeps a dataset, every version of a model, and who changed what, when and why.

How its verbs are done is written in the neighbours of this file, which are imported when they are needed: looking
at history must not wait for torch.
"""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from ecbm import html
from ecbm.keep.objects import DamagedError, ObjectStore
from ecbm.keep.questions import Questions
from ecbm.keep.records import Version, erased, untrained
from ecbm.keep.signature import Signature
from ecbm.words import counted, local_time, summary_words

if TYPE_CHECKING:
    from ecbm.devices import Device
    from ecbm.edit.edit import Edit
    from ecbm.keep.stored_datasets import DatasetReader
    from ecbm.read.dataset import Dataset
    from ecbm.train.model import ConceptBottleneck
    from ecbm.train.recipe import Recipe

__all__ = ["Version", "Workspace"]

T = TypeVar("T")


class Workspace(Questions):
    """An existing workspace, with the verbs of the command line.

    Verbs that change something take ``reason`` and ``author``, which the ledger keeps (the author is by default
    ``ECBM_AUTHOR`` or the name of the user), and ``expect``: the version the caller has looked at. Where it is not
    the current one any more, nothing is done.

    Parameters
    ----------
    folder
        A folder made by ``ecbm init`` or :meth:`create`.
    trust
        Modules that may be imported to build a backbone of somebody's own (``"package.module:factory"``).
    device
        Where networks run: ``"cpu"`` (the default), ``"auto"``, ``"cuda"``, ``"mps"``.

    Examples
    --------
    >>> import ecbm, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> workspace = ecbm.Workspace.create(folder, ecbm.datasets.breast_cancer(), ecbm.Recipe(backbone="linear"))
    >>> workspace.train()
    1
    >>> sample = workspace.data().split("train").ids[0]
    >>> version, report = workspace.edit(ecbm.Edit(remove_samples=[sample]), reason="taken twice")
    >>> version, report["certificate"]["class_predictions_that_could_differ"]
    (2, 0)
    >>> workspace.undo(), workspace.redo()
    (1, 2)
    >>> [(item["version"], item["reason"]) for item in ecbm.Workspace(folder).log()]
    [(2, 'taken twice'), (1, None), (0, None)]
    """

    def __init__(self, folder: str | Path, *, trust: Sequence[str] = (), device: Device = None) -> None:
        super().__init__(folder)
        self.trust, self.device = tuple(trust), device
        self._reader: DatasetReader | None = None
        self._model: tuple[dict[str, Any], ConceptBottleneck] | None = None

    @classmethod
    def create(
        cls,
        folder: str | Path,
        data: Dataset,
        recipe: Recipe | None = None,
        *,
        model: ConceptBottleneck | None = None,
        source: str = "",
        reason: str = "",
        author: str = "",
        device: Device = None,
    ) -> Workspace:
        """Make a workspace with a dataset (version 0); the folder appears whole or not at all.

        Parameters
        ----------
        folder
            A new or empty folder.
        data
            The dataset, copied into the workspace.
        recipe
            How models are trained in it; ``Recipe()`` chooses a backbone that fits the inputs.
        model
            A model that was trained elsewhere on this very data (checked by fingerprint), kept as version 1.
        source
            Where the data came from, for the log and for what an erasure cannot reach.
        device
            As for :class:`Workspace`.

        Returns
        -------
        Workspace
            The workspace, opened.
        """
        from ecbm.keep.actions import create_workspace

        create_workspace(folder, data, recipe, model=model, source=source, signature=Signature(author, reason))
        own = [recipe.backbone_text.partition(":")[0]] if recipe is not None and recipe.is_own else []
        return cls(folder, trust=own, device=device)

    @property
    def recipe(self) -> Recipe:
        """How models are trained in it, unless :meth:`train` is given another recipe."""
        from ecbm.train.recipe import Recipe

        return Recipe.from_dict(json.loads(self.meta()["recipe"]))

    def check_trusted(self, recipe: Recipe) -> None:
        """Refuse the workspace's own recipe where it names code that nobody here has allowed."""
        from ecbm.trust import check_trusted

        if recipe.is_own:
            check_trusted(recipe.backbone_text, self.trust)

    # -- changing the model --------------------------------------------------------------------------------

    def train(
        self,
        recipe: Recipe | None = None,
        *,
        keep_epochs: bool = False,
        reason: str = "",
        author: str = "",
        expect: int | None = None,
    ) -> int:
        """Train on the current data and keep the model as a new version.

        Parameters
        ----------
        recipe
            How to train; that of the workspace by default.
        keep_epochs
            Keep the backbone of every epoch in the cache, for better answers about influence.

        Returns
        -------
        int
            The new version's number.
        """
        from ecbm.keep.actions import train_model

        signature = Signature(author, reason)
        return train_model(self, recipe, signature=signature, expected=expect, keep_epochs=keep_epochs)

    def adopt(self, model: ConceptBottleneck, *, reason: str = "", author: str = "") -> int:
        """Keep a model that was trained elsewhere on the current data (checked by fingerprint) as a new version."""
        from ecbm.keep.actions import adopt_model

        return adopt_model(self, model, signature=Signature(author, reason))

    def edit(
        self,
        edit: Edit | str | os.PathLike[str],
        method: str = "auto",
        *,
        reason: str = "",
        author: str = "",
        expect: int | None = None,
        **options: Any,
    ) -> tuple[int, dict[str, Any]]:
        """Apply an edit to the current model and keep the result as a new version.

        Parameters
        ----------
        edit
            An :class:`ecbm.Edit`, or the path of an edit file.
        method, options
            As for :meth:`ecbm.Editor.apply`.

        Returns
        -------
        tuple
            The new version's number, and the report.
        """
        from ecbm.keep.actions import edit_model

        return edit_model(self, edit, method, options, signature=Signature(author, reason), expected=expect)

    def preview(self, edit: Edit | str | os.PathLike[str], method: str = "auto", **options: Any) -> dict[str, Any]:
        """The report of :meth:`edit`, without keeping anything."""
        from ecbm.keep.actions import preview_edit

        return preview_edit(self, edit, method, options)

    def undo(self, *, reason: str = "", author: str = "", expect: int | None = None) -> int:
        """Make the parent of the current version the current one, bit for bit; returns its number."""
        from ecbm.keep.undo import undo

        return undo(self, signature=Signature(author, reason), expected=expect)

    def redo(self, *, reason: str = "", author: str = "", expect: int | None = None) -> int:
        """Take the last undo back, bit for bit; returns the version that is then the current one."""
        from ecbm.keep.undo import redo

        return redo(self, signature=Signature(author, reason), expected=expect)

    def erase(
        self,
        ids: Sequence[str],
        method: str = "auto",
        *,
        reason: str = "",
        author: str = "",
        expect: int | None = None,
        before_writing: Callable[[], None] | None = None,
        **options: Any,
    ) -> dict[str, Any]:
        """Erase samples from the model and from everything the workspace keeps. It cannot be undone.

        Parameters
        ----------
        ids
            Samples of any split, also such that an earlier edit has removed.
        method
            ``"auto"``, ``"exact"`` or ``"retrain"`` (which also trains a deep backbone anew).
        before_writing
            Called when all is computed and nothing is written yet; an exception that it raises ends it there.

        Returns
        -------
        dict
            ``version``, ``erased`` (how many), ``report``, ``not_reached`` (what lies outside the workspace).
        """
        from ecbm.keep.erasure import erase_samples

        try:
            signature = Signature(author, reason)
            return erase_samples(
                self, ids, method, options, signature=signature, expected=expect, before_writing=before_writing
            )
        finally:
            self._forget()

    # -- looking and keeping -------------------------------------------------------------------------------

    def log(
        self, limit: int | None = None, before: int | None = None, *, most_items: int = 1000
    ) -> list[dict[str, Any]]:
        """The versions, newest first, as ``ecbm log --json`` prints them.

        Parameters
        ----------
        limit, before
            How many at most, and only versions before this one; all by default.
        most_items
            How much is read of one edit.

        Returns
        -------
        list of dict
            Each with ``version``, ``parent``, ``kind``, ``time``, ``author``, ``reason``, ``summary``, ``edit`` and
            ``report``, among others.
        """
        return self.described(self.versions(limit, before), most_items)

    def check(self, replay: bool | Sequence[int | str] = False, *, repair: bool = False) -> dict[str, Any]:
        """Whether everything that is kept is still what it was: the ledger's chain, fingerprints and every file.

        Parameters
        ----------
        replay
            Also compute versions again from their parents and compare them to the bit: ``True`` for all, or some
            (``[3, 4]``). It takes as long as making them took.
        repair
            Make a missing or outdated seal anew if all else is sound.

        Returns
        -------
        dict
            ``ok``; ``problems``, each with ``problem`` and ``repair``; ``notes`` about harmless things; ``checked``
            (counts); with ``replay`` also ``replayed``, each with ``version``, ``same`` (``None`` where it cannot
            be compared: made on another machine type, say) and ``why``.

        Examples
        --------
        >>> import ecbm, tempfile
        >>> data, recipe = ecbm.datasets.breast_cancer(), ecbm.Recipe(backbone="linear")
        >>> workspace = ecbm.Workspace.create(tempfile.mkdtemp(), data, recipe)
        >>> _ = workspace.train()
        >>> result = workspace.check(replay=True)
        >>> result["ok"], [(item["version"], item["same"]) for item in result["replayed"]]
        (True, [(0, None), (1, True)])
        """
        from ecbm.keep.checking import check_workspace

        return check_workspace(self.folder, repair=repair, replay=replay, trust=self.trust)

    def export(
        self,
        folder: str | Path,
        version: int | str | None = None,
        *,
        onnx: bool = False,
        reason: str = "",
        author: str = "",
    ) -> dict[str, Any]:
        """Write a version as a folder that :func:`ecbm.load` reads, with a model card; it holds no samples.

        Parameters
        ----------
        folder
            A new or empty folder. Inside the workspace, exports go to ``exports/NAME``.
        version
            The current one by default.
        onnx
            Also write ``model.onnx`` (needs ``ecbm[onnx]``).

        Returns
        -------
        dict
            ``version``, ``folder`` and ``files``.
        """
        from ecbm.keep.exporting import export_version

        return export_version(self, folder, version, onnx=onnx, signature=Signature(author, reason))

    # -- arrays --------------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        version = self.version()
        shape = version.summary.get("shape", {})
        return (
            f"Workspace({str(self.folder)!r}, version {version.version}: {summary_words(version.summary)}; "
            f"{counted(shape.get('samples', 0), 'sample')}, {counted(shape.get('concepts', 0), 'concept')})"
        )

    def _repr_html_(self) -> str:
        newest = self.versions(12)
        rows = [(one.version, local_time(one.time), summary_words(one.summary)) for one in newest]
        lines = [f"ledger hash {self.ledger_hash()}"]
        return html.block(repr(self), lines, ("version", "time", "what"), rows)

    @cached_property
    def store(self) -> ObjectStore:
        """The array files."""
        return ObjectStore(self.folder)

    def data(self, number: int | str | None = None) -> Dataset:
        """The dataset of a version; the current one by default. What versions share is read once."""
        from ecbm.keep.stored_datasets import DatasetReader

        if self._reader is None:
            self._reader = DatasetReader(self.store)
        reader = self._reader

        def read(version: Version) -> Dataset:
            if version.data is None:
                raise erased(version)
            return reader.read(version.data)

        return self._steadily(number, read)

    def model(self, number: int | str | None = None) -> ConceptBottleneck:
        """The model of a version; the current one by default. It is yours: changing it changes nothing here."""
        from ecbm.keep.stored_features import attach_features
        from ecbm.keep.stored_models import load_model

        def read(version: Version) -> ConceptBottleneck:
            if version.model is None:
                raise erased(version) if not version.kept else untrained(self.folder, version)
            if self._model is None or self._model[0] != version.model:
                self._model = version.model, load_model(version.model, self.store, self.trust)
                attach_features(self.folder, self._model[1])
                _place(self._model[1], self.device)
            return copy.deepcopy(self._model[1])

        return self._steadily(number, read)

    def _forget(self) -> None:
        """Drop the arrays that were read."""
        self._reader, self._model = None, None

    def _steadily(self, number: int | str | None, read: Callable[[Version], T]) -> T:
        """Read the arrays of a version; once more if an erasure took them away between its record and its files."""
        version = self.version(number)
        try:
            return read(version)
        except DamagedError:
            now = self.version(number)
            if now == version:
                raise
            return read(now)


def _place(model: ConceptBottleneck, device: Device) -> None:
    """Put a model's network where the workspace's networks run."""
    from ecbm.devices import placed

    if device is None:
        return
    if model.front is not None:
        model.front.device = placed(device)
    if not model.recipe.is_linear:
        model.backbone.to(placed(device))
