"""How a model compares with retraining on test data: figures, closure, and the noise floor between seeds."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.evaluate import evaluate
from ecbm.verify.fidelity import closure

__all__ = ["FIGURES", "Judge", "Predictions", "closed", "predictions"]

Predictions = dict[str, Any]
FIGURES = ("class_f1", "concept_accuracy", "class_accuracy")


def predictions(model: ConceptBottleneck, test: Dataset, names: Sequence[str]) -> Predictions:
    """Figures of a model, and its probabilities of the concepts in ``names`` and of the classes.

    ``concepts`` is ``None`` where the model does not have all of these concepts.
    """
    logits = model.concept_logits(test.inputs)
    own = test.replace(
        concepts=test.concepts[:, [test.concept_index(name) for name in model.concept_names]],
        concept_names=model.concept_names,
    )
    figures = evaluate(model, own, logits=logits)
    columns = [model.concept_names.index(name) for name in names if name in model.concept_names]
    concepts = torch.sigmoid(logits[:, columns]) if len(columns) == len(names) else None
    shared = [figures["per_concept"][name]["accuracy"] for name in names if name in model.concept_names]
    return {
        "concepts": concepts,
        "classes": model.classify(logits),
        "class_f1": figures["class_f1"],
        "class_accuracy": figures["class_accuracy"],
        "concept_accuracy": statistics.fmean(shared),
    }


def closed(edited: Tensor | None, original: Tensor | None, retrained: Tensor | None) -> float | None:
    """Closure where the models share the concepts to compare."""
    return None if edited is None or original is None or retrained is None else closure(edited, original, retrained)


class Judge:
    """What retraining reaches, and how a model from one original seed compares with it.

    Parameters
    ----------
    retrained
        Predictions of retrained models by seed.
    metric
        The figure in which recovery is counted.
    """

    def __init__(self, retrained: Mapping[int, Predictions], metric: str) -> None:
        self.retrained, self.metric = retrained, metric
        self.target = self._mean(list(retrained.values()))
        reached = [found[metric] for found in retrained.values()]
        self.reached = statistics.fmean(reached)
        self.spread = statistics.stdev(reached) if len(reached) > 1 else 0.0

    @staticmethod
    def _mean(members: Sequence[Predictions]) -> dict[str, Tensor | None]:
        return {
            key: None if members[0][key] is None else torch.stack([m[key] for m in members]).mean(0)
            for key in ("concepts", "classes")
        }

    def entry(self, figures: Predictions, start: Predictions, seed: int, leave_out: bool = False) -> dict[str, Any]:
        """Figures of one model; with ``leave_out`` it is the retrained model of that seed, against the others."""
        target, same = self.target, None if leave_out else self.retrained[seed]["concepts"]
        if leave_out:
            target = self._mean([found for other, found in self.retrained.items() if other != seed])
        return {
            "closure": closed(figures["concepts"], start["concepts"], target["concepts"]),
            "same_seed_closure": closed(figures["concepts"], start["concepts"], same),
            "class_closure": closed(figures["classes"], start["classes"], target["classes"]),
            "gained": figures[self.metric] - start[self.metric],
            "to_gain": self.reached - start[self.metric],
            **{key: figures[key] for key in FIGURES},
        }
