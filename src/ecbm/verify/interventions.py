"""Intervention curves: class accuracy against the number of concept groups a person has corrected.

Which group comes next is a *policy*; what a corrected concept is set to is the model's business
(:meth:`ConceptBottleneck.concept_values`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import Concept
from ecbm.read.dataset import Dataset
from ecbm.train.heads.activations import activate
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.evaluate import align_concepts, align_labels

__all__ = ["POLICIES", "group_order", "intervention_curve"]

_CHUNK = 256


def _columns(model: ConceptBottleneck) -> list[list[int]]:
    return [[model.concept_index(name) for name in members] for members in model.groups.values()]


def _random(model: ConceptBottleneck, logits: Tensor, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(len(logits), len(model.groups), generator=generator)


def _uncertain(model: ConceptBottleneck, logits: Tensor, seed: int) -> Tensor:
    """Largest entropy of any concept in the group. A continuous value comes without any, and last."""
    p = torch.sigmoid(logits)
    entropy = torch.nn.functional.softplus(logits) - p * logits
    entropy[:, model.layout.squared] = 0.0
    for columns in model.layout.softmax:
        q = torch.softmax(logits[:, columns], 1)
        entropy[:, columns] = torch.special.entr(q).sum(1, keepdim=True)
    return torch.stack([entropy[:, columns].max(1).values for columns in _columns(model)], dim=1)


def _expected_change(model: ConceptBottleneck, logits: Tensor, seed: int) -> Tensor:
    """Expected total variation of the class distribution when a concept is set, under the model's own belief.

    E_v |P(y | do c_j = v) − P(y)|₁ / 2 with v ~ Bernoulli(p_j), the largest over the concepts of the group.
    Values of a categorical concept and grades are drawn as predicted; a continuous one is one scale above or
    below.
    """
    weight = model.label_head.weight.detach()
    scores = []
    for part in logits.split(_CHUNK):
        p, values = torch.sigmoid(part), model.bottleneck_from(part)
        class_logits = values @ weight.T + model.label_head.bias.detach()
        base = torch.softmax(class_logits, 1)
        change = torch.zeros_like(part)
        for value, chance in ((0.0, 1 - p), (1.0, p)):
            shift = model.concept_values(torch.full_like(part, value)) - values
            for column in model.layout.binary.tolist():
                moved = torch.softmax(class_logits + shift[:, column, None] * weight[:, column], 1)
                change[:, column] += chance[:, column] * (moved - base).abs().sum(1) / 2
        for concept in model.layout.of_type("categorical", "ordinal", "continuous"):
            columns = list(concept.columns)
            total = torch.zeros_like(change[:, 0])
            for chance, target in _possibilities(model, concept, part):
                shift = target - values[:, columns]
                moved = torch.softmax(class_logits + shift @ weight[:, columns].T, 1)
                total += chance * (moved - base).abs().sum(1) / 2
            change[:, columns] = total[:, None]
        scores.append(torch.stack([change[:, columns].max(1).values for columns in _columns(model)], dim=1))
    return torch.cat(scores)


def _possibilities(model: ConceptBottleneck, concept: Concept, logits: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """What a concept may turn out to be: chances (n,), and what its columns would be in the bottleneck."""
    columns = list(concept.columns)
    own = activate(logits, model.layout)[:, columns]
    if concept.type == "continuous":
        for step in (-1.0, 1.0):
            yield torch.full_like(own[:, 0], 0.5), own + step
        return
    chances = own
    if concept.type == "ordinal":
        ones = torch.ones_like(own[:, :1])
        chances = torch.cat([ones, own], 1) - torch.cat([own, torch.zeros_like(ones)], 1)
    for place, value in enumerate(concept.values):
        labels = torch.zeros_like(logits)
        given = value if concept.type == "categorical" else float(value)
        labels[:, columns] = torch.tensor(concept.labels_of(given), dtype=labels.dtype)
        yield chances[:, place], model.concept_values(labels)[:, columns]


POLICIES: dict[str, Callable[[ConceptBottleneck, Tensor, int], Tensor]] = {
    "random": _random,
    "uncertain": _uncertain,
    "expected_change": _expected_change,
}
"""Each gives a score (n, groups): the group with the highest score is asked first."""


def group_order(model: ConceptBottleneck, logits: Tensor, policy: str, seed: int = 0) -> Tensor:
    """For every sample the order (n, groups) in which its groups are corrected."""
    if policy not in POLICIES:
        raise unknown_name("policy", policy, POLICIES)
    if policy == "expected_change" and model.predicts_number:
        raise InputError(
            "policy 'expected_change' is about classes, but this model predicts a number; use 'random'"
        )
    return POLICIES[policy](model, logits, seed).argsort(dim=1, descending=True, stable=True)


def intervention_curve(
    model: ConceptBottleneck,
    data: Dataset,
    policy: str = "uncertain",
    *,
    steps: int | None = None,
    seed: int = 0,
) -> list[float]:
    """Class accuracy after correcting 0, 1, 2, … groups of every sample to their true labels.

    Parameters
    ----------
    model, data
        Usually the test split. Missing concept labels stay as predicted.
    policy
        ``"random"``, ``"uncertain"`` (most uncertain first) or ``"expected_change"``.
    steps
        Number of groups at which to stop; all of them by default.
    """
    if model.predicts_number:
        raise InputError("an intervention curve is of class accuracy, but this model predicts a number")
    truth, labels = align_concepts(model, data), align_labels(model, data)
    logits = model.concept_logits(data).cpu()
    order = group_order(model, logits, policy, seed)
    values = model.bottleneck_from(logits).clone()
    target = model.concept_values(truth.nan_to_num(0.0))
    membership = torch.zeros(len(model.groups), len(model.concept_names), dtype=torch.bool)
    for group, columns in enumerate(_columns(model)):
        membership[group, columns] = True
    known = ~truth.isnan()

    def accuracy() -> float:
        with torch.no_grad():
            return float((model.label_head(values).argmax(1) == labels).double().mean())

    curve = [accuracy()]
    for step in range(len(model.groups) if steps is None else min(steps, len(model.groups))):
        corrected = membership[order[:, step]] & known
        values = torch.where(corrected, target, values)
        curve.append(accuracy())
    return curve
