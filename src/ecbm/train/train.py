"""``ecbm.train``: from a dataset and a recipe to a trained concept bottleneck model."""

from __future__ import annotations

import copy
import dataclasses
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from ecbm import parallel
from ecbm.devices import Device, mixed_precision, placed
from ecbm.errors import InputError
from ecbm.read.concept_types import ConceptLayout
from ecbm.read.dataset import Dataset
from ecbm.read.inputs import Inputs
from ecbm.train import stages
from ecbm.train.asked import explained_interrupt, recipe_of
from ecbm.train.augment import Augmentation
from ecbm.train.backbones import build_backbone, feature_width, resolve_backbone
from ecbm.train.certified import Certified
from ecbm.train.extraction import SeenInputs, extract_missing, pictures_of, seen_through
from ecbm.train.feature_rows import FeatureRows
from ecbm.train.front import Front
from ecbm.train.fronts import build_front
from ecbm.train.heads.activations import TiedLinear, activate, tie
from ecbm.train.heads.joint import solve_joint_heads
from ecbm.train.heads.objectives import rows_of, with_ones
from ecbm.train.heads.precondition import FeatureBasis
from ecbm.train.loop import Augment, LoopResult, fit
from ecbm.train.model import ConceptBottleneck, Provenance, linear_from
from ecbm.train.recipe import Recipe
from ecbm.train.release import Release
from ecbm.train.repeats import label_warnings
from ecbm.train.terms import (
    ConceptTerms,
    concept_scaling,
    label_targets,
    percentiles_of,
    positive_weights,
    target_scaling,
    terms_of,
)
from ecbm.train.trajectory import keeper

__all__ = ["Trained", "train", "train_and_tell"]


@dataclasses.dataclass(frozen=True)
class Trained:
    """A trained model, and what its training has found out that an edit would compute again: the training features
    with a column of ones, and their eigenbasis (``None`` where no convex solve needed one). ``certified`` is the
    record of its release, where the recipe promises certified removal.
    """

    model: ConceptBottleneck
    design: Tensor
    basis: FeatureBasis | None
    certified: dict[str, Any] | None = None


class _Deep(nn.Module):
    """Backbone and heads in float32, as gradient training sees them."""

    def __init__(
        self,
        backbone: nn.Module,
        width: int,
        concepts: int,
        classes: int,
        recipe: Recipe,
        layout: ConceptLayout | None = None,
    ) -> None:
        super().__init__()
        self.backbone, self.layout = backbone, layout
        tied = layout is not None and layout.tied
        self.concept_head = TiedLinear(width, concepts, layout) if layout and tied else nn.Linear(width, concepts)
        self.joint = recipe.regime == "joint"
        self.mixed = recipe.mixed_precision
        self.probabilities = recipe.bottleneck == "probabilities"
        if self.joint:
            self.label_head = nn.Linear(concepts, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        here = self.concept_head.weight.device
        with mixed_precision(here, self.mixed and self.training):
            features = self.backbone(x.to(here)).float()
        logits = self.concept_head(features)
        if not self.joint:
            return logits.cpu(), None
        classes = self.label_head(activate(logits, self.layout) if self.probabilities else logits)
        return logits.cpu(), classes.cpu()


def _batch_loss(terms: ConceptTerms, labels: Tensor, recipe: Recipe) -> Any:
    def loss(module: nn.Module, x: Tensor, rows: Tensor) -> Tensor:
        logits, classes = module(x)
        concepts = terms[rows].loss(logits)
        if classes is None:
            return concepts
        if labels.is_floating_point():
            error: Tensor = classes[:, 0] - labels[rows].float()
            return recipe.joint_weight * concepts + 0.5 * error.square().sum()
        return recipe.joint_weight * concepts + functional.cross_entropy(classes, labels[rows], reduction="sum")

    return loss


def _looked_at(inputs: Inputs, recipe: Recipe) -> tuple[Inputs, Augment | None]:
    """What epochs read and how they look at it: pictures are varied before a network's preprocessing sees them."""
    if not isinstance(recipe.augment, Mapping):
        return inputs, None
    augmentation = Augmentation(recipe.augment, recipe.seed)
    if not isinstance(inputs, SeenInputs):
        return inputs, augmentation
    front = inputs.front
    return inputs.inputs, lambda pictures, epoch, places: front.through(augmentation(pictures, epoch, places))


def _fit_deep(
    data: Dataset,
    recipe: Recipe,
    backbone: nn.Module,
    terms: ConceptTerms,
    validation_terms: ConceptTerms | None,
    checkpoint: Path | None,
    device: torch.device,
    trajectory: Path | None,
) -> tuple[_Deep, LoopResult]:
    train_data = data.split("train")
    width = feature_width(backbone, data.inputs.shape)
    deep = _Deep(backbone, width, len(data.concept_names), len(data.class_names), recipe, data.layout).to(device)
    loss, number = _batch_loss(terms, label_targets(train_data), recipe), target_scaling(train_data)
    validation = None
    if validation_terms is not None:
        val = data.split("val")
        validation = (val.inputs, _batch_loss(validation_terms, label_targets(val, number), recipe))
    alpha, beta = recipe.concept_regularisation, recipe.label_regularisation
    l2 = {"": recipe.joint_weight * alpha, "label_head": beta} if recipe.regime == "joint" else {"": alpha}
    identity = {"recipe": recipe.to_dict(), "data": data.fingerprint} if checkpoint is not None else None
    inputs, augment = _looked_at(train_data.inputs, recipe)
    result = fit(
        deep,
        inputs,
        loss,
        validation,
        l2=l2,
        epochs=recipe.epochs,
        batch_size=recipe.batch_size,
        learning_rate=recipe.peak_learning_rate,
        patience=recipe.patience,
        seed=recipe.seed,
        labels=train_data.labels if recipe.class_balanced else None,
        accumulate=recipe.accumulate,
        augment=augment,
        rates={"backbone.": recipe.backbone_rate},
        synchronise=recipe.sync_batchnorm,
        title=f"Training {'both stages' if recipe.regime == 'joint' else 'concepts'}",
        checkpoint=checkpoint,
        identity=identity,
        after_epoch=None if trajectory is None else keeper(trajectory),
    )
    return deep, result


def _checkpoint_file(given: str | Path | None) -> Path | None:
    if given is None:
        return None
    path = Path(given)
    if path.is_dir():
        raise InputError(f"{path}: is a folder; checkpoint= names a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{path}: the checkpoint cannot be written there ({error.strerror})") from None
    return path


def train(
    data: Dataset,
    recipe: Recipe | None = None,
    *,
    checkpoint: str | Path | None = None,
    start: ConceptBottleneck | None = None,
    front: Front | None = None,
    device: Device = None,
    trajectory: str | Path | None = None,
    noise: int | None = None,
    **fields: Any,
) -> ConceptBottleneck:
    """Train a concept bottleneck model on the ``train`` split, with early stopping on ``val``.

    Parameters
    ----------
    data
        A dataset with splits.
    recipe
        How to train; ``Recipe()`` chooses a backbone that fits the inputs.
    checkpoint
        File in which a deep training saves its state after every epoch and from which it resumes. A resumed
        training gives the same bytes as one that was never interrupted. Removed when training has finished.
    start
        A model to start the backbone from (warm start) instead of fresh weights.
    front
        The front of another model (``model.front``) that this one should share, with the features it has kept.
    device
        Where networks run: ``"cpu"``, ``"auto"``, ``"cuda"``, ``"mps"``. Heads are solved on the CPU in any case,
        and the model that is returned lies there.
    trajectory
        A folder in which a deep training keeps its backbone after every epoch: :func:`ecbm.influence` sees more
        with them. They hold traces of every training sample; delete the folder with the data.
    noise
        With ``Recipe(certified=...)``: the secret seed of the noise, to compute a model again; drawn by default.
    fields
        Fields of the recipe that should be different: ``train(data, epochs=3)``.

    Returns
    -------
    ConceptBottleneck
        In evaluation mode. ``model.provenance.training`` holds losses, gradient norms and seconds.

    Examples
    --------
    >>> import ecbm
    >>> model = ecbm.train(ecbm.datasets.breast_cancer(), ecbm.Recipe(backbone="linear"))
    >>> model.provenance.training["concept_gradient_norm"] < 1e-10
    True
    """
    return train_and_tell(
        data,
        recipe,
        checkpoint=checkpoint,
        start=start,
        front=front,
        device=device,
        trajectory=trajectory,
        noise=noise,
        **fields,
    ).model


def train_and_tell(
    data: Dataset,
    recipe: Recipe | None = None,
    *,
    checkpoint: str | Path | None = None,
    start: ConceptBottleneck | None = None,
    front: Front | None = None,
    keep: Callable[[Front], FeatureRows] | None = None,
    device: Device = None,
    trajectory: str | Path | None = None,
    noise: int | None = None,
    **fields: Any,
) -> Trained:
    """:func:`train`, with what it has found out on the way; ``keep`` says where features of a front are kept."""
    chosen = recipe_of(data, recipe, fields)
    with explained_interrupt(checkpoint):
        kept = None if trajectory is None else Path(trajectory)
        return _train(data, chosen, checkpoint, start, front, keep, placed(device), kept, noise)


def _front(recipe: Recipe, shape: tuple[int, ...], given: Front | None) -> tuple[Front | None, nn.Module | None]:
    """The front, and the layers behind it that are trained; a whole network that is frozen may be given."""
    if given is not None and recipe.is_frozen and tuple(shape) == given.settings.input_shape:
        return given, None
    return build_front(recipe, shape) or (None, None)


def _train(
    pictures: Dataset,
    recipe: Recipe,
    checkpoint: str | Path | None,
    start: ConceptBottleneck | None,
    front: Front | None,
    keep: Callable[[Front], FeatureRows] | None,
    device: torch.device,
    trajectory: Path | None,
    noise: int | None,
) -> Trained:
    parallel.join_group()
    started = time.monotonic()
    pictures = pictures_of(pictures)
    shape = tuple(pictures.inputs.shape)
    recipe = resolve_backbone(recipe, shape)
    stages.check_trainable(pictures, recipe)
    release = _release(recipe, noise)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        front, tail = _front(recipe, shape, front)
    data = seen_through(front, pictures)
    log: dict[str, Any] = {}
    if front is not None:
        front.device = device
    if front is not None and front.keeps:
        front.rows = keep(front) if keep is not None else front.rows
        extract_missing(data)
        log["extraction_seconds"] = time.monotonic() - started
    train_data = data.split("train")
    positive, scaling = positive_weights(train_data, recipe), concept_scaling(train_data)
    terms, labels = terms_of(train_data, positive, scaling), label_targets(train_data)
    alpha, beta, tolerance = recipe.concept_regularisation, recipe.label_regularisation, recipe.head_tolerance
    joint, deep_stage = recipe.regime == "joint", not recipe.is_linear
    path = _checkpoint_file(checkpoint) if deep_stage else None
    noticed = label_warnings(train_data)
    if noticed:
        log["warnings"] = noticed
    for text in noticed:
        warnings.warn(text, stacklevel=4)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        statistics = None
        if recipe.is_linear or recipe.backbone == "mlp":
            # Features of a network are read for this and not held: with many pictures they are most of the memory.
            held = not isinstance(train_data.inputs, SeenInputs)
            statistics = train_data.x if held else train_data.inputs.take(range(len(train_data)))
        backbone = tail or build_backbone(recipe, tuple(data.inputs.shape), statistics)
        del statistics
        if start is not None:
            backbone = copy.deepcopy(start.backbone)
        concept_head: nn.Linear | None = None
        label_start: Tensor | None = None
        if deep_stage:
            validation = None
            if recipe.patience is not None and "val" in data.split_sizes:
                validation = terms_of(data.split("val"), positive, scaling)
            deep, result = _fit_deep(data, recipe, backbone, terms, validation, path, device, trajectory)
            backbone, concept_head = deep.backbone, deep.concept_head
            if joint:
                label_start = rows_of(deep.label_head).cpu()
            log |= {"epochs": result.epochs, "best_epoch": result.best_epoch, "deep_seconds": result.seconds}
    design = stages.feature_design(backbone, train_data.inputs)
    backbone = backbone.cpu()
    concept_start, basis = None, None
    if concept_head is not None:
        concept_start = rows_of(concept_head).cpu()
    if concept_head is None or (recipe.resolve_concept_head and not joint):
        basis = FeatureBasis.of(design)
        solved = stages.fit_concept_head(design, terms, alpha, tolerance, concept_start, basis)
        concept_head = linear_from(solved.parameters)
        concept_start = solved.parameters
        log |= {
            "concept_gradient_norm": solved.gradient_norm,
            "concept_objective": solved.objective,
            "concept_work": solved.work + basis.work,
        }
    if joint and concept_start is not None and (recipe.resolve_concept_head or recipe.is_linear):
        both = solve_joint_heads(design, terms, labels, recipe, concept_start, label_start)
        parallel.broadcast(both.concept)
        concept_head = linear_from(both.concept)
        log |= {"joint_gradient_norm": both.gradient_norm, "joint_objective": both.objective}
    concept_head = concept_head.cpu().double()
    if data.layout.tied:
        concept_head = linear_from(tie(rows_of(concept_head), data.layout))
    if release is not None:
        concept_rows = release.concept_head(design, terms, rows_of(concept_head), alpha)
        # Processes of one training have drawn noise of their own; the first one's is everybody's.
        parallel.broadcast(concept_rows)
        concept_head = linear_from(concept_rows)
    with torch.no_grad():
        logits = concept_head(design[:, :-1])
    low, high = stages.logit_range(logits, train_data.concepts, data.layout)
    read = with_ones(stages.label_inputs(recipe, logits, train_data.concepts, low, high, data.layout))
    classes, l1 = len(data.class_names), recipe.label_l1 or 0.0
    label = stages.fit_label_head(read, labels, classes, beta, tolerance, None, l1)
    log |= {
        "label_gradient_norm": label.gradient_norm,
        "label_objective": label.objective,
        "label_work": label.work,
        "head_tolerance": tolerance,
        "seconds": time.monotonic() - started,
    }
    label_rows = label.parameters
    if release is not None:
        label_rows = release.label_head(read, labels, label_rows, beta)
        parallel.broadcast(label_rows)
        # What is released says nothing about the heads before the noise; that is what the noise is for.
        log = {name: value for name, value in log.items() if not name.endswith(("gradient_norm", "objective"))}
        log["certified"] = {"epsilon": release.promise.epsilon, "delta": release.promise.delta}
    if path is not None and parallel.rank() == 0:
        path.unlink(missing_ok=True)
    model = ConceptBottleneck(
        backbone,
        concept_head,
        linear_from(label_rows),
        data.concept_names,
        data.class_names,
        recipe,
        shape,
        positive,
        low,
        high,
        Provenance(data.fingerprint, log),
        data.layout,
        percentiles_of(train_data),
        front,
        target_scaling(train_data),
        data.target_unit,
    )
    return Trained(model, design, basis, None if release is None else release.record())


def _release(recipe: Recipe, noise: int | None) -> Release | None:
    """The noise of a certified release, if the recipe asks for one."""
    if recipe.certified is None:
        return None
    if not recipe.is_linear:
        raise InputError(
            "certified= needs features that training does not change: backbone='linear' or a frozen network"
        )
    return Release(Certified(**recipe.certified), noise)
