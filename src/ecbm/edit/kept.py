"""What an editor computes once about its model and keeps for every edit: features, gradient, curvature."""

from __future__ import annotations

import time
from functools import cached_property

import torch
from torch import Tensor

from ecbm.curvature import EKFAC, ConceptLoss, LabelLoss, Vector
from ecbm.curvature.losses import Fisher
from ecbm.edit.frozen import FrozenState
from ecbm.edit.influence import ConceptPart, concept_part, objective_gradient
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs
from ecbm.train import stages
from ecbm.train.convex import (
    CLASS_BLOCK_BYTES,
    WIDEST_CLASS_BLOCK,
    FeatureBasis,
    class_blocks,
    invert_blocks,
    with_ones,
)
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms, concept_terms

__all__ = ["STALENESS_LIMIT", "Kept"]

STALENESS_LIMIT = 0.3
_STALENESS_SAMPLE = 256


class Kept:
    """Lazily computed facts about a model on its training data; ``seconds`` says what each has cost."""

    def __init__(self, model: ConceptBottleneck, data: Dataset) -> None:
        self.model, self.data = model, data
        self.train = data.split("train")
        self.seconds: dict[str, float] = {}
        self.staleness: dict[str, float] = {}
        self._followed: Kept | None = None
        self._concept_curvature: dict[str, EKFAC] = {}
        self._label_curvature: dict[str, EKFAC] = {}

    def _timed(self, name: str, started: float) -> None:
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started

    @cached_property
    def design(self) -> Tensor:
        """Training features with a column of ones, float64."""
        started = time.monotonic()
        design = with_ones(stages.extract_features(self.model.backbone, self.train.inputs))
        self._timed("features", started)
        return design

    @cached_property
    def logits(self) -> Tensor:
        """Concept logits of the training samples, float64."""
        return self.model.concept_logits_from(self.design[:, :-1]).detach().double()

    @cached_property
    def validation(self) -> Tensor:
        """Validation features with a column of ones; the training ones where there is no validation split."""
        if "val" not in self.data.split_sizes:
            return self.design
        started = time.monotonic()
        design = with_ones(stages.extract_features(self.model.backbone, self.data.split("val").inputs))
        self._timed("features", started)
        return design

    @cached_property
    def basis(self) -> FeatureBasis:
        """What preconditions solves on :attr:`design`."""
        design = self.design
        started = time.monotonic()
        basis = FeatureBasis.of(design)
        self._timed("basis", started)
        return basis

    @cached_property
    def leading(self) -> Tensor:
        """What preconditions warm-started concept heads (:meth:`FeatureBasis.leading_inverses`)."""
        basis = self.basis
        started = time.monotonic()
        p = torch.sigmoid(self.logits)
        curvature = self.terms.weights * p * (1 - p) / len(p)
        leading = basis.leading_inverses(self.design, curvature, self.concept_l2)
        self._timed("concept blocks", started)
        return leading

    def leading_for(self, columns: tuple[Tensor, Tensor], width: int) -> Tensor:
        """:attr:`leading` under new concept columns; a new concept has that of an average one."""
        if self._unchanged(columns, width):
            return self.leading
        leading = self.leading.mean(0, keepdim=True).expand(width, -1, -1).clone()
        leading[columns[1]] = self.leading[columns[0]]
        return leading

    @cached_property
    def frozen(self) -> FrozenState:
        """What exact edits of the linear backbone start from."""
        self.leading  # noqa: B018  (its own cost is counted apart)
        started = time.monotonic()
        state = FrozenState(self)
        self._timed("solved state", started)
        return state

    @cached_property
    def label_blocks(self) -> Tensor | None:
        """What preconditions the label head: the Hessian's diagonal block of every class, over all its inputs."""
        read = with_ones(self.read)
        classes, width = len(self.model.class_names), read.shape[1]
        if width > WIDEST_CLASS_BLOCK or 4 * classes * width * width > CLASS_BLOCK_BYTES:
            return None
        started = time.monotonic()
        with torch.no_grad():
            probabilities = torch.softmax(self.model.label_head(read[:, :-1]), 1)
        weights = torch.full((len(read), 1), 1 / len(read))
        blocks = class_blocks(read.float(), probabilities.float(), weights)
        self._timed("label blocks", started)
        return blocks

    @cached_property
    def _label_inverses(self) -> Tensor | None:
        blocks = self.label_blocks
        return None if blocks is None else invert_blocks(blocks, self.model.recipe.label_regularisation)

    def label_inverses_for(self, columns: tuple[Tensor, Tensor], width: int) -> Tensor | None:
        """Inverses of :attr:`label_blocks` under new concept columns; a new concept's part is an average one's."""
        kept = self.label_blocks
        if kept is None or self._unchanged(columns, width):
            return self._label_inverses
        old = torch.cat([columns[0], torch.tensor([kept.shape[1] - 1])])
        new = torch.cat([columns[1], torch.tensor([width])])
        average = kept.diagonal(dim1=1, dim2=2).mean(1)
        blocks = torch.diag_embed(average[:, None].expand(-1, width + 1)).contiguous()
        blocks[:, new[:, None], new[None, :]] = kept[:, old[:, None], old[None, :]]
        return invert_blocks(blocks, self.model.recipe.label_regularisation)

    def _unchanged(self, columns: tuple[Tensor, Tensor], width: int) -> bool:
        return len(columns[0]) == width == len(self.model.concept_names) and torch.equal(*columns)

    @cached_property
    def terms(self) -> ConceptTerms:
        return concept_terms(self.train.concepts, self.model.positive_weights)

    @property
    def inputs(self) -> Inputs | Tensor:
        """What :attr:`part` reads: features for the linear backbone, inputs otherwise."""
        return self.design[:, :-1] if self.model.recipe.is_linear else self.train.inputs

    @cached_property
    def part(self) -> ConceptPart:
        return concept_part(self.model)

    @cached_property
    def gradient(self) -> Vector:
        """∇J_C at the model, over the data it was trained on."""
        started = time.monotonic()
        gradient = objective_gradient(self.part, self.inputs, self.terms, self.concept_l2)
        self._timed("gradient", started)
        return gradient

    @property
    def concept_l2(self) -> float:
        return self.model.recipe.concept_regularisation

    def has_curvature(self, fisher: Fisher) -> bool:
        """Whether :meth:`concept_curvature` has been fitted already."""
        return fisher in self._concept_curvature

    def follow(self, model: ConceptBottleneck, data: Dataset) -> Kept:
        """What is kept for the model after an edit; curvature is taken over as long as it is not stale."""
        other = Kept(model, data)
        source = self if self._concept_curvature else self._followed
        if source is not None and source._parameters_by_name() == other._parameters_by_name():
            other._followed = source
        return other

    def _parameters_by_name(self) -> tuple[tuple[str, ...], list[tuple[str, torch.Size]]]:
        return self.model.concept_names, [(name, p.shape) for name, p in self.part.named_parameters()]

    def concept_curvature(self, fisher: Fisher) -> EKFAC:
        """EK-FAC of J_C at the model: fitted on first use, or taken over from the model before the last edit.

        It is taken over while :attr:`staleness` stays below a limit: |A − B|/|B| between the curvatures of the two
        models, both on the same small sample and with the same draws, so that only the edits differ.
        """
        if fisher not in self._concept_curvature:
            started = time.monotonic()
            self._concept_curvature[fisher] = self._taken_over(fisher) or self._fit(fisher, slice(None))
            self._timed("concept curvature", started)
        return self._concept_curvature[fisher]

    def _fit(self, fisher: Fisher, rows: slice) -> EKFAC:
        loss = ConceptLoss(self.terms.targets[rows], self.terms.weights[rows])
        inputs = self.inputs
        if rows != slice(None):
            some = range(len(self.train))[rows]
            inputs = inputs[rows] if isinstance(inputs, Tensor) else inputs.subset(some)
        trained = [name for name, p in self.part.named_parameters() if p.requires_grad]
        seed, l2 = self.model.recipe.seed, self.concept_l2
        return EKFAC.fit(self.part, inputs, loss, l2=l2, fisher=fisher, seed=seed, parameters=trained)

    def _taken_over(self, fisher: Fisher) -> EKFAC | None:
        previous = self._followed
        if previous is None or fisher not in previous._concept_curvature:
            return None
        some = slice(0, _STALENESS_SAMPLE)
        drift = previous._fit(fisher, some).drift(self._fit(fisher, some))
        # Staleness adds up over a chain of edits: each model is compared with the one before it.
        self.staleness[fisher] = previous.staleness.get(fisher, 0.0) + float(drift["total"])
        if self.staleness[fisher] > STALENESS_LIMIT:
            self.staleness[fisher] = 0.0
            return None
        return previous._concept_curvature[fisher]

    @cached_property
    def read(self) -> Tensor:
        """What the label head was fitted on."""
        model = self.model
        return stages.label_inputs(model.recipe, self.logits, self.train.concepts, model.low, model.high)

    def label_curvature(self, fisher: Fisher) -> EKFAC:
        """EK-FAC of J_Y at the model."""
        if fisher not in self._label_curvature:
            started = time.monotonic()
            self._label_curvature[fisher] = EKFAC.fit(
                self.model.label_head,
                self.read,
                LabelLoss(self.train.labels),
                l2=self.model.recipe.label_regularisation,
                fisher=fisher,
                seed=self.model.recipe.seed,
            )
            self._timed("label curvature", started)
        return self._label_curvature[fisher]
