"""Gradient steps on the edited data: a rung of ``auto``, and the fine-tuning control."""

from __future__ import annotations

import dataclasses
import time

import torch
from torch import Tensor, nn
from torch.optim.adam import adam

from ecbm.edit.alignment import Alignment
from ecbm.edit.gradients import ConceptPart, concept_part
from ecbm.progress import progress
from ecbm.read.inputs import Inputs
from ecbm.train.loop import FUSED
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms

__all__ = ["Forget", "refine"]


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
            fused=self.parameters[0].device.type in FUSED,
            amsgrad=False,
            beta1=0.9,
            beta2=0.999,
            lr=learning_rate,
            weight_decay=self.weight_decay,
            eps=1e-8,
            maximize=False,
        )


@dataclasses.dataclass(frozen=True)
class Forget:
    """Samples whose loss is climbed while that of the others falls, and with what share of the whole."""

    inputs: Inputs
    terms: ConceptTerms
    share: float

    def loss(self, part: ConceptPart, size: int, step: int) -> Tensor:
        """Of a batch that goes round the samples."""
        count = len(self.terms.targets)
        rows = (torch.arange(min(size, count)) + step * size) % count
        return self.terms[rows].loss(part(self.inputs.take(rows)).float()) / len(rows)


def refine(
    model: ConceptBottleneck,
    alignment: Alignment,
    inputs: Inputs,
    *,
    steps: int,
    learning_rate: float,
    deadline: float | None = None,
    forget: Forget | None = None,
) -> tuple[ConceptPart, int]:
    """Adam on the edited J'_C from ``model``; returns backbone and concept head, and the steps that were made.

    BatchNorm stays in evaluation mode with frozen statistics. The learning rate rises to the one given in the first
    tenth (Adam's first steps are all sign and no size) and then falls to zero, so that the last steps average
    rather than wander. With a ``deadline`` of the monotonic clock it may end before ``steps``. ``forget`` is for a
    control of removals.
    """
    recipe, terms, count = model.recipe, alignment.terms_after, alignment.samples.after
    part = concept_part(model).eval()
    optimiser = _Adam(part, recipe.concept_regularisation)
    started, done, epoch = time.monotonic(), 0, 0
    with progress("Refining the backbone", steps) as bar:
        while True:
            generator = torch.Generator().manual_seed((recipe.seed * 7919 + epoch) % 2**63)
            for rows in torch.randperm(count, generator=generator).split(recipe.step_size):
                share = done / max(steps, 1)
                if deadline is not None:
                    share = max(share, (time.monotonic() - started) / max(deadline - started, 1e-9))
                if share >= 1:
                    return part, done
                loss = terms[rows].loss(part(inputs.take(rows)).float()) / len(rows)
                if forget is not None:
                    climbed = forget.loss(part, recipe.batch_size, done)
                    loss = (1 - forget.share) * loss - forget.share * climbed
                gradients = torch.autograd.grad(loss, optimiser.parameters, materialize_grads=True)
                # The middle of the step counts, so that a single one is not of length zero.
                middle = min(share + 0.5 / max(steps, 1), 1.0)
                optimiser.step(gradients, learning_rate * min(1.0, 10 * middle) * (1 - middle))
                done += 1
                bar.advance(loss=float(loss.detach()))
            epoch += 1
