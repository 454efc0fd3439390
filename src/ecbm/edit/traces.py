"""What removed samples have left in a model: which of its parameters still carry what was learnt from them."""

from __future__ import annotations

from typing import Any

import torch

from ecbm.edit.alignment import Alignment
from ecbm.train.model import ConceptBottleneck
from ecbm.words import counted

__all__ = ["traces_of"]


def traces_of(
    alignment: Alignment,
    carried: ConceptBottleneck,
    model: ConceptBottleneck,
    *,
    retrained: bool,
    solved: bool,
) -> dict[str, Any] | None:
    """How far the removed training samples have left an edited model; ``None`` where none was removed.

    Parameters
    ----------
    carried
        The unedited model under the new names. Its standardisation is rewritten, and a first layer with it, which
        teaches it nothing.
    model
        After the edit.
    retrained
        Whether it was trained from fresh weights.
    solved
        Whether both heads are minima on the samples that stay, whatever they were before.

    Returns
    -------
    dict
        ``solved_without_them`` (parts that are minima on the other samples, given the features),
        ``trained_on_without_them`` (parameters that were trained further on the other samples, from values that had
        seen the removed ones), ``as_before`` and ``statistics_as_before`` (parameters and normalisation statistics
        that are what they were) and ``words``.
    """
    if not len(alignment.samples.gone):
        return None
    heads = ["concept_head", "label_head"]
    if retrained:
        words = "trained anew without the removed samples: nothing of the model has seen them"
        return _told(heads, [], [], [], words)
    before, after = dict(carried.backbone.named_parameters()), dict(model.backbone.named_parameters())
    moved = [name for name, value in after.items() if not torch.equal(value, before[name])]
    kept = [name for name in after if name not in moved]
    old = dict(carried.backbone.named_buffers())
    statistics = [
        name
        for name, value in model.backbone.named_buffers()
        if name.rsplit(".", 1)[-1] in ("running_mean", "running_var") and torch.equal(value, old[name])
    ]
    further = [*(f"backbone.{name}" for name in moved), *([] if solved else heads)]
    front = [f"backbone.{name}" for name in kept]
    if not front and not further and not statistics:
        words = "features are not learnt and both heads are solved again: nothing of the model has seen the samples"
        return _told(heads if solved else [], further, front, statistics, words)
    parts = []
    if front:
        parts.append(f"{counted(len(front), 'parameter tensor')} of the backbone as before")
    if further:
        count = counted(len(further), "parameter tensor")
        parts.append(f"{count} trained on without them, from values that had seen them")
    if statistics:
        parts.append(f"{counted(len(statistics), 'normalisation statistic')} as before")
    words = f"what was learnt from the removed samples may remain in: {'; '.join(parts)}; retraining removes it"
    return _told(heads if solved else [], further, front, [f"backbone.{name}" for name in statistics], words)


def _told(
    solved: list[str], further: list[str], front: list[str], statistics: list[str], words: str
) -> dict[str, Any]:
    return {
        "solved_without_them": solved,
        "trained_on_without_them": further,
        "as_before": front,
        "statistics_as_before": statistics,
        "words": words,
    }
