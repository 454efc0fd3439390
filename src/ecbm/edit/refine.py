"""Gradient steps on the edited data, for a given time: the last rung of ``auto``, and the fine-tuning control."""

from __future__ import annotations

import time

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.adam import adam

from ecbm.edit.influence import ConceptPart, concept_part
from ecbm.edit.situation import Situation
from ecbm.progress import progress
from ecbm.read.inputs import Inputs
from ecbm.train.model import ConceptBottleneck

__all__ = ["refine"]


class _Adam:
    """PyTorch's Adam without its optimiser object, whose first use loads the compiler: a second, a whole budget."""

    def __init__(self, module: nn.Module, weight_decay: float) -> None:
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self.weight_decay = weight_decay
        self.means = [torch.zeros_like(p) for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self.counts = [torch.zeros((), device=p.device) for p in self.parameters]

    @torch.no_grad()
    def step(self, gradients: tuple[Tensor, ...], learning_rate: float) -> None:
        # The fused kernel goes through memory: gradients must lie as their parameters do.
        alike = [
            g if g.stride() == p.stride() else torch.empty_like(p).copy_(g)
            for g, p in zip(gradients, self.parameters, strict=True)
        ]
        adam(
            list[Tensor](self.parameters),
            alike,
            self.means,
            self.squares,
            [],
            self.counts,
            fused=True,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=1e-8,
            maximize=False,
        )


def refine(
    model: ConceptBottleneck,
    situation: Situation,
    inputs: Inputs,
    *,
    seconds: float,
    learning_rate: float,
) -> tuple[ConceptPart, float]:
    """Adam on the edited J'_C from ``model`` for a given time; returns backbone and concept head, and the epochs.

    BatchNorm stays in evaluation mode with frozen statistics. The learning rate rises to the one given in the
    first tenth of the time (Adam's first steps are all sign and no size) and then falls to zero, so that the last
    steps average rather than wander.
    """
    recipe = model.recipe
    part = concept_part(model).eval()
    optimiser = _Adam(part, recipe.concept_regularisation)
    after, terms = situation.after, situation.terms_after
    started = time.monotonic()
    done = epoch = 0
    with progress("Refining the backbone", 100) as bar:
        shown = 0
        while True:
            generator = torch.Generator().manual_seed(recipe.seed * 7919 + epoch)
            for rows in torch.randperm(len(after), generator=generator).split(recipe.batch_size):
                share = (time.monotonic() - started) / seconds
                if share >= 1:
                    return part, done / len(after)
                logits = part(inputs.take(rows))
                loss = functional.binary_cross_entropy_with_logits(
                    logits.float(), terms.targets[rows], weight=terms.weights[rows], reduction="sum"
                )
                gradients = torch.autograd.grad(loss / len(rows), optimiser.parameters, materialize_grads=True)
                optimiser.step(gradients, learning_rate * min(1.0, 10 * share) * (1 - share))
                done += len(rows)
                bar.advance(int(100 * share) - shown, loss=float(loss.detach()) / len(rows))
                shown = int(100 * share)
            epoch += 1
