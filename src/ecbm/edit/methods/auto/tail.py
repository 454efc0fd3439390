"""The live tail: layers behind a cut are trained on kept maps (docs/editing.md, "Deep backbones").

A step costs what the tail costs, so a budget buys several times as many steps as of the whole network. BatchNorm
behind the cut is in training mode: its statistics become those of the edited data.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ecbm.edit.gradients import concept_part
from ecbm.edit.maps import Maps, tail_design
from ecbm.edit.methods.auto.axes import AxesAdam, fit_axes, turning_work
from ecbm.edit.methods.auto.rungs import Moved
from ecbm.progress import progress
from ecbm.train.cuts import cuts_of
from ecbm.train.model import ConceptBottleneck
from ecbm.train.recipe import Recipe
from ecbm.train.sampling import parts
from ecbm.train.terms import ConceptTerms

if TYPE_CHECKING:
    from ecbm.edit.methods.auto.ladder import Ladder

__all__ = ["ConceptTail", "LiveTail", "batches", "to_training", "train_tail"]

# A longer tail is taken if it gets this many epochs for each piece more than the shortest, which makes sense from
# fewer. With 1.5 epochs for any length WBCAtt at 20 % took three blocks, and the guard refused them.
_EPOCHS, _FEWEST_EPOCHS = 1.5, 0.25
_WARM_UP = 0.2
# Up to this share of retraining's work the rate is the recipe's peak.
_FULL_RATE = 0.105
_AXES_SAMPLE = 64
# Fitting axes: a step of the sample, and two decompositions, in steps of the tail.
_AXES_STEPS = 1.3


class LiveTail:
    """Gradient steps of the layers behind a cut, on kept maps, in the curvature's axes."""

    name = "live tail"

    def least(self, ladder: Ladder) -> float:
        needed = [self._needed(ladder, place, _FEWEST_EPOCHS) for place in _movable(ladder)]
        return min(needed, default=float("inf"))

    def worth_it(self, ladder: Ladder) -> bool:
        return ladder.left >= self.least(ladder)

    def run(self, ladder: Ladder, work: float) -> Moved | None:
        alignment, cost, model = ladder.alignment, ladder.cost, ladder.last.model
        place = self._choose(ladder, work)
        part = concept_part(model)
        cut = cuts_of(part.backbone)[place]
        recipe, terms = model.recipe, alignment.terms_after
        maps = ladder.state.maps.carried(alignment, cut, "train")
        rows = _order(cost.samples, recipe.seed, 0)[:_AXES_SAMPLE]
        network = ConceptTail(cut.tail, part.concept_head)
        axes = fit_axes(network, maps.take(rows), terms.weights[rows], cost.batch, recipe.seed)
        step = cost.tail_step(cost.tails[place]) + turning_work(axes)
        steps = max(1, int((work - self._around(ladder, place)) / step))
        trained = steps / _training_steps(model, cost.samples)
        rate = recipe.peak_learning_rate * _rate(trained, steps * step / cost.retraining)
        named = [(name, p) for name, p in network.named_parameters() if p.requires_grad]
        shares = [1.0 if name.startswith("head.") else recipe.backbone_rate for name, _ in named]
        optimiser = AxesAdam([p for _, p in named], recipe.concept_regularisation, axes, shares)
        done = train_tail(network, optimiser, maps, terms, recipe, steps, rate, ladder.deadline)
        shape = model.seen_shape
        design = tail_design(cut, maps, shape)
        validation = None
        if "val" in alignment.edited.split_sizes:
            validation = tail_design(cut, ladder.state.maps.carried(alignment, cut, "val"), shape)
        settings = {"cut": cut.name, "steps": done, "learning_rate": rate, "layers_in_axes": len(axes)}
        if not maps.exact:
            settings["maps"] = "float16"
        spent = done * step + self._around(ladder, place)
        return Moved(part, settings, spent, design, validation)

    def _choose(self, ladder: Ladder, work: float) -> int:
        """The longest tail that gets enough epochs; otherwise the shortest."""
        places = _movable(ladder)
        enough = (p for n, p in enumerate(places) if self._needed(ladder, p, _EPOCHS * max(n, 1)) <= work)
        return max(enough, default=places[0])

    def _needed(self, ladder: Ladder, place: int, epochs: float) -> float:
        cost = ladder.cost
        steps = epochs * cost.samples / cost.batch
        return self._around(ladder, place) + steps * cost.tail_step(cost.tails[place])

    def _around(self, ladder: Ladder, place: int) -> float:
        """Axes before the steps, and features of both splits after them."""
        cost = ladder.cost
        return (_AXES_STEPS * cost.tail_step(cost.tails[place])) + cost.tails[place] * (
            cost.samples + cost.validation
        )


def _movable(ladder: Ladder) -> list[int]:
    """Cuts with something behind them that may move, the shortest tail first."""
    cuts = cuts_of(ladder.last.model.backbone)[: len(ladder.cost.tails)]
    return [place for place, cut in enumerate(cuts) if cut.trained]


class ConceptTail(nn.Module):
    """What lies behind a cut: tail and concept head, from maps to concept logits."""

    def __init__(self, tail: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.tail, self.head = tail, head

    def forward(self, maps: Tensor) -> Tensor:
        here = self.head.weight
        logits: Tensor = self.head(self.tail(maps.to(here.device)).to(here.dtype))
        return logits.cpu()


def _training_steps(model: ConceptBottleneck, samples: int) -> int:
    epochs = len(model.provenance.training.get("epochs", ())) or model.recipe.epochs
    return epochs * -(-samples // model.recipe.step_size)


def _rate(steps: float, work: float) -> float:
    """The learning rate as a share of the recipe's peak, from steps and work as shares of training's.

    A few steps at a high rate only do damage; and much work is a second training, which ends nearer to retraining
    at half of the peak. Birds under three seeds, 10 % and 20 % of the work: at the full peak recovery rises by .02
    and .04 and closure falls by .005 and .015; at 10 % the recovery is taken, at 20 % the closure.
    """
    return min(max(5 * steps, 0.2), 1.0) * min(max(_FULL_RATE / max(work, 1e-9), 0.5), 1.0)


def _order(count: int, seed: int, epoch: int) -> Tensor:
    generator = torch.Generator().manual_seed((seed * 7919 + epoch) % 2**63)
    return torch.randperm(count, generator=generator)


def batches(count: int, size: int, seed: int, epoch: int) -> list[Tensor]:
    """A short last batch joins its neighbour: BatchNorm needs two samples."""
    parts = list(_order(count, seed, epoch).split(size))
    if len(parts) > 1 and len(parts[-1]) < 2:
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


def train_tail(
    network: nn.Module,
    optimiser: AxesAdam,
    maps: Maps,
    terms: ConceptTerms,
    recipe: Recipe,
    steps: int,
    learning_rate: float,
    deadline: float | None = None,
) -> int:
    """Train ``network`` on maps in place; returns the steps that were made.

    The rate rises in the first fifth and stays; the result is the mean of the weights over the last half, with the
    BatchNorm statistics of the same steps. With a ``deadline`` of the monotonic clock it may end before ``steps``.
    """
    count, done, epoch, started = len(maps), 0, 0, time.monotonic()
    average = _Average(network)
    to_training(network)
    with progress("Training the last layers", steps) as bar, torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        share = 0.0
        while share < 1:
            for rows in batches(count, recipe.step_size, recipe.seed, epoch):
                share = done / steps
                if deadline is not None:
                    share = max(share, (time.monotonic() - started) / max(deadline - started, 1e-9))
                if share >= 1:
                    break
                loss, gradients = _gradients(network, optimiser.parameters, maps, terms, rows, recipe.batch_size)
                # The middle of the step counts, so that a single one is not of length zero.
                warm = min(1.0, (share + 0.5 / steps) / _WARM_UP)
                optimiser.step(gradients, learning_rate * warm)
                done += 1
                if share + 1 / steps > 0.5:
                    average.add()
                bar.advance(loss=loss)
            epoch += 1
    average.put()
    network.eval()
    return done


def _gradients(
    network: nn.Module, parameters: list[nn.Parameter], maps: Maps, terms: ConceptTerms, rows: Tensor, size: int
) -> tuple[float, tuple[Tensor, ...]]:
    """Mean loss of some rows and its gradients, from batches of ``size``, as training accumulates them."""
    value, summed = 0.0, tuple[Tensor, ...]()
    for part in parts(rows, size):
        loss = terms[part].loss(network(maps.take(part)).float()) / len(rows)
        gradients = torch.autograd.grad(loss, parameters, materialize_grads=True)
        value += float(loss.detach())
        summed = tuple(a + b for a, b in zip(summed, gradients, strict=True)) if summed else gradients
    return value, summed


def to_training(network: nn.Module) -> None:
    """Training mode, but for BatchNorm whose parameters are frozen: its statistics are meant to stay, too."""
    network.train()
    for module in network.modules():
        own = list(module.parameters(recurse=False))
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and own and not any(p.requires_grad for p in own):
            module.eval()


class _Average:
    """The running mean of everything that moves in a network: parameters and BatchNorm statistics."""

    def __init__(self, network: nn.Module) -> None:
        self.parts = [p.data for p in network.parameters() if p.requires_grad]
        self.parts += [buffer for buffer in network.buffers() if buffer.is_floating_point()]
        self.means = [part.clone() for part in self.parts]
        self.count = 0

    def add(self) -> None:
        self.count += 1
        for mean, part in zip(self.means, self.parts, strict=True):
            mean.lerp_(part, 1 / self.count)

    def put(self) -> None:
        if self.count:
            for mean, part in zip(self.means, self.parts, strict=True):
                part.copy_(mean)
