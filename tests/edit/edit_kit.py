"""Edits of every level on tiny datasets, and what they are compared with."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

import ecbm
from ecbm.train import stages
from ecbm.train.heads.objectives import with_ones
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import concept_terms, positive_weights
from kit import tabular

METHODS = ("auto", "exact", "ekfac", "hessian", "retrain")
LEVELS = (
    "correct concepts",
    "soften and blank concepts",
    "correct classes",
    "remove concepts",
    "add concepts",
    "remove samples",
    "add samples",
    "mix",
)


def new_samples(data: ecbm.Dataset, count: int = 3) -> ecbm.Dataset:
    """Samples that ``data`` does not have, with the same names."""
    width = data.inputs.shape[0]
    more = tabular(count + 5, width, seed=99, splits=False, concepts=data.concept_names, classes=data.class_names)
    rows = list(range(5, count + 5))
    return ecbm.Dataset(
        [f"new{row}" for row in rows],
        more.x[rows],
        more.concepts[rows],
        more.labels[rows],
        data.concept_names,
        data.class_names,
    )


def known(data: ecbm.Dataset, count: int, column: int) -> list[tuple[str, float]]:
    """Training samples with a label of a concept, and its value."""
    train = data.split("train")
    rows = (~train.concepts[:, column].isnan()).nonzero().flatten().tolist()
    return [(train.ids[row], float(train.concepts[row, column])) for row in rows[:count]]


def spare(data: ecbm.Dataset, count: int) -> list[str]:
    """Training samples without which every class is still there."""
    train = data.split("train")
    left = torch.bincount(train.labels, minlength=len(data.class_names))
    chosen = []
    for name, label in zip(train.ids, train.labels.tolist(), strict=True):
        if left[label] > 2 and len(chosen) < count:
            left[label] -= 1
            chosen.append(name)
    return chosen


def column_of(data: ecbm.Dataset) -> dict[str, float]:
    """Labels of a new concept: whether the first feature is positive, every fifth sample missing."""
    return {i: float(data.x[row, 0] > 0) for row, i in enumerate(data.ids) if row % 5}


def edit_of(level: str, data: ecbm.Dataset, size: int = 3) -> ecbm.Edit:
    """An edit of about ``size`` items of a level."""
    names, classes = data.concept_names, data.class_names
    train = data.split("train")
    flips = [(i, names[0], 1 - round(v)) for i, v in known(data, size, 0)]
    others = [
        (i, classes[(int(train.labels[train.row(i)]) + 1) % len(classes)]) for i in spare(data, size + 2)[:size]
    ]
    if level == "correct concepts":
        return ecbm.Edit(correct_concepts=flips + [(i, names[1], 1 - round(v)) for i, v in known(data, size, 1)])
    if level == "soften and blank concepts":
        return ecbm.Edit(
            correct_concepts=[(i, names[0], 0.3) for i, _ in known(data, size, 0)]
            + [(i, names[2], None) for i, _ in known(data, size, 2)]
        )
    if level == "correct classes":
        return ecbm.Edit(correct_labels=others)
    if level == "remove concepts":
        return ecbm.Edit(remove_concepts=[names[1]])
    if level == "add concepts":
        return ecbm.Edit(add_concepts={"fresh": column_of(data)})
    if level == "remove samples":
        return ecbm.Edit(remove_samples=spare(data, size))
    if level == "add samples":
        return ecbm.Edit(add_samples=new_samples(data, size))
    assert level == "mix"
    gone = spare(data, size)
    return ecbm.Edit(
        correct_concepts=[(i, names[0], 1 - round(v)) for i, v in known(data, 2 * size, 0) if i not in gone],
        correct_labels=[pair for pair in others if pair[0] not in gone],
        remove_concepts=[names[1]],
        add_concepts={"fresh": {i: v for i, v in column_of(data).items() if i not in gone}},
        remove_samples=gone,
        add_samples=new_samples(data, size),
    )


def parameters(model: ConceptBottleneck) -> dict[str, Tensor]:
    """Both heads by concept and class names, so that models with another order can be compared."""
    found = {}
    for row, name in enumerate(model.concept_names):
        found[f"concept {name}"] = torch.cat([model.concept_head.weight[row], model.concept_head.bias[row, None]])
    for row, label in enumerate(model.class_names):
        for column, name in enumerate(model.concept_names):
            found[f"class {label} from {name}"] = model.label_head.weight[row, column].reshape(1)
        found[f"class {label}"] = model.label_head.bias[row].reshape(1)
    return {name: value.detach() for name, value in found.items()}


def flat(model: ConceptBottleneck, head: str = "") -> Tensor:
    """:func:`parameters` in one vector, in order of names; ``head`` is ``"concept"``, ``"class"`` or both."""
    found = parameters(model)
    return torch.cat([found[name] for name in sorted(found) if name.startswith(head)])


def relative_gap(one: ConceptBottleneck, other: ConceptBottleneck) -> float:
    """Largest difference of parameters of the same name, relative to the largest parameter."""
    assert set(one.concept_names) == set(other.concept_names)
    assert one.class_names == other.class_names
    a, b = flat(one), flat(other)
    return float((a - b).abs().max() / b.abs().max())


def standing_values(model: ConceptBottleneck) -> dict[str, Tensor]:
    """What is fitted outside the objectives, by name."""
    values: dict[str, Tensor] = {}
    for what in ("low", "high", "positive_weights"):
        for row, name in enumerate(model.concept_names):
            values[f"{what} {name}"] = getattr(model, what)[row]
    return values | dict(model.backbone.named_buffers())


def design_of(model: ConceptBottleneck, data: ecbm.Dataset) -> Tensor:
    """Training features with ones."""
    return with_ones(stages.extract_features(model.backbone, data.split("train").inputs))


def terms_of(model: ConceptBottleneck, data: ecbm.Dataset) -> tuple[Tensor, Tensor]:
    """Targets and weights of the concept objective of ``data``."""
    train = data.split("train")
    terms = concept_terms(train.concepts, positive_weights(train, model.recipe))
    return terms.targets.double(), terms.weights.double()


def cosine(one: Tensor, other: Tensor) -> float:
    return float(one @ other / (one.norm() * other.norm()))


def pos_weight(kind: str) -> str | Mapping[str, float] | None:
    """A setting of the recipe by a word."""
    return {"none": None, "balanced": "balanced", "mapping": {"round": 2.5, "size=small": 0.5}}[kind]
