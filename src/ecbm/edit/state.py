"""What is known about a model on its data: computed on first use, kept for every edit, taken along by the next one.

An :class:`EditorState` belongs to one model and one dataset and refers to no other state, so that a chain of edits
holds nothing of samples that are gone. :meth:`EditorState.stored` and :meth:`EditorState.restore` are the hooks for
whoever keeps facts between processes (:mod:`ecbm.keep`).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import Tensor

from ecbm.edit.alignment import Alignment
from ecbm.edit.carry import has_statistics
from ecbm.edit.frozen import FrozenHeads
from ecbm.edit.gradients import ConceptPart, concept_part, objective_gradient
from ecbm.edit.maps import MapStore
from ecbm.edit.warm import LeadingInverses
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs
from ecbm.train import stages
from ecbm.train.heads.objectives import LabelObjective, concept_curvature, rows_of, with_ones
from ecbm.train.heads.precondition import FeatureBasis, class_blocks, fits_class_blocks, invert_blocks
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms, concept_scaling, terms_of

if TYPE_CHECKING:
    from ecbm.curvature import EKFAC, Vector
    from ecbm.curvature.losses import Fisher

__all__ = ["STALENESS_LIMIT", "EditorState", "Facts"]

STALENESS_LIMIT = 0.3
_STALENESS_SAMPLE = 256

T = TypeVar("T")
Group = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Facts:
    """What carrying out an edit has found out about the edited model: features of its training and validation
    samples
    (with ones), its solved heads on frozen features, and J_Y. ``None``: not known.
    """

    design: Tensor | None = None
    validation: Tensor | None = None
    heads: FrozenHeads | None = None
    label_value: float | None = None


@dataclasses.dataclass(frozen=True)
class _Inherited:
    """Curvature of the model before the last edit, and a small one of the same model to measure staleness from."""

    curvature: EKFAC
    sample: EKFAC
    staleness: float


class EditorState:
    """Lazily computed facts about a model on its training data; ``seconds`` says what each has cost."""

    def __init__(self, model: ConceptBottleneck, data: Dataset) -> None:
        self.model, self.data = model, data
        self.train = data.split("train")
        self.seconds: dict[str, float] = {}
        self.staleness: dict[str, float] = {}
        self._inherited: dict[str, _Inherited] = {}
        self._concept_curvature: dict[str, EKFAC] = {}
        self._label_curvature: dict[str, EKFAC] = {}
        self._label_preconditioner: Tensor | None = None
        self.maps = MapStore(model, data, self.seconds)
        self._figures: dict[str, float] = {}
        self.label_value: float | None = None
        """J_Y at the model, where somebody has computed it."""

    def _timed(self, name: str, compute: Callable[[], T]) -> T:
        started = time.monotonic()
        found = compute()
        self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - started
        return found

    # -- features ------------------------------------------------------------------------------------------

    @cached_property
    def design(self) -> Tensor:
        """Training features with a column of ones, float64."""
        return self._timed("features", lambda: stages.feature_design(self.model.backbone, self.train.inputs))

    @cached_property
    def validation(self) -> Tensor:
        """Validation features with a column of ones; the training ones where there is no validation split."""
        if "val" not in self.data.split_sizes:
            return self.design
        inputs = self.data.split("val").inputs
        return self._timed("features", lambda: stages.feature_design(self.model.backbone, inputs))

    def edited_design(self, alignment: Alignment, model: ConceptBottleneck) -> Tensor:
        """Features of the edited training samples under a carried model, from kept ones where they are the same."""
        samples = alignment.samples
        if samples.unchanged:
            return self.design
        if not samples.complete and has_statistics(model.backbone):
            return stages.feature_design(model.backbone, alignment.after.inputs)
        design = samples.carry(self.design)
        if len(samples.come):
            added = alignment.after.select(samples.come)
            design[samples.come] = stages.feature_design(model.backbone, added.inputs)
        return design

    def figure(self, name: str, compute: Callable[[], float]) -> float:
        """A number about the model on its data that a method found out and needs again."""
        if name not in self._figures:
            self._figures[name] = self._timed(name, compute)
        return self._figures[name]

    @cached_property
    def logits(self) -> Tensor:
        """Concept logits (n, k) of the training samples, float64."""
        if self.model.recipe.is_linear:
            return self.frozen.logits.T
        return self.design @ rows_of(self.model.concept_head).T

    # -- preconditioners and solved heads ------------------------------------------------------------------

    @cached_property
    def basis(self) -> FeatureBasis:
        """What preconditions solves on :attr:`design`."""
        design = self.design
        return self._timed("basis", lambda: FeatureBasis.of(design))

    @cached_property
    def leading(self) -> Tensor:
        """What preconditions warm-started concept heads (:meth:`FeatureBasis.leading_inverses`)."""
        if self.model.recipe.is_linear:
            return self.frozen.leading.inverses
        basis, terms = self.basis, self.terms
        curvature = concept_curvature(self.logits, terms.weights, terms.layout) / len(self.train)
        return self._timed("concept blocks", lambda: basis.leading_inverses(curvature, self.concept_l2))

    def leading_for(self, alignment: Alignment) -> Tensor:
        """:attr:`leading` under new concept columns; a new concept has that of an average one."""
        leading = alignment.concepts.carry(self.leading)
        if len(alignment.concepts.come):
            leading[alignment.concepts.come] = self.leading.mean(0)
        return leading

    @cached_property
    def frozen(self) -> FrozenHeads:
        """What edits on frozen features start from."""
        design, basis, head = self.design, self.basis, rows_of(self.model.concept_head)
        return self._timed("solved state", lambda: FrozenHeads.of(design, head, self.terms, self.concept_l2, basis))

    @cached_property
    def bottleneck(self) -> Tensor:
        """What the label head was fitted on."""
        model = self.model
        concepts, layout = self.train.concepts, model.layout
        return stages.label_inputs(model.recipe, self.logits, concepts, model.low, model.high, layout)

    @cached_property
    def label_blocks(self) -> Tensor | None:
        """The diagonal block of every class of the label head's Hessian, without L2; ``None`` if too large."""
        head = self.model.label_head
        if self.model.predicts_number or not fits_class_blocks(head.out_features, head.in_features + 1):
            return None
        design = with_ones(self.bottleneck)

        def blocks() -> Tensor:
            objective = LabelObjective(design, self.train.labels, None, 0.0)
            p = torch.softmax((design @ rows_of(head).T).float(), 1)
            return class_blocks(design.float(), objective.curvature(p))

        return self._timed("label blocks", blocks)

    def label_inverses(self, alignment: Alignment, *, exact: bool = False, damping: float = 0.0) -> Tensor | None:
        """Inverses of the classes' blocks under new concept columns; a new concept's part is an average one's.

        Without ``exact`` blocks of a model some edits ago may serve: they only precondition.
        """
        blocks = self.label_blocks if exact or self._label_preconditioner is None else self._label_preconditioner
        if blocks is None:
            return None
        concepts = alignment.concepts
        if not concepts.unchanged:
            old = torch.cat([concepts.old, torch.tensor([concepts.before])])
            new = torch.cat([concepts.new, torch.tensor([concepts.after])])
            average = blocks.diagonal(dim1=1, dim2=2).mean(1)
            wide = torch.diag_embed(average[:, None].expand(-1, concepts.after + 1)).contiguous()
            wide[:, new[:, None], new[None, :]] = blocks[:, old[:, None], old[None, :]]
            blocks = wide
        return invert_blocks(blocks, self.model.recipe.label_regularisation + damping)

    # -- terms, gradient, curvature ------------------------------------------------------------------------

    @property
    def concept_l2(self) -> float:
        return self.model.recipe.concept_regularisation

    @cached_property
    def terms(self) -> ConceptTerms:
        return terms_of(self.train, self.model.positive_weights, concept_scaling(self.train))

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
        if self.model.recipe.is_linear:
            rows = self.frozen.gradient
            return {"concept_head.weight": rows[:, :-1].contiguous(), "concept_head.bias": rows[:, -1].contiguous()}
        return self._timed(
            "gradient", lambda: objective_gradient(self.part, self.inputs, self.terms, self.concept_l2)
        )

    def has_curvature(self, fisher: Fisher) -> bool:
        """Whether :meth:`concept_curvature` has been fitted already."""
        return fisher in self._concept_curvature

    def concept_curvature(self, fisher: Fisher) -> EKFAC:
        """EK-FAC of J_C at the model: fitted on first use, or taken over from the model before the last edit.

        It is taken over while :attr:`staleness` stays below a limit: |A − B|/|B| between the curvatures of the two
        models, both on as many samples and with the same draws, so that only the edits differ.
        """
        if fisher not in self._concept_curvature:
            self._concept_curvature[fisher] = self._timed(
                "concept curvature", lambda: self._taken_over(fisher) or self._fit(fisher, slice(None))
            )
        return self._concept_curvature[fisher]

    def _fit(self, fisher: Fisher, rows: slice) -> EKFAC:
        from ecbm.curvature import EKFAC, ConceptLoss

        terms = self.terms
        loss = ConceptLoss(terms.targets[rows], terms.weights[rows], terms.layout)
        inputs = self.inputs
        if rows != slice(None):
            inputs = inputs[rows] if isinstance(inputs, Tensor) else inputs.subset(range(len(self.train))[rows])
        seed, l2 = self.model.recipe.seed, self.concept_l2
        part = self.part.untied
        return EKFAC.fit(part, inputs, loss, l2=l2, fisher=fisher, seed=seed, parameters=part.trained)

    def _taken_over(self, fisher: Fisher) -> EKFAC | None:
        previous = self._inherited.get(fisher)
        if previous is None:
            return None
        drift = previous.sample.drift(self._fit(fisher, slice(0, _STALENESS_SAMPLE)))
        # Staleness adds up over a chain of edits: each model is compared with the one before it.
        self.staleness[fisher] = previous.staleness + float(drift["total"])
        if self.staleness[fisher] > STALENESS_LIMIT:
            self.staleness[fisher] = 0.0
            return None
        return previous.curvature

    def label_curvature(self, fisher: Fisher) -> EKFAC:
        """EK-FAC of J_Y at the model."""
        if fisher not in self._label_curvature:
            from ecbm.curvature import EKFAC, LabelLoss

            head, loss, recipe = self.model.label_head, LabelLoss(self.train.labels), self.model.recipe
            l2 = recipe.label_regularisation
            self._label_curvature[fisher] = self._timed(
                "label curvature",
                lambda: EKFAC.fit(head, self.bottleneck, loss, l2=l2, fisher=fisher, seed=recipe.seed),
            )
        return self._label_curvature[fisher]

    # -- the next edit's state -----------------------------------------------------------------------------

    def follow(
        self, model: ConceptBottleneck, data: Dataset, facts: Facts, *, curvature: bool = True
    ) -> EditorState:
        """The state of the edited model: what the edit found out, and what of this one still holds for it.

        Nothing that holds single samples is taken along from a state with other samples. Without ``curvature``,
        EK-FAC factors are not taken along either.
        """
        other = EditorState(model, data)
        if facts.design is not None:
            other.__dict__["design"] = facts.design
        if facts.validation is not None:
            other.__dict__["validation"] = facts.validation
        other.label_value = facts.label_value
        other.maps.follow(self.maps)
        if facts.heads is not None:
            other.__dict__["frozen"], other.__dict__["basis"] = facts.heads, facts.heads.basis
        if model.concept_names == self.model.concept_names:
            # sums over all samples: these precondition and do not show one of them
            known = self.__dict__.get("label_blocks")
            other._label_preconditioner = known if known is not None else self._label_preconditioner
        if curvature and self._concept_curvature and self._shapes() == other._shapes():
            for fisher in self._concept_curvature:
                other._inherited[fisher] = self._for_successor(fisher)  # type: ignore[arg-type]
        return other

    def _shapes(self) -> tuple[tuple[str, ...], list[tuple[str, torch.Size]]]:
        return self.model.concept_names, [(name, p.shape) for name, p in self.part.named_parameters()]

    def _for_successor(self, fisher: Fisher) -> _Inherited:
        sample = self._fit(fisher, slice(0, _STALENESS_SAMPLE))
        return _Inherited(self._concept_curvature[fisher], sample, self.staleness.get(fisher, 0.0))

    def prepare(self, design: Tensor, basis: FeatureBasis | None) -> None:
        """Compute what edits start from, with what training has found out."""
        self.__dict__["design"] = design
        if basis is not None:
            self.__dict__["basis"] = basis
        self.validation  # noqa: B018
        if self.model.recipe.is_linear:
            self.frozen  # noqa: B018
        self.label_blocks  # noqa: B018
        self.label_value = self.model.provenance.training.get("label_objective")

    # -- hooks for keeping facts between processes ---------------------------------------------------------

    def stored(self) -> dict[str, Group]:
        """Facts at hand that take longer to compute than to read, in groups of named tensors."""
        known, groups = self.__dict__, dict[str, Group]()
        heads = known.get("frozen")
        if heads is not None:
            groups["heads"] = {"logits": heads.logits, "sums": heads.sums, "diagonal": heads.kept_diagonal}
            groups["heads"]["values"] = heads.values
            leading, largest = heads.leading, torch.tensor(heads.basis.largest, dtype=torch.float64)
            groups["preconditioner"] = {"vectors": heads.basis.vectors, "largest": largest}
            groups["preconditioner"] |= {"inverses": leading.inverses, "rest": leading.rest, "sizes": heads.sizes}
        elif not self.model.recipe.is_linear:
            features = {name: known[name] for name in ("design", "validation") if name in known}
            if features:
                # Features of deep backbones are float32; the heads read them in float64.
                groups["features"] = {name: value[:, :-1].float() for name, value in features.items()}
        blocks = known.get("label_blocks")
        blocks = blocks if blocks is not None else self._label_preconditioner
        if blocks is not None:
            groups["blocks"] = {"blocks": blocks}
        if self.label_value is not None:
            groups["labels"] = {"value": torch.tensor(self.label_value, dtype=torch.float64)}
        groups |= self.maps.stored()
        if self._figures:
            figures = self._figures.items()
            groups["figures"] = {name: torch.tensor(value, dtype=torch.float64) for name, value in figures}
        return groups

    def restore(self, groups: Mapping[str, Group]) -> None:
        """Take facts over that :meth:`stored` gave for this model and data.

        Raises
        ------
        ValueError
            If they do not fit; nothing is taken over then.
        """
        found: dict[str, object] = {}
        k, width, n = len(self.model.concept_names), self.model.concept_head.in_features, len(self.train)
        if "heads" in groups and "preconditioner" in groups:
            heads, kept = groups["heads"], groups["preconditioner"]
            count = kept["inverses"].shape[1]
            _expect(heads, {"logits": (k, n), "sums": (k, width + 1), "diagonal": (k, width + 1), "values": (k,)})
            _expect(kept, {"vectors": (width + 1, width + 1), "inverses": (k, count, count)})
            _expect(kept, {"rest": (k,), "sizes": (n,), "largest": ()})
            found["basis"] = basis = FeatureBasis(kept["vectors"], self.design.float(), float(kept["largest"]))
            leading = LeadingInverses(kept["vectors"][:, -count:].contiguous(), kept["inverses"], kept["rest"])
            found["frozen"] = FrozenHeads(
                self.design,
                rows_of(self.model.concept_head),
                heads["logits"],
                heads["sums"],
                self.terms,
                self.concept_l2,
                basis,
                leading,
                heads["diagonal"],
                kept["sizes"],
                heads["values"],
            )
        if "features" in groups:
            rows = {"design": n, "validation": self.data.split_sizes.get("val", n)}
            _expect(groups["features"], {name: (rows[name], width) for name in groups["features"]})
            found |= {name: with_ones(value) for name, value in groups["features"].items()}
        blocks = None
        if "blocks" in groups:
            _expect(groups["blocks"], {"blocks": (len(self.model.class_names), k + 1, k + 1)})
            blocks = groups["blocks"]["blocks"]
        if "labels" in groups:
            _expect(groups["labels"], {"value": ()})
            found["label_value"] = float(groups["labels"]["value"])
        maps = self.maps.restored(groups["maps"]) if "maps" in groups else {}
        self.__dict__.update(found)
        self.maps.kept |= maps
        self._figures |= {name: float(value) for name, value in groups.get("figures", {}).items()}
        self._label_preconditioner = blocks if blocks is not None else self._label_preconditioner


def _expect(group: Group, shapes: Mapping[str, tuple[int, ...]]) -> None:
    for name, shape in shapes.items():
        if tuple(group[name].shape) != shape:
            raise ValueError(f"{name} has shape {tuple(group[name].shape)}, expected {shape}")
