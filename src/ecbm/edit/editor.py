"""The :class:`Editor`: prepares an edit, has a method carry it out, and reports what it did."""

from __future__ import annotations

import copy
import dataclasses
import time
from collections.abc import Sequence
from typing import Any

import torch

from ecbm.devices import Device, device_of, placed
from ecbm.edit.alignment import Alignment, align
from ecbm.edit.changes import Changes, changes_of
from ecbm.edit.edit import Edit
from ecbm.edit.methods import METHODS, Options
from ecbm.edit.notebook import editor_html, result_html, result_words
from ecbm.edit.releasing import released
from ecbm.edit.report import report_of
from ecbm.edit.state import EditorState, Facts
from ecbm.errors import InputError, unknown_name
from ecbm.read.dataset import Dataset
from ecbm.train.extraction import extract_missing, seen_through
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import percentiles_of

__all__ = ["EditResult", "Editor"]


@dataclasses.dataclass(frozen=True)
class EditResult:
    """A new model, a new dataset and the report (plain JSON values); the editor's own are untouched."""

    model: ConceptBottleneck
    data: Dataset
    report: dict[str, Any]
    facts: Facts = dataclasses.field(default_factory=Facts, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<EditResult: {result_words(self.report)}>"

    def _repr_html_(self) -> str:
        return result_html(self.report)


class Editor:
    """Edits a trained model. Features and curvature are computed on first use and kept for later edits.

    Parameters
    ----------
    model
        A trained model.
    data
        The dataset it was trained on (checked by fingerprint).
    device
        Where networks and their curvature are computed: ``"cpu"``, ``"auto"``, ``"cuda"``, ``"mps"``. Heads are
        solved on the CPU in any case, and edited models lie there.

    Examples
    --------
    >>> import ecbm
    >>> data = ecbm.datasets.breast_cancer()
    >>> model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    >>> sample = data.split("train").ids[0]
    >>> result = ecbm.Editor(model, data).apply(ecbm.Edit(remove_samples=[sample]))
    >>> result.report["certificate"]["class_predictions_that_could_differ"]
    0
    """

    def __init__(self, model: ConceptBottleneck, data: Dataset, *, device: Device = None) -> None:
        _check_kinds(model, data)
        if model.provenance.data_fingerprint and model.provenance.data_fingerprint != data.fingerprint:
            raise InputError(
                "the model was trained on other data (fingerprints differ); pass the dataset it was trained on, or "
                "result.data after an edit"
            )
        same = model.concept_names == data.concept_names and model.class_names == data.class_names
        same = same and model.predicts_number == data.predicts_number
        if not same or model.layout != data.layout:
            raise InputError(
                "concepts or classes of the model and the data differ; pass the data it was trained on"
            )
        self.model, self.data, self.device = model, data, placed(device)
        if model.front is not None and device is not None:
            model.front.device = self.device
        self.state = EditorState(_on(model, self.device), seen_through(model.front, data))

    def __repr__(self) -> str:
        return f"Editor({self.model!r}, {self.data!r}, kept: {', '.join(self.state.seconds) or 'nothing yet'})"

    def _repr_html_(self) -> str:
        return editor_html(self.model, self.data, list(self.state.seconds))

    def apply(self, edit: Edit | Sequence[Edit], method: str = "auto", **options: Any) -> EditResult:
        """Apply an edit, or several as one step.

        Parameters
        ----------
        edit
            An :class:`Edit`, or a sequence of edits that are applied one after another and solved once.
        method
            ``"auto"``: the best we know within ``budget``. ``"exact"``: both heads to machine precision, the
            backbone untouched. ``"ekfac"``, ``"hessian"``: the paper's influence steps. ``"retrain"``: the ground
            truth.
        options
            Fields of :class:`~ecbm.edit.methods.base.Options`: ``budget`` (a share of retraining's work) or
            ``seconds`` (a clock) for ``auto``; ``fisher``, ``damping``, ``guarded``, ``relative``,
            ``gradient``, ``label_curvature`` for the influence methods; ``warm_start`` for ``retrain``.
        """
        if method not in METHODS:
            raise unknown_name("method", method, tuple(METHODS))
        chosen = _options(options)
        started = time.monotonic()
        edited, changes = self._edited(edit)
        seen = seen_through(self.model.front, edited)
        alignment = align(self.state.model, self.state.data, changes.edit, seen, self.state.terms)
        seconds: dict[str, float] = {"prepare": time.monotonic() - started}
        if not changes.edit:
            return self._nothing(alignment, method, seconds, changes)
        for data in (self.state.data, seen):
            extract_missing(data)
        before, mark = dict(self.state.seconds), time.monotonic()
        outcome = METHODS[method](alignment, self.state, chosen)
        if self.model.recipe.certified is not None and outcome.certified is None:
            outcome = released(alignment, self.state, outcome, chosen)
        fitted = {name: cost - before.get(name, 0.0) for name, cost in self.state.seconds.items()}
        fitted = {name: cost for name, cost in fitted.items() if cost > 0}
        seconds |= {f"fit {name} (kept for later edits)": cost for name, cost in fitted.items()}
        seconds["edit"] = time.monotonic() - mark - sum(fitted.values())
        mark = time.monotonic()
        outcome = dataclasses.replace(outcome, model=_on(outcome.model, self.device))
        report, facts = report_of(alignment, self.state, outcome, method)
        if outcome.certified is not None:
            report["certified"] = outcome.certified
        seconds["report"] = time.monotonic() - mark
        model = _on(outcome.model, torch.device("cpu"))
        model.provenance = dataclasses.replace(model.provenance, data_fingerprint=edited.fingerprint)
        model.put_percentiles(percentiles_of(alignment.after))
        return EditResult(model, edited, report | {"seconds": seconds, "notes": changes.notes()}, facts)

    def preview(self, edit: Edit | Sequence[Edit], method: str = "auto", **options: Any) -> dict[str, Any]:
        """The report of :meth:`apply`, without keeping anything."""
        return self.apply(edit, method, **options).report

    def follow(self, result: EditResult, *, curvature: bool = True) -> Editor:
        """An editor for the next edit, on what the last one gave (periodic editing).

        It takes along what the edit has found out, and with ``curvature`` EK-FAC factors that were fitted, as long
        as they are not stale (:class:`~ecbm.edit.state.EditorState`).
        """
        editor = Editor(result.model, result.data, device=self.device)
        state = editor.state
        editor.state = self.state.follow(state.model, state.data, result.facts, curvature=curvature)
        return editor

    def _edited(self, edit: Edit | Sequence[Edit]) -> tuple[Dataset, Changes]:
        if isinstance(edit, Edit):
            return edit.apply_to(self.data), changes_of(edit.resolved(self.data), self.data)
        edited = self.data
        for one in _edits(edit):
            edited = one.apply_to(edited)
        return edited, changes_of(Edit.between(self.data, edited).resolved(self.data), self.data)

    def _nothing(
        self, alignment: Alignment, method: str, seconds: dict[str, float], changes: Changes
    ) -> EditResult:
        """An edit that changes nothing is the identity, bit for bit, whatever the method."""
        why = changes.notes() or ["the edit is empty: nothing was done"]
        report = {
            "method": method,
            "edit": alignment.edit.said_of(alignment.data),
            "changed": {"terms": 0, "samples": 0, "concepts": 0},
            "settings": {"why": why[0]},
            "notes": changes.notes(),
            "seconds": seconds,
        }
        return EditResult(self.model, self.data, report)


def _on(model: ConceptBottleneck, device: torch.device) -> ConceptBottleneck:
    """The model with its networks on a device; itself where they are there."""
    if model.recipe.is_linear or device_of(model.backbone) == device:
        return model
    other = copy.copy(model)
    # The modules of a shallow copy are in a dictionary that both would share.
    other._modules = dict(model._modules)
    other.backbone = copy.deepcopy(model.backbone).to(device)
    return other


def _check_kinds(model: Any, data: Any) -> None:
    if not isinstance(model, ConceptBottleneck) or not isinstance(data, Dataset):
        given = f"{type(model).__name__} and {type(data).__name__}"
        raise InputError(f"Editor: expected a model and the dataset it was trained on, got {given}")


def _options(given: dict[str, Any]) -> Options:
    known = {field.name for field in dataclasses.fields(Options)}
    for name in given:
        if name not in known:
            raise unknown_name("option of an edit", name, sorted(known))
    return Options(**given)


def _edits(given: Any) -> list[Edit]:
    edits = list(given) if isinstance(given, Sequence) and not isinstance(given, str) else [given]
    for one in edits:
        if not isinstance(one, Edit):
            raise InputError(f"expected an Edit or a list of them, got {type(one).__name__}")
    return edits
