"""``ecbm.influence``: ask a trained model what made it say what it says."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.errors import InputError, unknown_name
from ecbm.progress import progress
from ecbm.read.dataset import Dataset
from ecbm.train.extraction import extract_missing
from ecbm.train.model import ConceptBottleneck
from ecbm.train.trajectory import kept_epochs
from ecbm.verify.influence.confirm import actual_change, measured
from ecbm.verify.influence.deep import Deep
from ecbm.verify.influence.flips import Flips, flipped_value, flips_of
from ecbm.verify.influence.heads import Heads
from ecbm.verify.influence.importance import class_changes_without
from ecbm.verify.influence.sensitivity import Sensitivity
from ecbm.verify.influence.sets import step_without
from ecbm.verify.influence.sources import changes_of_flips
from ecbm.verify.influence.targets import Target, target_of
from ecbm.verify.influence.trajectory import heads_along

if TYPE_CHECKING:
    import pandas

__all__ = ["KINDS", "METHODS", "WAYS", "Influence", "Sets", "influence"]

KINDS = ("samples", "labels", "concepts")
METHODS = ("auto", "heads", "trajectory", "ekfac")
WAYS = ("auto", "sum", "newton", "exact")
Sets = Sequence[str] | Mapping[str, Sequence[str]]
"""Training samples by id, or several sets of them by name."""


class Influence:
    """Answers questions about one model; what they have in common is computed once and kept.

    Parameters
    ----------
    editor
        An :class:`ecbm.Editor`: its features, solved heads and curvature are used and kept there.
    method
        ``"heads"``: through both heads, exactly, features as they are (a frozen backbone has nothing else).
        ``"trajectory"``: the mean of that over the epochs that training kept. ``"ekfac"``: through the backbone
        too, with EK-FAC for its Hessian. ``"auto"``: ``"trajectory"`` where there is one, otherwise ``"heads"``.
    trajectory
        The folder that :func:`ecbm.train` was given to keep the epochs in.

    Examples
    --------
    >>> import ecbm
    >>> from ecbm.verify.influence.asking import Influence
    >>> data = ecbm.datasets.breast_cancer()
    >>> asked = Influence(ecbm.Editor(ecbm.train(data), data))
    >>> table = asked.samples(of="tumour-019", top=2)        # the two most harmful and the two most helpful
    >>> len(table), bool(table["change"].is_monotonic_increasing)
    (4, True)
    """

    def __init__(self, editor: Editor, *, method: str = "auto", trajectory: str | Path | None = None) -> None:
        self.editor, self.method = editor, _method(editor, method, trajectory)
        self._epochs = kept_epochs(trajectory) if trajectory is not None and self.method == "trajectory" else []
        self.exact = editor.model.recipe.is_linear
        extract_missing(editor.state.data)
        self.heads = Heads(editor.state)

    @cached_property
    def _members(self) -> list[Heads]:
        """The heads that answer, and whose mean is the answer."""
        return heads_along(self.editor.state, self._epochs) if self._epochs else [self.heads]

    @cached_property
    def _deep(self) -> Deep:
        return Deep(self.heads)

    @cached_property
    def _flips(self) -> list[Flips]:
        """Of every member; what a label becomes is what the model itself finds likely."""
        own = flips_of(self.editor.state)
        if not self._epochs:
            return [own]
        return [flips_of(member.state, own.labels) for member in self._members]

    def target(self, of: str | Sequence[str] = "val", loss: str = "all", label: str | None = None) -> Target:
        """What is asked about (:func:`~ecbm.verify.influence.targets.target_of`)."""
        state = self.editor.state
        return target_of(state.model, state.data, of, loss, label)

    def value(self, target: Target) -> float:
        """The target's loss now."""
        return self.heads.value(target)

    def sensitivities(self, target: Target) -> list[Sensitivity]:
        """How the target depends on the training terms, for every member."""
        if self.method == "ekfac":
            return [self._deep.sensitivity(target)]
        # A question about one sample is asked while somebody waits, and looked at to three digits.
        tolerance = 1e-4 if len(target.data) == 1 else 1e-6
        return [member.sensitivity(target, tolerance) for member in self._members]

    # -- changes, as tensors -------------------------------------------------------------------------------

    def sample_changes(self, target: Target) -> Tensor:
        """(n,) predicted change of the target's loss if a training sample were removed."""
        return _mean([found.of_samples() for found in self.sensitivities(target)])

    def label_changes(self, target: Target) -> Tensor:
        """(n, concepts) predicted change if a concept label were flipped; NaN where it is missing."""
        found = zip(self._members, self.sensitivities(target), self._flips, strict=True)
        return _mean([changes_of_flips(*one) for one in found])

    def concept_changes(self, target: Target) -> Tensor:
        """(concepts,) predicted change of the target's class loss if a concept were removed."""
        if not bool(target.shares.any()):
            raise InputError(
                "concepts are ranked by the class loss, for the loss of a concept that is gone cannot be compared; "
                "ask with loss='class' or 'all'"
            )
        only = dataclasses.replace(
            target, terms=dataclasses.replace(target.terms, weights=target.terms.weights * 0)
        )
        changes = _mean([class_changes_without(member, only) for member in self._members])
        if self.method == "ekfac":
            through = self._deep.sensitivity(only).of_columns()
            concepts = self.editor.model.layout.concepts
            changes = changes + torch.stack([through[list(concept.columns)].sum() for concept in concepts])
        return changes

    def group_change(self, ids: Sequence[str], target: Target, way: str = "auto") -> float:
        """Predicted change of the target's loss if some training samples were removed together.

        Parameters
        ----------
        ids
            Training samples.
        target
            What is asked about (:meth:`target`).
        way
            ``"sum"``: of the samples' own influences, to first order. ``"newton"``: one Newton step of both heads
            on the samples that remain. ``"exact"``: both heads solved again, with a frozen backbone. ``"auto"``:
            ``"newton"`` with a frozen backbone, ``"sum"`` otherwise.
        """
        return self._set_change(self._set(ids), target, way)

    def _set(self, ids: Sequence[str]) -> list[str]:
        """Training samples, each once."""
        train, found = self.editor.state.train, list(ids)
        if isinstance(ids, str) or not found or not all(isinstance(one, str) for one in found):
            raise InputError("a set that is removed together is a list of at least one id of a training sample")
        if len(set(found)) < len(found):
            raise InputError("a set that is removed together names a sample twice; give every id once")
        for one in found:
            train.row(one)
        if len(found) == len(train):
            raise InputError("a set that is removed together must leave training samples to learn from")
        return found

    def _set_change(
        self, ids: list[str], target: Target, way: str, found: list[Sensitivity] | None = None
    ) -> float:
        stepping = self.exact and self.editor.model.recipe.regime != "joint"
        if way not in WAYS:
            raise unknown_name("way", way, WAYS, "influence")
        if (way == "newton" and not stepping) or (way == "exact" and not self.exact):
            raise InputError(
                f"way={way!r} solves heads behind a frozen backbone, one after the other; this model has 'sum'"
            )
        if way == "exact":
            return actual_change(self.editor, target, Edit(remove_samples=ids))
        if way == "newton" or (way == "auto" and stepping):
            model = self.editor.state.model
            return measured(step_without(self.heads, ids), target, model) - measured(model, target, model)
        train = self.editor.state.train
        rows = torch.tensor([train.row(one) for one in ids])
        sums = [one.of_group(rows) for one in found or self.sensitivities(target)]
        return sum(sums) / len(sums)

    # -- tables --------------------------------------------------------------------------------------------

    def samples(self, of: str | Sequence[str] = "val", **options: Any) -> pandas.DataFrame:
        """:func:`influence` with ``kind="samples"``."""
        return self.table("samples", of, **options)

    def labels(self, of: str | Sequence[str] = "val", **options: Any) -> pandas.DataFrame:
        """:func:`influence` with ``kind="labels"``."""
        return self.table("labels", of, **options)

    def concepts(self, of: str | Sequence[str] = "val", **options: Any) -> pandas.DataFrame:
        """:func:`influence` with ``kind="concepts"``."""
        return self.table("concepts", of, **options)

    def sets(
        self,
        together: Sets,
        of: str | Sequence[str] = "val",
        *,
        loss: str = "all",
        label: str | None = None,
        exact: int = 0,
    ) -> pandas.DataFrame:
        """:func:`influence` with ``together=``."""
        import pandas

        named = together if isinstance(together, Mapping) else {"set": together}
        if not named:
            raise InputError("influence: together= has no sets; give ids, or ids by name")
        members = {name: self._set(ids) for name, ids in named.items()}
        self._check_counts(None, exact)
        target = self.target(of, loss, label)
        found = self.sensitivities(target)
        rows: list[dict[str, Any]] = []
        with progress("Sets", len(members)) as bar:
            for name, ids in members.items():
                row: dict[str, Any] = {"id": None, "concept": None, "set": name, "samples": len(ids)}
                row["change"] = self._set_change(ids, target, "auto", found)
                row["sum"] = self._set_change(ids, target, "sum", found)
                if exact:
                    here = len(rows) < exact
                    row["actual"] = self._set_change(ids, target, "exact") if here else float("nan")
                rows.append(row)
                bar.advance()
        return pandas.DataFrame(rows).sort_values("change", kind="stable", ignore_index=True)

    def _check_counts(self, top: int | None, exact: int) -> None:
        for name, number in (("top", top), ("exact", exact)):
            if number is not None and number < (name == "top"):
                raise InputError(f"influence: {name} must be at least {int(name == 'top')}, got {number}")
        if exact and not self.exact:
            raise InputError(
                "exact= solves both heads again, which is retraining with a frozen backbone only; preview the edit "
                "with method 'retrain' instead"
            )

    def table(
        self,
        kind: str,
        of: str | Sequence[str] = "val",
        *,
        loss: str = "all",
        label: str | None = None,
        top: int | None = None,
        exact: int = 0,
    ) -> pandas.DataFrame:
        """:func:`influence`."""
        if kind not in KINDS:
            raise unknown_name("kind", kind, KINDS, "influence")
        self._check_counts(top, exact)
        target = self.target(of, loss, label)
        if kind == "samples":
            frame = self._sample_table(self.sample_changes(target), top)
        elif kind == "labels":
            frame = self._label_table(self.label_changes(target), top)
        else:
            frame = self._concept_table(self.concept_changes(target), top)
        if exact:
            frame["actual"] = self._actual(kind, frame, target, exact)
        return frame

    def _sample_table(self, changes: Tensor, top: int | None) -> pandas.DataFrame:
        import pandas

        train, rows = self.editor.state.train, _ranked(changes, top)
        return pandas.DataFrame(
            {
                "id": [train.ids[row] for row in rows.tolist()],
                "concept": None,
                "label": [train.label_of(row) for row in rows.tolist()],
                "change": changes[rows].numpy(),
            }
        )

    def _label_table(self, changes: Tensor, top: int | None) -> pandas.DataFrame:
        import pandas

        train, concepts = self.editor.state.train, self.editor.model.layout.concepts
        places = _ranked(changes.flatten(), top)
        labels, flipped = train.concepts, self._flips[0].labels
        found: dict[str, list[Any]] = {"id": [], "concept": [], "label": [], "flipped": []}
        for place in places.tolist():
            row, concept = place // len(concepts), concepts[place % len(concepts)]
            found["id"].append(train.ids[row])
            found["concept"].append(concept.name)
            found["label"].append(flipped_value(concept, labels[row]))
            found["flipped"].append(flipped_value(concept, flipped[row]))
        return pandas.DataFrame(found | {"change": changes.flatten()[places].numpy()})

    def _concept_table(self, changes: Tensor, top: int | None) -> pandas.DataFrame:
        import pandas

        concepts, rows = self.editor.model.layout.concepts, _ranked(changes, top)
        names = [concepts[row].name for row in rows.tolist()]
        return pandas.DataFrame({"id": None, "concept": names, "change": changes[rows].numpy()})

    def _actual(self, kind: str, frame: pandas.DataFrame, target: Target, count: int) -> list[float]:
        """What really happens, for the first rows; NaN for the others, and where the edit cannot be made: the last
        sample of a class, the last concept.
        """
        found = [float("nan")] * len(frame)
        count = min(count, len(frame))
        with progress("Solving again", count) as bar:
            for place in range(count):
                row = frame.iloc[place]
                if kind == "samples":
                    edit = Edit(remove_samples=[row["id"]])
                elif kind == "labels":
                    value = row["flipped"]
                    value = None if isinstance(value, float) and value != value else value
                    edit = Edit(correct_concepts=[(row["id"], row["concept"], value)])
                else:
                    edit = Edit(remove_concepts=[row["concept"]])
                with contextlib.suppress(InputError):
                    found[place] = actual_change(self.editor, target, edit)
                bar.advance()
        return found


def _method(editor: Editor, method: str, trajectory: str | Path | None) -> str:
    """The method that was asked for, or that is best for this model; what cannot be is refused."""
    if method not in METHODS:
        raise unknown_name("method", method, METHODS, "influence")
    recipe = editor.model.recipe
    along = trajectory is not None and not recipe.is_linear and recipe.regime != "joint"
    if method == "auto":
        return "trajectory" if along else "heads"
    if method != "heads" and recipe.is_linear:
        raise InputError(f"method={method!r} is for deep backbones; with a frozen one 'heads' is exact")
    if method == "ekfac" and recipe.regime != "sequential":
        raise InputError(f"method='ekfac' is for sequential models, this one is {recipe.regime}; use 'heads'")
    if method == "trajectory" and not along:
        if recipe.regime == "joint":
            raise InputError("method='trajectory' solves heads one after the other; of a joint model use 'heads'")
        raise InputError(
            "method='trajectory' needs the epochs of the training; none were kept (train with trajectory=)"
        )
    return method


def _mean(found: list[Tensor]) -> Tensor:
    return found[0] if len(found) == 1 else torch.stack(found).mean(0)


def _ranked(changes: Tensor, top: int | None) -> Tensor:
    """Places in order, the most negative change first; NaN left out. With ``top`` only so many from both ends."""
    known = (~changes.isnan()).nonzero().flatten()
    values = changes[known]
    if top is None or len(known) <= 2 * top:
        return known[values.argsort(stable=True)]
    # Of half a million labels only the ends are sorted; among equals the first in order of the data come first.
    low, high = values.kthvalue(top).values, values.kthvalue(len(values) - top + 1).values
    ends = ((values <= low).nonzero().flatten(), (values >= high).nonzero().flatten())
    first, last = (end[values[end].argsort(stable=True)] for end in ends)
    return known[torch.cat([first[:top], last[-top:]])]


def influence(
    model: ConceptBottleneck | Editor | Influence,
    data: Dataset | None = None,
    of: str | Sequence[str] = "val",
    kind: str = "samples",
    *,
    loss: str = "all",
    label: str | None = None,
    method: str = "auto",
    trajectory: str | Path | None = None,
    top: int | None = None,
    exact: int = 0,
    together: Sets | None = None,
) -> pandas.DataFrame:
    """Which training samples, concept labels or concepts help and harm a prediction or a metric.

    ``change`` is the predicted change of the target's loss if the sample or concept were removed, or the concept
    label flipped. The most harmful come first: a negative change means that the loss falls without them.

    Parameters
    ----------
    model
        A trained model, or an :class:`ecbm.Editor` of it, which keeps what it computes for the next question.
    data
        The dataset it was trained on; not with an editor.
    of
        The target: ``"val"`` (or another split), the id of one sample of any split, or several ids.
    kind
        ``"samples"`` (removed), ``"labels"`` (concept labels, flipped) or ``"concepts"`` (removed; the change is
        that of the class loss).
    loss
        ``"all"``: mean loss of a concept label plus mean loss of a class label. ``"class"``, ``"concepts"``, or
        one concept's name: that part alone.
    label
        A class: −log of its probability is the target, instead of the loss against the samples' own labels.
    method
        ``"auto"``; for deep backbones also ``"heads"``, ``"trajectory"`` or ``"ekfac"`` (:class:`Influence`).
    trajectory
        For deep backbones: the folder of epochs that :func:`ecbm.train` kept. Estimates with it are better.
    top
        Only so many of the most harmful and of the most helpful; all by default.
    exact
        With a frozen backbone: carry the first so many changes out, each on its own, and add what really happens
        as a column ``actual``; NaN where the edit cannot be made (the last sample of a class, the last concept).
    together
        Training samples that are removed as one set, or several sets by name: one row a set, with ``set``,
        ``samples`` (how many), ``change`` (with a frozen backbone by one Newton step on the samples that remain)
        and ``sum`` (of the samples' own influences).

    Returns
    -------
    pandas.DataFrame
        ``id``, ``concept`` and ``change``, one row a sample, label or concept; ``label`` is what it is now and
        ``flipped`` what it would become.

    Examples
    --------
    >>> import ecbm
    >>> data = ecbm.datasets.breast_cancer()
    >>> model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    >>> table = ecbm.influence(model, data, of="tumour-019", kind="labels", top=3)
    >>> list(table.columns), len(table)
    (['id', 'concept', 'label', 'flipped', 'change'], 6)
    """
    if isinstance(model, ConceptBottleneck):
        if data is None:
            raise InputError("influence: a model needs the dataset it was trained on: influence(model, data)")
        model = Editor(model, data)
    elif data is not None:
        raise InputError("influence: an editor has its data; leave data out")
    asked = model if isinstance(model, Influence) else Influence(model, method=method, trajectory=trajectory)
    if together is not None:
        if kind != "samples":
            raise InputError(f"influence: together= is for kind='samples', got kind={kind!r}")
        return asked.sets(together, of, loss=loss, label=label, exact=exact)
    return asked.table(kind, of, loss=loss, label=label, top=top, exact=exact)
