"""Two versions side by side: what their data, metrics, concepts and predictions differ in."""

from __future__ import annotations

from typing import Any

import torch

from ecbm.edit.edit import Edit
from ecbm.errors import InputError
from ecbm.keep.workspace import Workspace
from ecbm.read.concept_types import concept_of
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.evaluate import evaluate
from ecbm.words import counted, done

__all__ = ["compare_versions"]

_MOST = 20


def compare_versions(
    workspace: Workspace, first: int | str, second: int | str, split: str | None = None
) -> dict[str, Any]:
    """Compare two versions on the samples both have in a split (``test`` by default), by the second one's labels.

    Judged by its own labels, a version would seem to fall by a label that was corrected or a sample that was
    removed, where no prediction differs.

    Returns
    -------
    dict
        ``versions``, ``split``, ``data``, ``metrics`` (name to both values), ``concepts``, ``predictions``.
    """
    a, b = workspace.version(first), workspace.version(second)
    models = workspace.model(a.version), workspace.model(b.version)
    data = workspace.data(a.version), workspace.data(b.version)
    chosen = split or next((name for name in ("test", "val", "train") if name in data[1].split_sizes), "train")
    parts = data[0].split(chosen), data[1].split(chosen)
    shared = [name for name in parts[0].ids if name in parts[1].rows_by_id]
    if not shared:
        raise InputError(f"versions {a.version} and {b.version} share no sample in the {chosen} split")
    both = [part.select([part.rows_by_id[name] for name in shared]) for part in parts]
    judged = _relabelled(both[0], both[1]), both[1]
    metrics = [evaluate(model, part) for model, part in zip(models, judged, strict=True)]
    logits = [model.concept_logits(part) for model, part in zip(models, both, strict=True)]
    concepts = {}
    for name in dict.fromkeys([*models[0].layout.by_name, *models[1].layout.by_name]):
        rows = [one["per_concept"].get(name, {}).get("accuracy") for one in metrics]
        changed = 0
        if all(name in model.layout.by_name for model in models):
            said = [_said(model, z, name) for z, model in zip(logits, models, strict=True)]
            changed = int((said[0] != said[1]).sum())
        concepts[name] = {"accuracy": rows, "predictions_changed": changed}
    return {
        "versions": [a.version, b.version],
        "split": chosen,
        "data": _data(*data),
        "metrics": {
            name: [metrics[0][name], metrics[1][name]]
            for name in metrics[0]
            if isinstance(metrics[0][name], float) and name in metrics[1]
        },
        "concepts": concepts,
        "predictions": _predictions(models, logits, shared),
    }


def _relabelled(part: Dataset, by: Dataset) -> Dataset:
    """The same samples with the labels that ``by`` has of them, as far as it knows their concepts and classes."""
    names = [name for name in part.concept_names if name in by.concept_names]
    concepts = part.concepts.clone()
    concepts[:, [part.concept_index(n) for n in names]] = by.concepts[:, [by.concept_index(n) for n in names]]
    return part.replace(concepts=concepts, labels=by.labels if part.class_names == by.class_names else part.labels)


def _said(model: ConceptBottleneck, logits: torch.Tensor, name: str) -> torch.Tensor:
    """What a model predicts of a concept: yes or no, which value, which grade. A number counts as no prediction."""
    concept = model.layout.by_name[name]
    own = logits[:, list(concept.columns)]
    if concept.type == "categorical":
        return own.argmax(1)
    return (own >= 0).sum(1) if concept.type != "continuous" else torch.zeros(len(own))


def _predictions(models: Any, logits: list[torch.Tensor], ids: list[str]) -> dict[str, Any]:
    classes = [m.classify(z) for m, z in zip(models, logits, strict=True)]
    if models[0].predicts_number and models[1].predicts_number:
        return _numbers(classes[0][:, 0], classes[1][:, 0], ids)
    names = [[m.class_names[c] for c in p.argmax(1).tolist()] for m, p in zip(models, classes, strict=True)]
    differ = [row for row in range(len(ids)) if names[0][row] != names[1][row]]
    gap = None
    if models[0].class_names == models[1].class_names:
        gap = float((classes[0] - classes[1]).abs().max())
    examples = [{"id": ids[row], "before": names[0][row], "after": names[1][row]} for row in differ[:_MOST]]
    return {"samples": len(ids), "changed": len(differ), "largest_probability_change": gap, "examples": examples}


def _numbers(before: torch.Tensor, after: torch.Tensor, ids: list[str]) -> dict[str, Any]:
    """Predicted numbers side by side, those that moved most first."""
    gap = (before - after).abs()
    order = [row for row in gap.argsort(descending=True, stable=True).tolist() if float(gap[row]) > 0]
    examples = [{"id": ids[row], "before": float(before[row]), "after": float(after[row])} for row in order[:_MOST]]
    return {"samples": len(ids), "changed": len(order), "largest_change": float(gap.max()), "examples": examples}


def _data(before: Dataset, after: Dataset) -> dict[str, Any]:
    if before.fingerprint == after.fingerprint:
        return {"same": True, "words": "the same"}
    if before.class_names != after.class_names:
        return {"same": False, "words": "the classes differ"}
    edit = Edit.between(before, after).resolved(before)  # which knows what columns are one concept
    return {
        "same": False,
        "words": done(edit.said_of(before)),
        "concept_labels_corrected": len(
            {(sample, before.layout.owner[before.concept_index(name)]) for sample, name, _ in edit.correct_concepts}
        ),
        "class_labels_corrected": len(edit.correct_labels),
        "samples_removed": len(edit.remove_samples),
        "samples_added": 0 if edit.add_samples is None else len(edit.add_samples),
        "concepts_removed": list(dict.fromkeys(concept_of(n, edit.concept_types) for n in edit.remove_concepts)),
        "concepts_added": list(dict.fromkeys(concept_of(n, edit.concept_types) for n in edit.add_concepts)),
        "summary": counted(len(after), "sample"),
    }
