"""What the class loss of a target would be without a concept, for all concepts at once (Theorem 4.3 of the paper).

Given features the other concepts' heads do not notice. The label head loses its weights for the concept's columns
R. The optimum under φ_R = 0 is, to second order of J_Y, the optimal brain surgeon's step (Hassibi and Stork 1993)

    φ − H⁻¹E (Eᵀ H⁻¹ E)⁻¹ φ_R        E: the columns R of the identity

and T is evaluated there, not linearised: to lose a concept is no small change. H is inverted once for all
concepts; where it is large, the exact block of every class stands for it, and a few steps with the constrained
inverses on each head's own gradient make up for what blocks leave out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from ecbm.progress import progress
from ecbm.train.heads.objectives import LabelObjective
from ecbm.train.heads.precondition import class_blocks, invert_blocks
from ecbm.verify.influence.heads import Heads
from ecbm.verify.influence.label_side import LabelSide
from ecbm.verify.influence.targets import Target

__all__ = ["class_changes_without", "heads_without"]

# Steps on each head's own objective: at least and at most, and how many operations they may take in all.
_FEWEST, _MOST, _WORK = 2, 20, 2e10

_Divide = Callable[[Tensor], Tensor]
"""A gradient (classes, k + 1) → the step, by a constrained inverse."""


def class_changes_without(heads: Heads, target: Target, *, steps: int | None = None) -> Tensor:
    """(concepts,) change of the target's class loss if a concept were removed; the backbone stays."""
    logits = heads.features(target) @ heads.concept.head.T
    read, outputs = heads.outputs(logits)

    def loss(outputs: Tensor) -> Tensor:
        return (target.shares * target.class_losses(outputs)).sum()

    now = loss(outputs)
    concepts = heads.state.model.layout.concepts
    if steps is None:
        each = 6 * len(heads.label.design) * heads.label.head.numel() * len(concepts)
        steps = min(max(_FEWEST, int(_WORK / each)), _MOST)
    changes = torch.zeros(len(concepts), dtype=torch.float64)
    with progress("Concepts", len(concepts)) as bar:
        for place, head in enumerate(heads_without(heads.label, [list(c.columns) for c in concepts], steps)):
            changes[place] = loss(read @ head.T) - now
            bar.advance()
    return changes


def heads_without(label: LabelSide, removed: list[list[int]], steps: int) -> Iterator[Tensor]:
    """The label head (classes, k + 1) after each of the removals, with zeros in those columns."""
    inverse = label.whole_inverse
    if inverse is not None:
        width = label.head.shape[1]
        for columns in removed:
            places = torch.tensor([c * width + column for c in range(len(label.head)) for column in columns])
            pivot = inverse[places[:, None], places]
            step = inverse[:, places] @ torch.linalg.solve(pivot, label.head.flatten()[places])
            head = label.head - step.view_as(label.head)
            head[:, columns] = 0.0
            yield _refined(label, head, _whole_step(inverse, places), steps)
        return
    blocks = _block_inverses(label)
    for columns in removed:
        pivot = blocks[:, columns][:, :, columns]
        across = torch.linalg.solve(pivot, blocks[:, columns])  # (classes, |R|, k + 1)
        head = label.head - torch.bmm(label.head[:, None, columns], across)[:, 0]
        head[:, columns] = 0.0
        yield _refined(label, head, _block_step(blocks, columns, across), steps)


def _refined(label: LabelSide, head: Tensor, divide: _Divide, steps: int) -> Tensor:
    """Conjugate gradient steps on J_Y without the concept, by the constrained inverse and the exact curvature along
    each direction.
    """
    objective = LabelObjective(label.design, label.labels, None, label.l2, label.l1)
    outputs = label.design @ head.T
    value = float(objective.value(head, outputs))
    direction, before = torch.zeros_like(head), None
    for _ in range(steps):
        gradient = objective.gradient(outputs, head) * label.support
        step = divide(gradient)
        slope = float((gradient * step).sum())
        # Polak and Ribière's, which forgets directions that have become useless.
        keep = 0.0 if before is None else max(0.0, (slope - float((before[0] * step).sum())) / before[1])
        direction, before = step + keep * direction, (gradient, max(slope, 1e-300))
        change = label.design @ direction.T
        bend = float(objective.slopes(outputs, change)[1].sum()) + label.l2 * float(direction.square().sum())
        length = float((gradient * direction).sum()) / max(bend, 1e-300)
        moved = float(objective.value(head - length * direction, outputs - length * change))
        if not moved < value:
            break
        head, outputs, value = head - length * direction, outputs - length * change, moved
    return head


def _whole_step(inverse: Tensor, places: Tensor) -> _Divide:
    across = torch.linalg.solve(inverse[places[:, None], places], inverse[places])

    def divide(gradient: Tensor) -> Tensor:
        flat = gradient.flatten()
        step = inverse @ flat - across.T @ (inverse[places] @ flat)
        step[places] = 0.0
        moved: Tensor = step.view_as(gradient)
        return moved

    return divide


def _block_inverses(label: LabelSide) -> Tensor:
    """(classes, k + 1, k + 1) float64."""
    curvature = LabelObjective(label.design, label.labels, None, 0.0).curvature(label.chances)
    blocks = class_blocks(label.design.float(), curvature.float())
    for block, own in zip(blocks, label.support, strict=True):
        still = (~own).nonzero().flatten()
        block[still] = block[:, still] = 0.0
        block[still, still] = 1.0
    return invert_blocks(blocks, label.l2).double()


def _block_step(blocks: Tensor, columns: list[int], across: Tensor) -> _Divide:
    def divide(gradient: Tensor) -> Tensor:
        # What all classes share moves no probability: blocks of single classes would take it for a direction.
        centred = (gradient - gradient.mean(0))[:, None]
        step = torch.bmm(centred, blocks)
        step = step - torch.bmm(step[:, :, columns], across)
        step = step[:, 0]
        step[:, columns] = 0.0
        return step - step.mean(0)

    return divide
