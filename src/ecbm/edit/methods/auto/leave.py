"""When to leave the backbone alone: an edit that moves predictions less than another seed would.

    δ = rms change of validation probabilities that the exact heads alone bring about
    r = rms change of the same by a few gradient steps of the last layers on the *old* data

Retraining draws its order of samples anew, and predictions wander by about r without any edit (r comes out near the
distance between two seeds). Where an edit's own pull is below that, moving the backbone adds wandering and no edit:
accuracy may rise, as with any further training, but predictions go away from those of retraining.
docs/editing.md, "Deep backbones", has the cases on both sides.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ecbm.edit.alignment import Alignment
from ecbm.edit.gradients import concept_part
from ecbm.edit.maps import FreshMaps, Maps
from ecbm.edit.methods.auto.axes import AxesAdam
from ecbm.edit.methods.auto.tail import ConceptTail, batches, to_training
from ecbm.edit.state import EditorState
from ecbm.read.concept_types import ConceptLayout
from ecbm.train.cuts import Cut, cuts_of
from ecbm.train.heads.activations import activate
from ecbm.train.heads.objectives import rows_of
from ecbm.train.model import ConceptBottleneck

__all__ = ["CLIMB_FROM", "pull", "wandering"]

# The backbone is moved if δ > CLIMB_FROM · r. Set between cases in which the live tail loses closure (δ/r up to
# .30) and those in which it gains (from .55) on birds, WBCAtt and CUB, mostly one seed each. At half of it two
# cases that should stay move, at twice three cases stay that should move.
CLIMB_FROM = 0.5
_STEPS, _RATE = 8, 0.3


def pull(alignment: Alignment, state: EditorState, solved: ConceptBottleneck) -> float:
    """δ of an edit whose concept head is solved on the present features.

    An added concept had no prediction before: it is taken to have been predicted at its share of positives, as a
    backbone that never heard of it can do no better.
    """
    features, concepts = state.validation, alignment.concepts
    after = activate(features @ rows_of(solved.concept_head).T, solved.layout)
    known = activate(features @ rows_of(state.model.concept_head).T, state.model.layout)
    before = alignment.terms_after.targets.double().mean(0).expand_as(after).clone()
    before[:, concepts.new] = known[:, concepts.old]
    for column in solved.layout.squared.tolist():
        # Measured concepts in the scale of the edited data, which may be another one.
        old = int(concepts.origin[column])
        if old >= 0:
            model, low, high = state.model, solved.low[column], solved.high[column]
            value = (known[:, old] - model.low[old]) / (model.high[old] - model.low[old])
            before[:, column] = low + (high - low) * value
    return _rms(after - before)


def wandering(state: EditorState) -> float:
    """r of a model on its data; found once and kept."""
    return state.figure("wandering", lambda: _wandering(state))


def _wandering(state: EditorState) -> float:
    model, recipe = state.model, state.model.recipe
    part = concept_part(model)
    cut = next((one for one in cuts_of(part.backbone) if one.trained), None)
    if cut is None:
        cut = Cut("", nn.Sequential(), part.backbone)
    split = "val" if "val" in state.data.split_sizes else "train"
    maps, watched = (_maps(state, cut, one) for one in ("train", split))
    network = ConceptTail(cut.tail, part.concept_head)
    rows = torch.arange(len(watched))
    before = _probabilities(network, watched, rows, model.layout)
    optimiser = AxesAdam([p for p in network.parameters() if p.requires_grad], recipe.concept_regularisation, {})
    to_training(network)
    done = epoch = 0
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        while done < _STEPS:
            for some in batches(len(maps), recipe.batch_size, recipe.seed, epoch)[: _STEPS - done]:
                loss = state.terms[some].loss(network(maps.take(some)).float()) / len(some)
                gradients = torch.autograd.grad(loss, optimiser.parameters, materialize_grads=True)
                optimiser.step(gradients, _RATE * recipe.peak_learning_rate)
                done += 1
            epoch += 1
    return _rms(_probabilities(network, watched, rows, model.layout) - before)


def _maps(state: EditorState, cut: Cut, split: str) -> Maps:
    if cut.name:
        return state.maps.of(cut, split)
    return FreshMaps(cut.front, state.data.split(split).inputs)


def _probabilities(network: nn.Module, maps: Maps, rows: Tensor, layout: ConceptLayout) -> Tensor:
    network.eval()
    with torch.no_grad():
        return torch.cat([activate(network(maps.take(some)).double(), layout) for some in rows.split(256)])


def _rms(values: Tensor) -> float:
    return float(values.square().mean().sqrt())
