"""Gradient training minimises the objectives of the method, with L2 as part of them."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import ecbm
from ecbm.read.inputs import TensorInputs
from ecbm.train import train as train_module
from ecbm.train.backbones import build_backbone
from ecbm.train.loop import _learning_rate, fit
from ecbm.train.recipe import Recipe
from ecbm.train.sampling import batches
from ecbm.train.terms import concept_terms, positive_weights
from kit import tabular

BOTTLENECKS = ("logits", "probabilities")


def written_objective(module, x, concepts, labels, recipe, positive):
    """J_C, or J_Y + c·J_C, term by term as in the method."""
    z = module.concept_head(module.backbone(x))
    p = torch.sigmoid(z)
    n = len(x)
    total = 0.0
    for i in range(n):
        for j in range(concepts.shape[1]):
            t = concepts[i, j]
            if not t.isnan():
                total = total - (positive[j] * t * torch.log(p[i, j]) + (1 - t) * torch.log(1 - p[i, j])) / n
    theta = [*module.backbone.parameters(), *module.concept_head.parameters()]
    total = total + recipe.concept_regularisation / 2 * sum((w**2).sum() for w in theta)
    if recipe.regime != "joint":
        return total
    b = z if recipe.bottleneck == "logits" else p
    scores = torch.log_softmax(module.label_head(b), 1)
    label = -sum(scores[i, labels[i]] for i in range(n)) / n
    label = label + recipe.label_regularisation / 2 * sum((w**2).sum() for w in module.label_head.parameters())
    return label + recipe.joint_weight * total


@pytest.mark.parametrize("bottleneck", BOTTLENECKS)
@pytest.mark.parametrize("regime", ["sequential", "joint"])
def test_full_batch_steps_follow_the_gradient_of_the_written_objective(regime, bottleneck):
    data = tabular(24, missing=0.2, soft=True, splits=False)
    recipe = Recipe(
        backbone="mlp", hidden=(4,), regime=regime, bottleneck=bottleneck, concept_l2=0.3, label_l2=0.2,
        joint_weight=0.7, pos_weight=2.5, epochs=4, batch_size=100, patience=None, learning_rate=0.05,
    )  # fmt: skip
    torch.manual_seed(0)
    deep = train_module._Deep(build_backbone(recipe, (6,), data.x), 4, 5, 3, recipe)
    mine = copy.deepcopy(deep)
    positive = positive_weights(data, recipe)
    alpha, beta = recipe.concept_regularisation, recipe.label_regularisation
    loss = train_module._batch_loss(concept_terms(data.concepts, positive), data.labels, recipe)
    l2 = {"": 0.7 * alpha, "label_head": beta} if regime == "joint" else {"": alpha}
    fit(
        deep, data.inputs, loss, None, l2=l2, epochs=4, batch_size=100, learning_rate=0.05, patience=None, seed=0
    )  # fmt: skip
    optimiser = torch.optim.Adam(mine.parameters(), lr=0.05)
    for step in range(4):
        optimiser.param_groups[0]["lr"] = _learning_rate(0.05, step / 4)
        optimiser.zero_grad()
        written_objective(mine, data.x, data.concepts, data.labels, recipe, positive).backward()
        optimiser.step()
    for ours, theirs in zip(deep.parameters(), mine.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs, atol=2e-5, rtol=1e-4)


def test_more_l2_gives_smaller_weights_everywhere():
    data = tabular(60)
    norms = []
    for l2 in (1e-4, 1.0):
        model = ecbm.train(data, Recipe(backbone="mlp", hidden=(8,), concept_l2=l2, epochs=30, patience=None))
        norms.append(
            [float(p.detach().norm()) for p in [*model.backbone.parameters(), *model.concept_head.parameters()]]
        )
    assert all(strong < weak for weak, strong in zip(*norms, strict=True))


def test_the_last_step_of_deep_training_solves_both_heads():
    model = ecbm.train(tabular(60), Recipe(backbone="mlp", hidden=(8,), epochs=2))
    training = model.provenance.training
    assert training["concept_gradient_norm"] <= 1e-10
    assert training["label_gradient_norm"] <= 1e-10
    plain = ecbm.train(tabular(60), Recipe(backbone="mlp", hidden=(8,), epochs=2, resolve_concept_head=False))
    assert "concept_gradient_norm" not in plain.provenance.training
    assert torch.equal(plain.backbone.layers[0].weight, model.backbone.layers[0].weight)
    assert not torch.equal(plain.concept_head.weight, model.concept_head.weight)


def test_batches_hold_every_sample_once_and_none_is_a_single_sample():
    for count in range(1, 40):
        parts = batches(count, 8, 0, 0)
        assert sorted(torch.cat(parts).tolist()) == list(range(count))
        assert count == 1 or min(map(len, parts)) > 1


def test_training_stops_early_and_keeps_the_best_epoch():
    class Worse(nn.Linear):
        """Its validation loss is lowest in its third epoch."""

    module = Worse(2, 1)
    inputs = TensorInputs(torch.randn(8, 2))
    judgements = [5.0, 4.0, 3.0, 3.5, 3.25, 9.0, 9.0, 9.0, 9.0, 9.0]
    epochs = iter(judgements)
    kept = []

    def loss(module, x, rows):
        return module(x).sum()

    def judged(module, x, rows):
        kept.append(module.weight.detach().clone())
        return torch.tensor(next(epochs))

    result = fit(
        module, inputs, loss, (TensorInputs(torch.zeros(1, 2)), judged), l2=0.1, epochs=10, batch_size=4,
        learning_rate=0.1, patience=2, seed=0,
    )  # fmt: skip
    # Patience counts from three fifths of the schedule on: epochs 6 and 7 bring nothing, so 8 does not come.
    assert [record["val_loss"] for record in result.epochs] == judgements[:8]
    assert result.best_epoch == 2
    assert torch.equal(module.weight, kept[2])


def test_a_training_that_diverges_says_so():
    data = tabular(60)
    with pytest.raises(ecbm.EcbmError, match=r"diverged in epoch .*lower learning_rate"):
        ecbm.train(data, Recipe(backbone=nn.Linear(6, 4), learning_rate=1e30, epochs=8))
