"""Pools are drawn by lot from the kind of samples that was asked for, and leave enough to train on."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import ecbm
from ecbm.edit.state import EditorState
from ecbm.errors import InputError
from ecbm.verify.audit.forget_sets import KINDS, choose_pool, pool_of_ids, self_influence
from kit import newton_logistic, tabular
from types_kit import mixed

RECIPE = ecbm.Recipe(backbone="linear")


@pytest.fixture(scope="module")
def known() -> tuple[ecbm.Dataset, EditorState]:
    data = tabular(300, 5, seed=2, missing=0.1)
    return data, ecbm.Editor(ecbm.train(data, RECIPE), data).state


@pytest.mark.parametrize("kind", KINDS)
def test_a_pool_has_three_equal_parts_and_leaves_half_of_everything(
    kind: str, known: tuple[ecbm.Dataset, EditorState]
) -> None:
    data, state = known
    pool = choose_pool(state, data, kind, 12, 0)
    assert len(pool.forget) == len(pool.held_out) == len(pool.retained) > 3
    assert sorted([*pool.forget, *pool.held_out, *pool.retained]) == list(range(len(pool.ids)))
    train, chosen = data.split("train"), set(pool.ids)
    assert chosen <= set(train.ids)
    left = train.select([row for row, name in enumerate(train.ids) if name not in chosen])
    for label in range(3):
        assert 2 * int((left.labels == label).sum()) >= int((train.labels == label).sum())
    assert ((~left.concepts.isnan()).sum(0) * 2 >= (~train.concepts.isnan()).sum(0)).all()
    again, other = choose_pool(state, data, kind, 12, 0), choose_pool(state, data, kind, 12, 1)
    assert again.ids == pool.ids != other.ids


def test_influential_samples_are_those_whose_gradients_weigh_most(known: tuple[ecbm.Dataset, EditorState]) -> None:
    data, state = known
    found = self_influence(state)
    pool = choose_pool(state, data, "influential", 12, 0)
    train = data.split("train")
    inside = np.array([name in set(pool.ids) for name in train.ids])
    assert found[inside].mean() > 1.5 * found[~inside].mean()


def test_self_influence_orders_samples_as_leaving_them_out_does() -> None:
    data = tabular(60, 4, seed=3, splits=False)
    state = ecbm.Editor(ecbm.train(data, RECIPE), data).state
    x, targets = state.design, data.concepts.double()
    whole = [newton_logistic(x, targets[:, j], torch.ones(60).double(), 0.1) for j in range(5)]
    moved = []
    for row in range(0, 60, 4):
        weights = torch.ones(60).double()
        weights[row] = 0
        gap = 0.0
        for j in range(5):
            other = newton_logistic(x, targets[:, j], weights, 0.1)
            z = torch.stack([x[row] @ whole[j], x[row] @ other])
            losses = torch.nn.functional.softplus(z) - targets[row, j] * z
            gap += float(losses[1] - losses[0])
        moved.append(gap)
    ranks = np.corrcoef(np.argsort(np.argsort(moved)), np.argsort(np.argsort(self_influence(state)[::4])))
    assert ranks[0, 1] > 0.9


def test_canaries_have_the_labels_of_another_class_and_the_data_is_untouched(
    known: tuple[ecbm.Dataset, EditorState],
) -> None:
    data, state = known
    before = data.fingerprint
    pool = choose_pool(state, data, "canaries", 12, 0)
    rows = [data.row(name) for name in pool.ids]
    assert (pool.data.labels[rows] != data.labels[rows]).all()
    others = [row for row in range(len(data)) if row not in set(rows)]
    assert torch.equal(pool.data.labels[others], data.labels[others])
    assert data.fingerprint == before


def test_a_subgroup_is_of_one_class_or_one_concept(known: tuple[ecbm.Dataset, EditorState]) -> None:
    data, state = known
    pool = choose_pool(state, data, "subgroup", 5, 0, "wren")
    assert {data[name].label for name in pool.ids} == {"wren"}
    pool = choose_pool(state, data, "subgroup", 5, 0, "round")
    assert {data[name].concepts["round"] for name in pool.ids} == {1.0}
    with pytest.raises(InputError, match="unknown class or concept 'wrenn'; did you mean 'wren'"):
        choose_pool(state, data, "subgroup", 5, 0, "wrenn")


def test_named_samples_are_the_forgotten_ones(known: tuple[ecbm.Dataset, EditorState]) -> None:
    data, _ = known
    pool = pool_of_ids(data, ["s0", "s10", "s0"], 0)
    assert pool.named(pool.forget) == ["s0", "s10"]
    with pytest.raises(InputError, match="unknown sample id"):
        pool_of_ids(data, ["s0", "nobody"], 0)
    with pytest.raises(InputError, match="not in the train split"):
        pool_of_ids(data, ["s7"], 0)


def test_too_little_data_is_refused() -> None:
    data = tabular(20, 3)
    state = ecbm.Editor(ecbm.train(data, RECIPE), data).state
    with pytest.raises(InputError, match="random training samples: there is room for"):
        choose_pool(state, data, "random", 50, 0)


def test_a_subgroup_of_a_typed_concept_is_one_of_its_values() -> None:
    data = mixed(240, seed=3)
    train, state = data.split("train"), ecbm.Editor(ecbm.train(data, RECIPE), data).state
    by_type = {concept.type: concept for concept in train.layout.concepts}
    for kind in ("categorical", "ordinal"):
        concept = by_type[kind]
        labels = train.concepts[:, list(concept.columns)]
        values = [concept.value_of(row.tolist()) for row in labels]
        value = max({v for v in values if v is not None}, key=values.count)
        name = f"{concept.name}={value if isinstance(value, str) else f'{value:g}'}"
        pool = choose_pool(state, data, "subgroup", 4, 0, name)
        assert {values[train.row(one)] for one in pool.ids} == {value}
        with pytest.raises(InputError, match=rf"of the type {kind}, not a group; name one of its values: .*="):
            choose_pool(state, data, "subgroup", 4, 0, concept.name)
    with pytest.raises(InputError, match="of the type continuous, not a group; name a class"):
        choose_pool(state, data, "subgroup", 4, 0, by_type["continuous"].name)


def test_a_group_that_is_too_small_is_named(known: tuple[ecbm.Dataset, EditorState]) -> None:
    data, _ = known
    few = data.replace(labels=torch.where(torch.arange(len(data)) < 6, 2, data.labels.clamp_max(1)))
    state = ecbm.Editor(ecbm.train(few, RECIPE), few).state
    with pytest.raises(InputError, match=r"of class '\w+': there is room for 1 .*name a larger group"):
        choose_pool(state, few, "subgroup", 4, 0, few.class_names[2])
