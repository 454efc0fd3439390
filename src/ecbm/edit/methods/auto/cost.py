"""What things cost, counted and not timed: the work of passes and products, in operations.

A budget is a share of the work of retraining. Both are counts, so the same edit takes the same steps on a busy
machine and gives the same bytes (docs/method.md, "Budgets"). On one core a forward pass of the built-in backbones,
a training step and a product of the heads run within a factor of two of one speed, so a share of the work is about
a share of the time. Multiplications alone would not do: in front layers of a network moving values through memory
takes longer.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ecbm.devices import device_of
from ecbm.edit.alignment import Alignment
from ecbm.train.cuts import cuts_of
from ecbm.train.model import ConceptBottleneck

__all__ = ["CostModel", "forward_operations"]

# A training step in forward passes over its batch, measured between 2.3 (convnet, 32 px) and 3.6 (mlp), and the
# operations that calling a step is worth, which only tiny networks feel. Retraining and gradient steps are both
# counted with them, so an error here only shifts the balance between gradient steps and solves of the heads.
_TRAINING_STEP = 3.3
_CALL = 2e7
# Operations that a written number is worth. Fitted on the time of convnet's blocks at 32 and 48 px, forward and
# training: the last block's share of a step comes out 12 % too low to 18 % too high. At half of it 5 to 41 % too
# high, at twice 6 to 29 % too low. Fully connected networks do not feel it.
_WRITE = 100
# Solves of the heads, fitted on birds, WBCAtt and CUB (n of 1,680 to 6,169; 21 to 112 concepts; 5 to 200 classes;
# .6 to 1.8 of the time measured). A row of a head times the design and back takes, for each sample, so many
# operations for each column and so many for its logit; a product of all rows together has a price of its own, which
# is most of it where there are few rows. A basis for moved features is an eigendecomposition.
_CONCEPT_COLUMN, _CONCEPT_LOGIT, _CONCEPT_PRODUCT = 4.0, 1100.0, 120_000.0
_LABEL_COLUMN, _LABEL_LOGIT, _LABEL_PRODUCT = 8.0, 100.0, 25_000.0
_BASIS = 150.0
# What solving a head on moved features takes, of what it took in training from nothing: concepts as far as
# climbing needs it, from there to the end, and the label head. Measured after live tails on birds (1.3, 1.2 and
# .7): a tail moves features far. An estimate that is too low shows as a budget that is exceeded; the report gives
# both.
_SOLVING_SHARE, _POLISHING_SHARE, _LABEL_SHARE = 1.3, 1.2, 0.8
# Row products a concept or class for a model that does not know what its training took.
_TYPICAL_WORK = 40


def forward_operations(network: Callable[[Tensor], object], example: Tensor) -> float:
    """Operations of one sample's way through a network, counted by running it once."""
    from torch.utils.flop_counter import FlopCounterMode

    written = _Written()
    with FlopCounterMode(display=False) as counter, written, torch.no_grad():
        network(example)
    return float(counter.get_total_flops() + _WRITE * written.numbers)


class _Written(TorchDispatchMode):
    """Counts the numbers that operations write."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.numbers = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        if not func.is_view:
            self.numbers += sum(leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, Tensor))
        return out


@dataclasses.dataclass(frozen=True)
class CostModel:
    """Prices of everything ``auto`` can do for one edit, in operations.

    Attributes
    ----------
    forward
        One sample through the backbone and the concept head.
    samples, validation
        Edited training samples, and validation samples.
    features, concepts, classes
        Widths of the design and of the two heads.
    batch
        Samples in a training step.
    retraining
        All of retraining: epochs, features, both heads.
    closing
        What ends a rung that moved the backbone: features of both splits, and the concept head.
    labels
        Solving the label head at the end.
    tails
        One sample through what is behind each cut of the backbone and the concept head, the shortest tail first.
    """

    forward: float
    samples: int
    validation: int
    features: int
    concepts: int
    classes: int
    batch: int
    retraining: float
    closing: float
    labels: float
    tails: tuple[float, ...] = ()

    @classmethod
    def of(cls, alignment: Alignment) -> CostModel:
        """Prices from the model's sizes and what its own training took."""
        model, recipe = alignment.model, alignment.model.recipe
        training = model.provenance.training
        samples, validation = alignment.samples.after, alignment.edited.split_sizes.get("val", 0)
        features, concepts = model.concept_head.in_features + 1, len(alignment.edited.concept_names)
        classes = len(model.class_names)
        forward, tails = _operations(model)
        epochs = (len(training.get("epochs", ())) or recipe.epochs) if not recipe.is_linear else 0
        steps = -(-samples // recipe.batch_size)
        epoch = _TRAINING_STEP * forward * samples + _CALL * steps + forward * validation
        concept_products = training.get("concept_work", _TYPICAL_WORK * concepts)
        concept_head = _concept_work(concept_products, samples, features, concepts)
        label_products = training.get("label_work", _TYPICAL_WORK * classes)
        label_head = _label_work(label_products, samples, concepts + 1, classes)
        basis = _BASIS * features**3
        return cls(
            forward,
            samples,
            validation,
            features,
            concepts,
            classes,
            recipe.step_size,
            epochs * epoch + forward * samples + concept_head + basis + label_head,
            forward * (samples + validation) + _SOLVING_SHARE * concept_head + basis,
            _LABEL_SHARE * label_head,
            tails,
        )

    @property
    def solving(self) -> float:
        """Solving the concept head on moved features."""
        return self.closing - self.passes(self.samples + self.validation)

    @property
    def polishing(self) -> float:
        """Solving it to the end from there."""
        return _POLISHING_SHARE / _SOLVING_SHARE * (self.solving - self.basis) + self.basis

    @property
    def basis(self) -> float:
        """What preconditions solves on moved features."""
        return _BASIS * self.features**3

    def label_steps(self, steps: int) -> float:
        """A few steps of the label head in place of its solve."""
        return self.label_work(4 * steps * self.classes)

    @property
    def step(self) -> float:
        """One gradient step of everything."""
        return _TRAINING_STEP * self.forward * self.batch + _CALL

    def tail_step(self, forward: float) -> float:
        """One gradient step of a tail whose forward pass takes that many operations a sample."""
        return _TRAINING_STEP * forward * self.batch + _CALL

    def passes(self, samples: float, *, backward: bool = False) -> float:
        """Samples shown to the network, forward or there and back."""
        return (_TRAINING_STEP if backward else 1.0) * self.forward * samples

    def concept_work(self, row_products: int) -> float:
        """What a solve of concept heads took, from its count of products with the design."""
        return _concept_work(row_products, self.samples, self.features, self.concepts)

    def label_work(self, row_products: int) -> float:
        """The same for the label head."""
        return _label_work(row_products, self.samples, self.concepts + 1, self.classes)


def _operations(model: ConceptBottleneck) -> tuple[float, tuple[float, ...]]:
    """One sample's way through backbone and concept head, and from every cut on."""
    model.eval()
    example = torch.zeros(1, *model.seen_shape, device=device_of(model.backbone))

    def rest(tail: Callable[[Tensor], Tensor]) -> Callable[[Tensor], object]:
        return lambda x: model.concept_logits_from(tail(x))

    tails = []
    for cut in cuts_of(model.backbone):
        with torch.no_grad():
            maps = cut.front(example)
        tails.append(forward_operations(rest(cut.tail), maps))
    return forward_operations(rest(model.backbone), example), tuple(tails)


def _concept_work(row_products: int, samples: int, width: int, concepts: int) -> float:
    rows = row_products * samples * (_CONCEPT_COLUMN * width + _CONCEPT_LOGIT)
    return rows + row_products / max(concepts, 1) * samples * _CONCEPT_PRODUCT


def _label_work(row_products: int, samples: int, width: int, classes: int) -> float:
    products = row_products / max(classes, 1)
    rows = row_products * samples * (_LABEL_COLUMN * width + _LABEL_LOGIT)
    return rows + products * (samples * _LABEL_PRODUCT + 2 * _CALL)
