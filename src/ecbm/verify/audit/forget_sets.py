"""Which samples an audit rehearses with: a pool of training samples, a third of which is to be forgotten.

One third is forgotten, one third is left out from the beginning (what the forgotten ones should look like
afterwards), one third stays. Who is in which third is drawn by lot, so that the first two differ in nothing but
what was done to them, whatever kind of samples the pool is made of:

- ``random``: drawn by lot;
- ``influential``: those whose own removal would move the concept head most (self-influence);
- ``canaries``: drawn by lot, with class and concepts of some other sample: a model can only know them by heart;
- ``subgroup``: of one class, or with one concept.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ecbm.edit.state import EditorState
from ecbm.errors import InputError, unknown_name
from ecbm.read.dataset import Dataset
from ecbm.train.heads.objectives import concept_curvature, concept_residual

__all__ = ["KINDS", "Pool", "choose_pool", "pool_of_ids", "room_in", "self_influence"]

KINDS = ("random", "influential", "canaries", "subgroup")
FEWEST = 4


@dataclasses.dataclass(frozen=True)
class Pool:
    """Samples of an audit by id; places of those that are forgotten, left out and retained; and all data with them
    in its training split.
    """

    data: Dataset
    ids: tuple[str, ...]
    forget: NDArray[np.int64]
    held_out: NDArray[np.int64]
    retained: NDArray[np.int64]
    words: str

    def named(self, places: Iterable[int]) -> list[str]:
        return [self.ids[place] for place in places]


def self_influence(state: EditorState) -> Tensor:
    """(n,) Σ_j r_ij² x̃ᵢᵀ H_j⁻¹ x̃ᵢ: how much each sample's own gradients move their own losses, in the diagonal of
    the Hessians in the features' eigenbasis.
    """
    logits, terms, basis = state.logits, state.terms, state.basis
    curvature = concept_curvature(logits, terms.weights, terms.layout) / len(logits)
    leverage = basis.squares @ (1 / basis.diagonal(curvature, state.concept_l2)).T
    residual = concept_residual(logits, terms.targets.double(), terms.weights, terms.layout)
    return (residual.square() * leverage).sum(1)


def choose_pool(
    state: EditorState, data: Dataset, kind: str, count: int, seed: int, group: str | None = None
) -> Pool:
    """Draw a pool with ``count`` samples to be forgotten, or as many as leave every class and concept half.

    Parameters
    ----------
    state
        What is known about the model.
    data
        The data it was trained on (not seen through a front).
    kind
        One of :data:`KINDS`.
    count
        How many are to be forgotten; a small training split gives fewer.
    seed
        Of the lot.
    group
        For ``subgroup``: a class or a concept. By default the largest class.
    """
    if kind not in KINDS:
        raise unknown_name("forget set", kind, KINDS)
    train, draw = data.split("train"), np.random.default_rng([seed, 0])
    order = draw.permutation(len(train))
    words = f"{kind} training samples"
    if kind == "influential":
        found = self_influence(state).numpy()
        order = order[np.argsort(-found[order], kind="stable")]
    elif kind == "subgroup":
        inside, words = _group(train, group)
        order = order[inside[order]]
    elif kind == "canaries":
        words = "training samples that were given class and concepts of another one (canaries)"
    rows = room_in(train, order, 3 * count)
    each = len(rows) // 3
    if each < FEWEST:
        advice = "name a larger group" if kind == "subgroup" else "use more data"
        raise InputError(
            f"{words}: there is room for {each} to be forgotten, with as many left out and as many kept, for half "
            f"of every class must stay; an audit needs {FEWEST}: {advice}"
        )
    rows = draw.permutation(rows[: 3 * each])
    ids = tuple(train.ids[row] for row in rows)
    data = _as_canaries(data, ids, draw) if kind == "canaries" else data
    places = np.arange(3 * each)
    return Pool(data, ids, places[:each], places[each : 2 * each], places[2 * each :], words)


def pool_of_ids(data: Dataset, ids: Sequence[str], seed: int) -> Pool:
    """A pool whose forgotten samples are named; those left out and kept are drawn from the other training
    samples.
    """
    wanted = list(dict.fromkeys(ids))
    train = data.split("train")
    for name in wanted:
        data.row(name)  # an unknown id says so
    for name in wanted:
        if name not in train.rows_by_id:
            raise InputError(f"sample {name!r} is not in the train split; the model has not learnt from it")
    order = np.random.default_rng([seed, 0]).permutation(len(train))
    chosen = set(wanted)
    order = np.array([row for row in order if train.ids[row] not in chosen], int)
    count = max(len(wanted), 20)
    rows = room_in(train, order, 2 * count, [train.row(name) for name in wanted])
    each = len(rows) // 2
    if each < FEWEST:
        raise InputError("too few training samples are left beside these for an audit; name fewer")
    pool = (*wanted, *(train.ids[row] for row in rows[: 2 * each]))
    places, n = np.arange(len(pool)), len(wanted)
    return Pool(data, pool, places[:n], places[n : n + each], places[n + each :], "the samples that were named")


def _group(train: Dataset, group: str | None) -> tuple[NDArray[np.bool_], str]:
    groups = _groups(train)
    if group is None and not train.predicts_number:
        group = train.class_names[int(torch.bincount(train.labels).argmax())]
    if group is None:
        sizes = {name: int(inside.sum()) for name, inside in groups.items()}
        group = max(sizes, key=lambda name: sizes[name], default="")
    if not train.predicts_number and group in train.class_names:
        return (train.labels == train.class_index(group)).numpy(), f"training samples of class {group!r}"
    if group in groups:
        return groups[group].numpy(), f"training samples with {group!r}"
    if group in train.layout.by_name:
        kind = train.layout.by_name[group].type
        own = [name for name in groups if name.startswith(f"{group}=")]
        said = f"name one of its values: {', '.join(own[:6])}" if own else "name a class or another concept"
        raise InputError(f"{group!r} is a concept of the type {kind}, not a group; {said}")
    raise unknown_name("class or concept", group, [*([] if train.predicts_number else train.class_names), *groups])


def _groups(train: Dataset) -> dict[str, Tensor]:
    """(n,) who belongs to the groups that concepts make, by name: yes/no concepts, values, thresholds."""
    found: dict[str, Tensor] = {}
    for concept in train.layout.concepts:
        columns = list(concept.columns)
        labels, known = train.concepts[:, columns], ~train.concepts[:, columns[0]].isnan()
        if concept.type == "continuous":
            continue
        if concept.type != "binary":
            code = labels.argmax(1) if concept.type == "categorical" else (labels >= 0.5).sum(1)
            for one in code[known].unique().tolist():
                inside = known & (code == one)
                value = concept.value_of(labels[int(inside.nonzero()[0])].tolist())
                found[f"{concept.name}={value if isinstance(value, str) else f'{value:g}'}"] = inside
        for column in columns:
            found[train.concept_names[column]] = train.concepts[:, column].nan_to_num(0.0) >= 0.5
    return found


def room_in(train: Dataset, order: NDArray[np.int64], most: int, taken: Sequence[int] = ()) -> NDArray[np.int64]:
    """The first rows, in this order, that leave every class and every concept's labels at least half."""
    known = (~train.concepts.isnan()).numpy()
    left = known.sum(0) // 2 - known[list(taken)].sum(0)
    numbers = train.predicts_number
    classes = None if numbers else np.bincount(train.labels.numpy(), minlength=len(train.class_names)) // 2
    if classes is not None:
        np.subtract.at(classes, train.labels.numpy()[list(taken)], 1)
    budget = min(most, len(train) // 2 - len(taken))
    rows: list[int] = []
    for row in order.tolist():
        if len(rows) >= budget:
            break
        label = 0 if numbers else int(train.labels[row])
        if (classes is not None and classes[label] <= 0) or bool((left[known[row]] <= 0).any()):
            continue
        rows.append(row)
        left[known[row]] -= 1
        if classes is not None:
            classes[label] -= 1
    return np.array(rows, int)


def _as_canaries(data: Dataset, ids: Sequence[str], draw: np.random.Generator) -> Dataset:
    """The data with class and concepts of each of the samples taken from another one, of another class if any
    is.
    """
    rows = np.array([data.row(name) for name in ids])
    train = np.array([row for row, split in enumerate(data.splits) if split == "train"])
    labels, concepts = data.labels.clone(), data.concepts.clone()
    for row in rows:
        others = train[(data.labels[train] != data.labels[row]).numpy()]
        giver = int(draw.choice(others if len(others) else train))
        labels[row], concepts[row] = data.labels[giver], data.concepts[giver]
    return data.replace(labels=labels, concepts=concepts)
