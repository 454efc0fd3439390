"""Every concept removed on its own, by editing and by retraining: brute force behind two experiments."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ecbm.edit.edit import Edit
from ecbm.edit.editor import Editor
from ecbm.read.dataset import Dataset
from ecbm.show.reproduce.candidates import timed
from ecbm.show.reproduce.case import Case
from ecbm.show.reproduce.judging import predictions
from ecbm.show.reproduce.scenarios import without_concepts
from ecbm.train.extraction import seen_through
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.influence.asking import Influence
from ecbm.verify.influence.confirm import measured
from ecbm.verify.influence.targets import Target, target_of

__all__ = ["class_target", "editor_of", "figures_of", "influences_of", "removal", "without"]


def without(case: Case, names: list[str]) -> Dataset:
    """The dataset without some concepts."""
    return without_concepts(case.data, [case.data.concept_index(name) for name in names])


@functools.lru_cache(maxsize=1)
def editor_of(case: Case, seed: int) -> Editor:
    """An editor of the original model; the last one is kept with what it has fitted."""
    return Editor(case.model(case.data, seed), case.data)


def class_target(editor: Editor, of: str | list[str]) -> Target:
    """The class loss of a split or of some samples."""
    return target_of(editor.state.model, seen_through(editor.model.front, editor.data), of, "class")


@functools.lru_cache(maxsize=4)
def influences_of(case: Case, seed: int, of: str | tuple[str, ...]) -> tuple[dict[str, float], float]:
    """Theorem 4.3: the predicted change of a class loss without each concept, and the seconds for all of them."""
    editor = editor_of(case, seed)
    asked, target = Influence(editor), class_target(editor, of if isinstance(of, str) else list(of))
    changes, seconds = timed(lambda: asked.concept_changes(target))
    names = [concept.name for concept in editor.model.layout.concepts]
    return dict(zip(names, changes.tolist(), strict=True)), seconds


def figures_of(case: Case, model: ConceptBottleneck) -> dict[str, float]:
    """F1 and accuracy on test data."""
    found = predictions(model, case.data.split("test"), list(model.concept_names))
    return {key: found[key] for key in ("class_f1", "class_accuracy")}


def removal(case: Case, name: str, seed: int, targets: Mapping[str, list[str] | str]) -> dict[str, Any]:
    """One concept removed by ``auto`` and by retraining under the same seed: figures, and changes of class losses.

    Parameters
    ----------
    targets
        Splits or ids of samples by name, whose class losses are measured.
    """
    editor = editor_of(case, seed)
    budget = float(case.setting("budget"))
    edited, seconds = timed(lambda: editor.apply(Edit(remove_concepts=[name]), "auto", budget=budget).model)
    retrained = case.model(without(case, [name]), seed)
    found: dict[str, Any] = {"seconds": seconds, "training_seconds": retrained.provenance.training["seconds"]}
    for kind, model in (("auto", edited), ("retrain", retrained)):
        changes = {}
        for of, samples in targets.items():
            target = class_target(editor, samples)
            changes[of] = measured(model, target, editor.model) - measured(editor.model, target, editor.model)
        found[kind] = figures_of(case, model) | {"changes": changes}
    return found
