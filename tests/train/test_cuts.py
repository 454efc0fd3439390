"""Cuts of a backbone: front and tail together are the backbone, and the tail is its own modules."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ecbm.train.backbones import MLP, Standardise
from ecbm.train.convnet import ConvNet
from ecbm.train.cuts import cuts_of
from ecbm.train.resnet import ResNet


class Own(nn.Module):
    """A custom backbone that says of what it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 5), nn.Linear(5, 4)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.second(torch.relu(self.first(x))))

    def pieces(self) -> list[tuple[str, nn.Module]]:
        return [("first", self.first), ("relu", nn.ReLU()), ("second", self.second), ("tanh", nn.Tanh())]


class Reversed(nn.Sequential):
    """A Sequential by name alone."""

    def forward(self, x: Tensor) -> Tensor:
        for layer in reversed(self):
            x = layer(x)
        return x


def _mlp() -> MLP:
    return MLP(Standardise.of(torch.randn(20, 6), torch.float32), 6, (5, 4))


def _sequential() -> nn.Sequential:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True), nn.Linear(5, 4), nn.Dropout())


NETWORKS = {
    "convnet": (ConvNet, (3, 24, 24), ["block 4", "block 3", "block 2", "block 1"]),
    "resnet": (lambda: ResNet((1, 2), (4, 6), True), (3, 12, 12), ["layer2", "layer1", "stem"]),
    "resnet, large stem": (lambda: ResNet((1, 1), (4, 6), False), (3, 32, 32), ["layer2", "layer1", "stem"]),
    "mlp": (_mlp, (6,), ["layer 2", "layer 1"]),
    "sequential": (_sequential, (6,), ["3", "0"]),
    "own pieces": (Own, (6,), ["second", "first"]),
}


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [False, True])
def test_front_and_tail_are_the_backbone(name: str, training: bool) -> None:
    make, shape, names = NETWORKS[name]
    torch.manual_seed(0)
    backbone = make().train(training)
    x = torch.rand(7, *shape)
    cuts = cuts_of(backbone)
    assert [cut.name for cut in cuts] == names
    torch.manual_seed(1)
    whole = backbone(x)
    for cut in cuts:
        torch.manual_seed(1)
        assert torch.equal(cut.tail(cut.front(x)), whole)
        parts = [*cut.front.parameters(), *cut.tail.parameters()]
        assert {id(p) for p in parts} == {id(p) for p in backbone.parameters()}
        assert len(parts) == len(list(backbone.parameters()))
    assert [cut.whole for cut in cuts] == [False] * (len(cuts) - 1) + [True]


@pytest.mark.parametrize("backbone", [nn.Linear(6, 4), Reversed(nn.Linear(4, 3), nn.Linear(6, 4)), nn.Flatten()])
def test_what_does_not_say_how_it_is_made_is_not_cut(backbone: nn.Module) -> None:
    assert cuts_of(backbone) == []


def test_frozen_parameters_are_not_among_those_that_move() -> None:
    backbone = _sequential()
    backbone[3].weight.requires_grad_(False)
    assert [len(cut.trained) for cut in cuts_of(backbone)] == [1, 5]


def test_saved_names_are_those_of_the_networks_before_they_could_be_cut() -> None:
    names = list(ConvNet().state_dict())
    assert names[0] == "layers.0.weight"
    assert all(name.startswith("layers.") for name in names)
