"""What influence is asked about: the loss of some samples, or a part of it, as a function of their logits.

    T = Σ_ij s_ij ℓ_ij(z_ij) + Σ_i s_i ℓ_i(l_i)

ℓ_ij are the concept terms of the training objective (with its positive weights) and ℓ_i the class's
cross-entropy. By default s_ij is one over the number of known concept labels and s_i one over the number of
samples: the mean loss of a concept label plus the mean loss of a class label.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from ecbm.errors import InputError, unknown_name
from ecbm.read.dataset import Dataset
from ecbm.train.heads.objectives import concept_losses, concept_residual, label_residual
from ecbm.train.model import ConceptBottleneck
from ecbm.train.terms import ConceptTerms, concept_scaling, label_targets, terms_of

__all__ = ["LOSSES", "Target", "target_of"]

LOSSES = ("all", "class", "concepts")


@dataclasses.dataclass(frozen=True, eq=False)
class Target:
    """Samples and the shares of their losses; ``words`` say it to people.

    ``split`` is the split that the samples are the whole of, or ``None``.
    """

    words: str
    data: Dataset
    terms: ConceptTerms
    labels: Tensor
    shares: Tensor
    split: str | None = None

    def value(self, logits: Tensor, outputs: Tensor) -> float:
        """T, from concept logits (m, k) and what the label head gives (m, classes)."""
        return self.value_of_concepts(logits) + float((self.shares * self.class_losses(outputs)).sum())

    def value_of_concepts(self, logits: Tensor) -> float:
        """The concepts' part of T."""
        targets, weights = self.terms.targets.double(), self.terms.weights.double()
        return float(concept_losses(logits.double(), targets, weights, self.terms.layout).sum())

    def class_losses(self, outputs: Tensor) -> Tensor:
        """ℓ_i (m,), for outputs (m, classes)."""
        if self.labels.is_floating_point():
            return 0.5 * (outputs[:, 0] - self.labels).square()
        return functional.cross_entropy(outputs, self.labels, reduction="none")

    def by_concepts(self, logits: Tensor) -> Tensor:
        """∂T/∂z (m, k), without what the label head makes of z."""
        terms = self.terms
        return concept_residual(logits.double(), terms.targets.double(), terms.weights.double(), terms.layout)

    def by_classes(self, outputs: Tensor) -> Tensor:
        """∂T/∂l (m, classes)."""
        return self.shares[:, None] * label_residual(outputs, self.labels)


def target_of(
    model: ConceptBottleneck,
    data: Dataset,
    of: str | Sequence[str] = "val",
    loss: str = "all",
    label: str | None = None,
) -> Target:
    """The target that was asked for.

    Parameters
    ----------
    model, data
        The model and the data it was trained on, all splits, as its backbone sees them.
    of
        ``"val"`` (or another split), the id of a sample of any split, or several ids.
    loss
        ``"all"``, ``"class"``, ``"concepts"``, or the name of one concept.
    label
        A class: measure −log of its probability instead of the loss against the samples' own labels.
    """
    words, part, split = _samples(data, of)
    scaling = concept_scaling(data.split("train"))
    terms = terms_of(part, model.positive_weights, scaling)
    counted, with_classes = _counted(part, loss)
    if label is not None:
        if model.predicts_number:
            raise InputError(f"label={label!r}: the model predicts a number, not classes; leave it out")
        if loss not in ("all", "class"):
            raise InputError(f"label= asks for a class, loss={loss!r} for concepts; give one of them")
        counted, with_classes = torch.zeros_like(counted), True
    # A concept of several columns counts as one label; its columns are missing together.
    first = [concept.columns[0] for concept in part.layout.concepts]
    known = int((counted * (terms.weights != 0))[:, first].sum())
    weights = terms.weights.double() * counted / max(known, 1)
    if not with_classes and not known:
        raise InputError(f"{words}: no concept label is known there, so there is no loss of concepts")
    labels = label_targets(part, model.target_scaling)
    if label is not None:
        labels = torch.full((len(part),), part.class_index(label))
        words = f"-log p({label}) of {words}"
    elif loss != "all":
        words = f"{words}, loss of {'the class' if loss == 'class' else loss}"
    shares = torch.full((len(part),), with_classes / len(part), dtype=torch.float64)
    return Target(words, part, ConceptTerms(terms.targets, weights, terms.layout), labels, shares, split)


def _samples(data: Dataset, of: str | Sequence[str]) -> tuple[str, Dataset, str | None]:
    if isinstance(of, str):
        if of in data.split_sizes:
            return of, data.split(of), of
        if of not in data.rows_by_id:
            if of in ("train", "val", "test"):
                raise InputError(f"there is no {of} split (splits: {', '.join(data.split_sizes)}); name another")
            raise unknown_name("sample id or split", of, (*data.split_sizes, *data.ids))
        return of, data.select([data.row(of)]), None
    ids = list(of)
    if not ids or not all(isinstance(one, str) for one in ids):
        raise InputError("of= takes a split, the id of a sample, or a list of at least one id")
    rows = [data.row(one) for one in ids]
    if len(set(rows)) < len(rows):
        raise InputError("of= names a sample twice; give every id once")
    return ids[0] if len(ids) == 1 else f"{len(ids)} samples", data.select(rows), None


def _counted(part: Dataset, loss: str) -> tuple[Tensor, bool]:
    """1 for the columns whose losses count, and whether the class's does."""
    columns = torch.zeros(part.layout.width, dtype=torch.float64)
    if loss in ("all", "concepts"):
        return columns + 1, loss == "all"
    if loss == "class":
        return columns, True
    concept = part.layout.by_name.get(loss)
    if concept is None and loss not in part.concept_names:
        raise unknown_name("loss", loss, (*LOSSES, *part.layout.by_name))
    columns[list(concept.columns) if concept is not None else [part.concept_index(loss)]] = 1
    return columns, False
