"""The concept bottleneck model: backbone → linear concept head → bottleneck → linear label head."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from ecbm import html
from ecbm.devices import device_of
from ecbm.errors import InputError, unknown_name
from ecbm.read.concept_types import ConceptLayout, concept_groups, plain_layout
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs, rows_at_once
from ecbm.read.samples import Sample
from ecbm.train.extraction import SeenInputs, seen_through
from ecbm.train.front import Front
from ecbm.train.heads.activations import activate
from ecbm.train.interventions import InterventionValue, resolve_intervention
from ecbm.train.predictions import Predicted, Probabilities
from ecbm.train.recipe import Recipe

__all__ = ["ConceptBottleneck", "Provenance", "linear_from"]

Samples = Tensor | Inputs | Dataset | Sample | np.ndarray | Sequence[Any]
"""What predictions are asked for: a batch as a tensor or array, a dataset, its inputs, or one sample of it."""


@dataclasses.dataclass(frozen=True)
class Provenance:
    """Where a model comes from: fingerprints of its data and how its training went (plain JSON values)."""

    data_fingerprint: str = ""
    training: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def linear_from(parameters: Tensor) -> nn.Linear:
    """A float64 linear layer from rows whose last column is the bias."""
    rows, columns = parameters.shape
    # Not by its own constructor: initial weights would take time and use up random numbers of the caller.
    layer = nn.Linear.__new__(nn.Linear)
    nn.Module.__init__(layer)
    layer.in_features, layer.out_features = columns - 1, rows
    # Into new memory: a slice with one row keeps odd strides through contiguous(), and bytes could not be read.
    layer.weight = nn.Parameter(torch.empty(rows, columns - 1, dtype=torch.float64).copy_(parameters[:, :-1]))
    layer.bias = nn.Parameter(torch.empty(rows, dtype=torch.float64).copy_(parameters[:, -1]))
    return layer


class ConceptBottleneck(nn.Module):
    """A trained concept bottleneck model, addressed by concept and class names.

    The heads are float64, because they are solved to gradient norms that float32 cannot represent; the backbone
    computes in its own precision.

    Parameters
    ----------
    backbone
        Module from a batch of inputs to feature rows.
    concept_head, label_head
        Linear layers: features → concept logits, bottleneck → class logits.
    concept_names, class_names
        Names of the outputs, in order.
    recipe
        The recipe it was trained with (it decides the bottleneck).
    positive_weights
        The positive weight of every concept in the objective (ones unless the recipe asks otherwise).
    low, high
        The logit that stands for "absent" and "present" when a concept is set by hand on a logit bottleneck:
        quartiles of the training logits (``stages.logit_range``). For a continuous concept, on either
        bottleneck, the standardised 0 and 1.
    provenance
        What it was trained on.
    layout
        Types of the concepts; ``None``: all binary.
    percentiles
        (continuous concepts, 99) percentiles of their training labels; ``None`` where there are none.
    front
        What happens to a picture before the backbone: preprocessing and frozen layers.
    target_scaling, target_unit
        Where the model predicts a number: mean and scale (2,) of its training labels, in whose units the label head
        speaks, and its unit. ``None``: it predicts classes.
    """

    low: Tensor
    high: Tensor
    positive_weights: Tensor
    percentiles: Tensor | None
    target_scaling: Tensor | None

    def __init__(
        self,
        backbone: nn.Module,
        concept_head: nn.Linear,
        label_head: nn.Linear,
        concept_names: Sequence[str],
        class_names: Sequence[str],
        recipe: Recipe,
        input_shape: Sequence[int],
        positive_weights: Tensor,
        low: Tensor,
        high: Tensor,
        provenance: Provenance | None = None,
        layout: ConceptLayout | None = None,
        percentiles: Tensor | None = None,
        front: Front | None = None,
        target_scaling: Tensor | None = None,
        target_unit: str = "",
    ) -> None:
        super().__init__()
        self.front = front
        self.backbone = backbone
        self.concept_head = concept_head
        self.label_head = label_head
        self.concept_names = tuple(concept_names)
        self.class_names = tuple(class_names)
        self.recipe = recipe
        self.input_shape = tuple(input_shape)
        self.register_buffer("positive_weights", positive_weights.double().clone())
        self.register_buffer("low", low.double().clone())
        self.register_buffer("high", high.double().clone())
        self.provenance = provenance or Provenance()
        self.layout = plain_layout(self.concept_names) if layout is None else layout
        self.percentiles = None
        self.put_percentiles(percentiles)
        self.target_scaling, self.target_unit = None, target_unit
        if target_scaling is not None:
            del self.target_scaling
            self.register_buffer("target_scaling", target_scaling.double().clone())
        self.eval()

    def put_percentiles(self, percentiles: Tensor | None) -> None:
        """Keep percentiles of continuous concepts; a model without any has no buffer for them."""
        if len(self.layout.squared):
            empty = torch.zeros(len(self.layout.squared), 99)
            self.__dict__.pop("percentiles", None)
            self.register_buffer("percentiles", (empty if percentiles is None else percentiles).double().clone())

    # -- names ---------------------------------------------------------------------------------------------

    @property
    def predicts_number(self) -> bool:
        """Whether the label head predicts a number and not a class."""
        return self.target_scaling is not None

    @property
    def bottleneck(self) -> str:
        """``"logits"`` or ``"probabilities"``."""
        return self.recipe.bottleneck

    @property
    def groups(self) -> dict[str, tuple[str, ...]]:
        """Concept groups, found from the names."""
        return concept_groups(self.concept_names)

    @property
    def concept_types(self) -> dict[str, str]:
        """The type of every concept: ``binary``, ``categorical``, ``ordinal`` or ``continuous``."""
        return dict(self.layout.types)

    def concept_index(self, name: str) -> int:
        """Output column of a concept."""
        try:
            return self.concept_names.index(name)
        except ValueError:
            raise unknown_name("concept", name, self.concept_names) from None

    def recipe_for(self, concept_names: Sequence[str]) -> Recipe:
        """The recipe under other concept names: positive weights given by name follow the names that are left."""
        chosen = self.recipe.pos_weight
        if not isinstance(chosen, Mapping):
            return self.recipe
        kept = {name: value for name, value in chosen.items() if name in concept_names}
        return self.recipe.replace(pos_weight=kept)

    @property
    def device(self) -> torch.device:
        return self.concept_head.weight.device

    @property
    def network_device(self) -> torch.device:
        """Where its network runs; heads are on the CPU unless they were moved."""
        frozen = self.front is not None and self.recipe.is_frozen
        return self.front.device if self.front is not None and frozen else device_of(self.backbone)

    # -- the three stages, differentiable ------------------------------------------------------------------

    def concept_logits_from(self, features: Tensor) -> Tensor:
        """Concept head on feature rows."""
        # First to the CPU, then to float64, which some accelerators do not have.
        head = self.concept_head.weight
        return cast(Tensor, self.concept_head(features.to(head.device).to(head.dtype)))

    def bottleneck_from(self, concept_logits: Tensor) -> Tensor:
        """What the label head reads."""
        return concept_logits if self.bottleneck == "logits" else activate(concept_logits, self.layout)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Concept logits and class logits of a batch."""
        seen = x if self.front is None else self.front(x)
        logits = self.concept_logits_from(self.backbone(seen.to(device_of(self.backbone))))
        return logits, self.label_head(self.bottleneck_from(logits))

    # -- predictions, in evaluation mode and without gradients ---------------------------------------------

    @property
    def seen_shape(self) -> tuple[int, ...]:
        """Shape of what the backbone reads: an input, or what the front makes of it."""
        return self.input_shape if self.front is None else self.front.shape

    def _batches(self, samples: Samples) -> Iterator[Tensor]:
        """What the backbone reads, in batches."""
        if self.front is not None and isinstance(samples, Dataset):
            samples = seen_through(self.front, samples)
        x = _inputs_of(samples)
        if isinstance(x, SeenInputs):
            for part in torch.arange(len(x)).split(rows_at_once(x.shape)):
                yield x.take(part)
            return
        for part in self._pixels(x):
            yield part if self.front is None else self.front.through(part)

    def _pixels(self, x: Tensor | Inputs) -> Iterator[Tensor]:
        shape = tuple(x.shape[1:] if isinstance(x, Tensor) else x.shape)
        if shape != self.input_shape:
            if isinstance(x, Tensor) and tuple(x.shape) == self.input_shape:
                raise InputError(
                    f"inputs: a single one of shape {self.input_shape}; one input still needs a batch: x[None]"
                )
            raise InputError(f"inputs have shape {shape}, the model expects {self.input_shape}")
        count = rows_at_once(shape)
        if isinstance(x, Tensor):
            if x.dtype == torch.uint8:
                x = x.float() / 255
            for part in x.split(count):
                yield part.float()
            return
        for start in range(0, len(x), count):
            yield x.take(range(start, min(start + count, len(x))))

    def features(self, x: Samples) -> Tensor:
        """Feature rows of all inputs."""
        self.eval()
        with torch.no_grad():
            here = device_of(self.backbone)
            parts = [self.backbone(part.to(here)).to(self.device) for part in self._batches(x)]
        return torch.cat(parts) if parts else torch.zeros(0, self.concept_head.in_features)

    def concept_logits(self, x: Samples) -> Tensor:
        """Concept logits (n, k)."""
        with torch.no_grad():
            return self.concept_logits_from(self.features(x))

    def concept_probabilities(self, x: Samples) -> Probabilities:
        """Probability of every concept (n, k), a tensor; ``.to_frame()`` is the same with names.

        Columns of a continuous concept hold its value, in its unit.
        """
        return Probabilities.of(self.concepts_from(self.concept_logits(x)), self.concept_names, _ids_of(x))

    def concepts_from(self, concept_logits: Tensor) -> Tensor:
        """Probabilities, and values of continuous concepts in their units, from concept logits."""
        values = activate(concept_logits, self.layout)
        columns = self.layout.squared
        if len(columns):
            low, high = self.low[columns], self.high[columns]
            values[:, columns] = (values[:, columns] - low) / (high - low)
        return values

    def class_probabilities(self, x: Samples) -> Probabilities:
        """Probability of every class (n, classes), a tensor; ``.to_frame()`` is the same with names."""
        if self.predicts_number:
            raise InputError(f"the model predicts a number, {self.class_names[0]!r}, and no classes; use predict")
        return Probabilities.of(self.classify(self.concept_logits(x)), self.class_names, _ids_of(x))

    def predict(self, x: Samples) -> Predicted[Any]:
        """The name of the most likely class of every input; ``.to_frame()`` gives the probabilities with names.

        Where labels are numbers, the number of every input in its unit; ``.to_frame()`` has it under its name.

        Parameters
        ----------
        x
            A batch of inputs (tensor, array or ``data.inputs``), or a dataset, whose ids then name the rows.

        Examples
        --------
        >>> import ecbm
        >>> data = ecbm.datasets.breast_cancer()
        >>> model = ecbm.train(data)
        >>> model.predict(data[["tumour-000", "tumour-019"]])
        ['malignant', 'benign']
        """
        if self.predicts_number:
            numbers = Probabilities.of(self.classify(self.concept_logits(x)), self.class_names, _ids_of(x))
            return Predicted(numbers[:, 0].tolist(), numbers)
        probabilities = self.class_probabilities(x)
        return Predicted([self.class_names[i] for i in probabilities.argmax(1).tolist()], probabilities)

    def predict_concepts(self, x: Samples) -> Predicted[tuple[str, ...]]:
        """The names of the concepts that are present (probability 0.5 or more) in every input.

        Concepts of other types are there with their values: ``colour=blue``, ``severity=2``, ``size=12.5 mm``.
        ``.to_frame()`` gives the probabilities with names. Parameters are those of :meth:`predict`.
        """
        probabilities = self.concept_probabilities(x)
        if not self.layout.plain:
            return Predicted([self.said(row) for row in probabilities.tolist()], probabilities)
        present = [
            tuple(name for name, found in zip(self.concept_names, row, strict=True) if found)
            for row in (probabilities >= 0.5).tolist()
        ]
        return Predicted(present, probabilities)

    def said(self, values: Sequence[float]) -> tuple[str, ...]:
        """One sample's concepts in words, from the values of its columns; absent binary ones are left out."""
        return self.layout.said(values)

    def classify(self, concept_logits: Tensor) -> Tensor:
        """Class probabilities from concept logits; or the number (n, 1), in its unit."""
        with torch.no_grad():
            return self.outputs_from(self.label_head(self.bottleneck_from(concept_logits)))

    def outputs_from(self, class_logits: Tensor) -> Tensor:
        """Class probabilities from what the label head gives; or the number (n, 1), in its unit."""
        if self.target_scaling is None:
            return torch.softmax(class_logits, dim=1)
        return self.target_scaling[0] + self.target_scaling[1] * class_logits

    # -- interventions -------------------------------------------------------------------------------------

    def concept_values(self, values: Tensor) -> Tensor:
        """Bottleneck values that stand for concept values 0..1 (n, k): themselves, or logits low..high.

        Values of continuous concepts are in their units and become standardised.
        """
        logits = self.low + (self.high - self.low) * values.double()
        if self.bottleneck == "logits":
            return logits
        out, columns = values.double(), self.layout.squared
        if len(columns):
            out = out.clone()
            out[:, columns] = logits[:, columns]
        return out

    def resolve_intervention(self, concepts: Mapping[str, InterventionValue], count: int) -> dict[int, Tensor]:
        """Names and groups to columns and values: ``{"wing": "blue"}`` sets a whole group."""
        return resolve_intervention(self, concepts, count)

    def intervene(self, x: Samples, concepts: Mapping[str, InterventionValue]) -> Probabilities:
        """Class probabilities (or the number, (n, 1)) after setting concepts by hand.

        Parameters
        ----------
        x
            A batch of inputs.
        concepts
            From concept names to values in 0..1 (one, or one a sample), or from a group name to one of its
            values: ``{"wing_color": "blue"}`` sets ``wing_color=blue`` to 1 and its siblings to 0. An ordinal
            concept is set to a grade (``{"severity": 2}``: thresholds up to 2 are reached), a continuous one to
            a number in its unit or a percentile of the training labels (``"p90"``).
        """
        classes = self.intervene_on_logits(self.concept_logits(x), concepts)
        return Probabilities.of(classes, self.class_names, _ids_of(x))

    def intervene_on_logits(self, concept_logits: Tensor, concepts: Mapping[str, InterventionValue]) -> Tensor:
        """:meth:`intervene` on concept logits that are at hand."""
        values = self.bottleneck_from(concept_logits).clone()
        for column, numbers in self.resolve_intervention(concepts, len(values)).items():
            filled = numbers[:, None].expand(-1, len(self.concept_names)).to(values.device)
            values[:, column] = self.concept_values(filled)[:, column]
        with torch.no_grad():
            return self.outputs_from(self.label_head(values))

    # -- as a value ----------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        size = sum(parameter.numel() for parameter in self.parameters())
        return (
            f"ConceptBottleneck({self.recipe.regime}, {self.recipe.to_dict()['backbone']} backbone, inputs "
            f"{self.input_shape} → {len(self.concept_names)} concepts in {len(self.groups)} groups → "
            f"{self.said_target}, {size:,} parameters)"
        )

    def _repr_html_(self) -> str:
        rows = [(group, ", ".join(members)) for group, members in self.groups.items()]
        what = "predicts" if self.predicts_number else "classes"
        lines = [f"{what}: {', '.join(self.class_names)}", f"fingerprint {self.fingerprint}"]
        return html.block(repr(self), lines, ("concept group", "concepts"), rows)

    @property
    def said_target(self) -> str:
        """In words, what is predicted: how many classes, or which number."""
        return f"the number {self.class_names[0]!r}" if self.predicts_number else f"{len(self.class_names)} classes"

    @property
    def fingerprint(self) -> str:
        """Hexadecimal digest of names, recipe and every parameter and buffer."""
        total = hashlib.blake2b(digest_size=20)
        total.update(repr((self.concept_names, self.class_names, sorted(self.recipe.to_dict().items()))).encode())
        if self.front is not None:
            total.update(self.front.settings.identity.encode())
        if not self.layout.plain:
            total.update(repr((self.layout.declared, self.layout.units)).encode())
        if self.predicts_number:
            total.update(repr(("number", self.target_unit)).encode())
        for name, value in sorted(self.state_dict().items()):
            total.update(f"{name}{value.dtype}{tuple(value.shape)}".encode())
            # Viewed as bytes: NumPy knows no bfloat16.
            total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
        return total.hexdigest()


def _inputs_of(x: Any) -> Tensor | Inputs:
    """Inputs as a tensor, or as something to take rows from; anything else is refused."""
    if isinstance(x, Dataset):
        return x.inputs
    if isinstance(x, Tensor) or (hasattr(x, "take") and hasattr(x, "raw")):
        return cast(Tensor | Inputs, x)
    if isinstance(x, Sample):
        return x.x[None]
    if _are_samples(x):
        return torch.stack([sample.x for sample in x])
    try:
        array = np.asarray(x)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "fiub":
        kind = type(x).__name__
        raise InputError(f"inputs: expected numbers (a tensor, an array), data.inputs or a dataset, got {kind}")
    return torch.as_tensor(array)


def _are_samples(x: Any) -> bool:
    return isinstance(x, list | tuple) and len(x) > 0 and all(isinstance(one, Sample) for one in x)


def _ids_of(x: Samples) -> tuple[str, ...] | None:
    if isinstance(x, Sample):
        return (x.id,)
    if _are_samples(x):
        return tuple(sample.id for sample in cast(Sequence[Sample], x))
    return x.ids if isinstance(x, Dataset) else None
