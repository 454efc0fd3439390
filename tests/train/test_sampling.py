"""What an epoch sees, how many batches make a step, and who learns how fast."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional

import ecbm
from ecbm import Recipe
from ecbm.read.inputs import TensorInputs
from ecbm.train.loop import fit
from ecbm.train.sampling import batches
from kit import same_bytes, tabular


@pytest.mark.parametrize("sizes", [(50, 7, 3), (1, 99), (5, 5, 5), (1, 1, 1, 40), (1, 2)])
def test_balanced_epochs_have_every_class_as_often_and_its_samples_evenly(sizes):
    labels = torch.cat([torch.full((size,), label) for label, size in enumerate(sizes)])
    count = len(labels)
    for epoch in range(4):
        drawn = torch.cat(batches(count, 8, 0, epoch, labels))
        assert len(drawn) == count
        often = torch.bincount(drawn, minlength=count)
        classes = [int(often[labels == label].sum()) for label in range(len(sizes))]
        assert max(classes) - min(classes) <= 1
        for label in range(len(sizes)):
            of_class = often[labels == label]
            assert int(of_class.max() - of_class.min()) <= 1


def test_balanced_epochs_differ_and_come_again_by_seed():
    labels = torch.arange(30) % 10 // 9
    first, second = (torch.cat(batches(30, 8, 5, epoch, labels)) for epoch in (0, 1))
    assert not torch.equal(first, second)
    assert torch.equal(first, torch.cat(batches(30, 8, 5, 0, labels)))
    assert not torch.equal(first, torch.cat(batches(30, 8, 6, 0, labels)))
    seen = torch.cat([torch.cat(batches(30, 8, 5, epoch, labels)) for epoch in range(12)])
    assert len(seen.unique()) == 30, "no sample of a frequent class is left out for good"


def test_the_odd_sample_of_an_epoch_is_not_always_the_same_class():
    labels = torch.arange(31) % 2
    more = {int((labels[torch.cat(batches(31, 8, 0, epoch, labels))] == 0).sum()) for epoch in range(12)}
    assert more == {15, 16}


def test_balanced_sampling_moves_the_backbone_towards_rare_classes():
    draw = torch.Generator().manual_seed(0)
    labels = (torch.arange(300) % 30 == 0).long()
    x = torch.randn(300, 4, generator=draw)
    concepts = torch.where(labels == 1, x[:, 0] > 0, x[:, 1] > 0).float()[:, None]
    data = ecbm.Dataset(
        [f"s{i}" for i in range(300)], x, concepts, labels, ["a"], ["often", "rare"], ["train"] * 300
    )
    recipe = Recipe(
        backbone="mlp", hidden=(2,), epochs=30, patience=None, resolve_concept_head=False, learning_rate=0.02
    )
    rare = TensorInputs(x[labels == 1]), concepts[labels == 1]
    losses = {}
    for balanced in (False, True):
        model = ecbm.train(data, recipe.replace(class_balanced=balanced))
        chances = model.concept_probabilities(rare[0])
        losses[balanced] = float(functional.binary_cross_entropy(chances.float(), rare[1]))
    assert losses[True] < 0.8 * losses[False]


class Double(nn.Module):
    """In float64, so that rounding is far below anything else."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(6, 8), nn.Tanh()).double()
        self.head = nn.Linear(8, 2).double()

    def forward(self, x):
        return self.head(self.backbone(x.double()))


def fitted(module, count=53, **options):
    draw = torch.Generator().manual_seed(2)
    x, targets = torch.randn(count, 6, generator=draw), torch.rand(count, 2, generator=draw).double()

    def loss(network, inputs, rows):
        return functional.binary_cross_entropy_with_logits(network(inputs), targets[rows], reduction="sum")

    settings = {"l2": 1e-3, "epochs": 3, "batch_size": 8, "learning_rate": 1e-2, "patience": None, "seed": 4}
    module = copy.deepcopy(module)
    result = fit(module, TensorInputs(x), loss, None, **settings | options)
    return module, [epoch["loss"] for epoch in result.epochs]


@pytest.mark.parametrize("count", [53, 48, 49, 33, 5])
def test_batches_put_together_are_the_large_batch(count):
    torch.manual_seed(0)
    start = Double()
    small, small_losses = fitted(start, count, batch_size=8, accumulate=4)
    large, large_losses = fitted(start, count, batch_size=32)
    for a, b in zip(small.parameters(), large.parameters(), strict=True):
        assert (a - b).abs().max() < 1e-12
    assert small_losses == pytest.approx(large_losses, rel=1e-6)  # summed in float32
    other, _ = fitted(start, count, batch_size=8)
    apart = max(
        float((a - b).detach().abs().max()) for a, b in zip(other.parameters(), large.parameters(), strict=True)
    )
    assert (apart > 1e-3) == (count > 9), "without accumulation the steps are others, where there are several"


def test_no_part_of_a_step_is_a_single_sample():
    class Watching(Double):
        def __init__(self) -> None:
            super().__init__()
            self.seen = []

        def forward(self, x):
            self.seen.append(len(x))
            return super().forward(x)

    for count in range(2, 40):
        module, _ = fitted(Watching(), count, epochs=1, accumulate=3)
        assert sum(module.seen) == count
        assert min(module.seen) > 1


def test_the_backbone_learns_at_its_share_of_the_rate():
    torch.manual_seed(0)
    start = Double()

    def moved(share):
        # One step of Adam from rest moves every parameter by the rate, whatever its gradient.
        after, _ = fitted(start, epochs=1, batch_size=64, rates={"backbone.": share})
        return {name: (value - start.state_dict()[name]).abs() for name, value in after.state_dict().items()}

    whole, tenth = moved(1.0), moved(0.1)
    for name in whole:
        share = 0.1 if name.startswith("backbone.") else 1.0
        assert torch.allclose(tenth[name], share * whole[name], rtol=1e-6)
        assert float(whole[name].min()) > 0


@pytest.mark.parametrize("regime", ["sequential", "joint"])
def test_a_recipes_backbone_rate_is_for_the_backbone_alone(regime):
    data = tabular(80)
    recipe = Recipe(
        backbone="mlp",
        hidden=(8,),
        regime=regime,
        epochs=2,
        batch_size=16,
        resolve_concept_head=False,
        patience=None,
    )
    slow, usual = (ecbm.train(data, recipe, backbone_rate=rate) for rate in (1e-9, 1.0))
    fresh = ecbm.train(data, recipe, learning_rate=1e-12)
    for parameter, first in zip(slow.backbone.parameters(), fresh.backbone.parameters(), strict=True):
        assert (parameter - first).abs().max() < 1e-7
    assert (slow.concept_head.weight - fresh.concept_head.weight).abs().max() > 1e-4
    assert not same_bytes(slow, usual)
