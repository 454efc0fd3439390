"""Commands that start: ``init``, ``train`` and ``status``."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ecbm.errors import InputError, unknown_name
from ecbm.show.cli import reading
from ecbm.show.cli.common import (
    AuthorOption,
    DeviceOption,
    ExpectOption,
    Interrupted,
    JsonOption,
    ReasonOption,
    WorkspaceArgument,
    print_json,
    say,
)  # fmt: skip
from ecbm.words import local_time, readable_size

if TYPE_CHECKING:
    from ecbm.read.reading import Reading

__all__ = ["register"]

_BUILT_IN = ("birds", "breast_cancer")
_FREE = "Concepts without labels"

BackboneOption = Annotated[
    str | None,
    typer.Option(
        help="auto (linear for features, convnet for pictures), linear (frozen), mlp, convnet, resnet18; for "
        "pictures also pretrained, timm:NAME, torchvision:NAME, onnx:FILE or package.module:factory.",
        rich_help_panel="Recipe",
    ),
]
WeightsOption = Annotated[
    str | None,
    typer.Option(
        help="Weights of a network by name: a file, a package with weights, or pretrained (downloaded).",
        rich_help_panel="Recipe",
    ),
]
FrozenOption = Annotated[
    str | None,
    typer.Option(
        help="yes: leave the network as it is, so that every edit is exact (the default with pretrained weights); "
        "no; or until:LAYER, to train what lies behind a layer.",
        rich_help_panel="Recipe",
    ),
]
LayerOption = Annotated[
    str | None,
    typer.Option(help="Layer of a frozen network to take features from; several: A+B.", rich_help_panel="Recipe"),
]
InputSizeOption = Annotated[
    int | None,
    typer.Option(help="Height and width that a network by name sees, in pixels.", rich_help_panel="Recipe"),
]
RegimeOption = Annotated[
    str | None, typer.Option(help="sequential (default), independent or joint.", rich_help_panel="Recipe")
]
BottleneckOption = Annotated[
    str | None, typer.Option(help="logits (default) or probabilities.", rich_help_panel="Recipe")
]
EpochsOption = Annotated[
    int | None, typer.Option(help="Epochs of a deep backbone; 20 by default.", rich_help_panel="Recipe")
]
BatchOption = Annotated[
    int | None, typer.Option(help="Samples in a batch; 64 by default.", rich_help_panel="Recipe")
]
RateOption = Annotated[
    float | None,
    typer.Option(help="Peak learning rate; by default 0.01 for convnet, else 0.001.", rich_help_panel="Recipe"),
]
AugmentOption = Annotated[
    str | None,
    typer.Option(
        help="How pictures are varied in training: none (default), or some of flip, vertical_flip, crop, zoom, "
        "colour with commas between them; with a strength: crop=0.1.",
        rich_help_panel="Recipe",
    ),
]
BalancedOption = Annotated[
    bool | None,
    typer.Option(
        "--class-balanced/--no-class-balanced",
        help="Whether every class comes up equally often in training.",
        rich_help_panel="Recipe",
        show_default=False,
    ),
]
AccumulateOption = Annotated[
    int | None, typer.Option(help="Batches that make one step; 1 by default.", rich_help_panel="Recipe")
]
BackboneRateOption = Annotated[
    float | None,
    typer.Option(
        help="Learning rate of the backbone as a share of the heads'; 1 by default.", rich_help_panel="Recipe"
    ),
]
SyncBatchnormOption = Annotated[
    bool | None,
    typer.Option(
        "--sync-batchnorm/--no-sync-batchnorm",
        help="Under torchrun: BatchNorm over the whole batch instead of each process's share.",
        rich_help_panel="Recipe",
        show_default=False,
    ),
]
ConceptL2Option = Annotated[float | None, typer.Option(help="L2 of the concept stage.", rich_help_panel="Recipe")]
LabelL2Option = Annotated[float | None, typer.Option(help="L2 of the label stage.", rich_help_panel="Recipe")]
LabelL1Option = Annotated[
    float | None,
    typer.Option(help="L1 of the label stage: each class reads few concepts.", rich_help_panel="Recipe"),
]
EpsilonOption = Annotated[
    float | None,
    typer.Option(
        help="Certified removal, for frozen features: ε of the (ε, δ) promise (docs/certified.md).",
        rich_help_panel="Recipe",
    ),
]
DeltaOption = Annotated[
    float | None, typer.Option(help="δ of certified removal. Default: 1e-5.", rich_help_panel="Recipe")
]
SeedOption = Annotated[
    int | None, typer.Option(help="Seed of training (and of drawn birds).", rich_help_panel="Recipe")
]
ImageEmbeddingsOption = Annotated[
    Path | None,
    typer.Option(help="Embeddings of the pictures (.npy), for concepts without labels.", rich_help_panel=_FREE),
]
ConceptEmbeddingsOption = Annotated[
    Path | None,
    typer.Option(help="Embeddings of the concepts' texts (.npy), from the same model.", rich_help_panel=_FREE),
]
ConceptsOption = Annotated[
    Path | None,
    typer.Option(
        help="Names of the concepts, one a line, in the order of their embeddings.", rich_help_panel=_FREE
    ),
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Start")(init)
    app.command(rich_help_panel="Start")(train)
    app.command(rich_help_panel="Start")(status)


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _certified(epsilon: float | None, delta: float | None) -> dict[str, float] | None:
    if epsilon is None and delta is not None:
        raise InputError("--delta belongs to certified removal; give --epsilon too")
    return None if epsilon is None else {"epsilon": epsilon, "delta": 1e-5 if delta is None else delta}


def _frozen(text: str | None) -> bool | str | None:
    return {"yes": True, "true": True, "no": False, "false": False}.get(text.lower(), text) if text else None


def init(
    workspace: Annotated[
        Path, typer.Argument(metavar="WORKSPACE", help="Folder to make; must be new or empty.", show_default=False)
    ],
    data: Annotated[
        Path | None,
        typer.Option(help="Table of samples (CSV, Excel, Parquet) or a dataset folder.", show_default=False),
    ] = None,
    features: reading.FeaturesOption = None,
    images: reading.ImagesOption = None,
    image_size: reading.ImageSizeOption = None,
    builtin: Annotated[str | None, typer.Option(help="Instead of --data: birds or breast_cancer.")] = None,
    samples: Annotated[int, typer.Option(help="How many birds to draw.")] = 3000,
    model: Annotated[
        Path | None, typer.Option(help="Start with a model folder that was trained on this very data.")
    ] = None,
    types: reading.TypeOption = None,
    id_column: reading.IdColumnOption = "id",
    label_column: reading.LabelColumnOption = "label",
    split_column: reading.SplitColumnOption = "split",
    image_column: reading.ImageColumnOption = "image",
    ignore: reading.IgnoreOption = None,
    splits: reading.SplitsOption = None,
    missing: reading.MissingOption = None,
    encoding: reading.EncodingOption = None,
    delimiter: reading.DelimiterOption = None,
    decimal: reading.DecimalOption = None,
    sheet: reading.SheetOption = None,
    image_embeddings: ImageEmbeddingsOption = None,
    concept_embeddings: ConceptEmbeddingsOption = None,
    concepts: ConceptsOption = None,
    backbone: BackboneOption = None,
    weights: WeightsOption = None,
    frozen: FrozenOption = None,
    layer: LayerOption = None,
    input_size: InputSizeOption = None,
    regime: RegimeOption = None,
    bottleneck: BottleneckOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchOption = None,
    learning_rate: RateOption = None,
    backbone_rate: BackboneRateOption = None,
    accumulate: AccumulateOption = None,
    augment: AugmentOption = None,
    class_balanced: BalancedOption = None,
    sync_batchnorm: SyncBatchnormOption = None,
    concept_l2: ConceptL2Option = None,
    label_l2: LabelL2Option = None,
    label_l1: LabelL1Option = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    seed: SeedOption = None,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a workspace: a folder that keeps the data, every version of the model, and who changed what and why.

    The data is copied into it. Train next with 'ecbm train WORKSPACE'.
    """
    from ecbm.keep.saving import load
    from ecbm.keep.workspace import Workspace
    from ecbm.train.recipe import Recipe

    if workspace.is_file() or (workspace.is_dir() and any(workspace.iterdir())):
        raise InputError(f"{workspace}: exists already and is not empty; give a new folder")
    given = {
        "backbone": backbone, "regime": regime, "bottleneck": bottleneck, "epochs": epochs, "seed": seed,
        "backbone_rate": backbone_rate, "accumulate": accumulate, "augment": augment,
        "class_balanced": class_balanced, "sync_batchnorm": sync_batchnorm,
        "batch_size": batch_size, "learning_rate": learning_rate, "concept_l2": concept_l2, "label_l2": label_l2,
        "label_l1": label_l1, "certified": _certified(epsilon, delta),
        "weights": weights, "frozen": _frozen(frozen), "layer": layer,
        "preprocessing": None if input_size is None else {"size": input_size},
    }  # fmt: skip
    recipe = Recipe(**_given(given))
    adopted = load(model) if model is not None else None
    table = {
        "features": features, "images": images, "image_size": image_size, "types": types, "id_column": id_column,
        "label_column": label_column, "split_column": split_column, "image_column": image_column, "ignore": ignore,
        "splits": splits, "missing": missing, "encoding": encoding, "delimiter": delimiter, "decimal": decimal,
        "sheet": sheet,
    }  # fmt: skip
    embeddings = (image_embeddings, concept_embeddings, concepts)
    found, source = _read(data, table, embeddings, builtin, samples, seed or 0)
    dataset = found.data
    made = Workspace.create(workspace, dataset, recipe, model=adopted, source=source, reason=reason, author=author)
    if as_json:
        shape = made.version().summary["shape"]
        print_json(
            {
                "workspace": str(workspace),
                "version": made.head,
                **shape,
                "fingerprint": dataset.fingerprint,
                **reading.told(found),
            }
        )
        return
    reading.show_reading(found)
    say(f"made {workspace} with {dataset!r}")
    if adopted is None:
        say(f"next: ecbm train {workspace}")


def _read(
    data: Path | None,
    table: dict[str, Any],
    embeddings: tuple[Path | None, Path | None, Path | None],
    builtin: str | None,
    samples: int,
    seed: int,
) -> tuple[Reading, str]:
    """The dataset that the options describe, what was understood, and where it came from."""
    from ecbm.read.birds import birds
    from ecbm.read.breast_cancer import breast_cancer
    from ecbm.read.reading import Reading, read_and_tell

    features, images = table["features"], table["images"]
    if any(embeddings):
        return _label_free(data, table, embeddings, builtin)
    if (data is None) == (builtin is None):
        raise InputError("give --data PATH, or --builtin birds (or breast_cancer)")
    if data is not None:
        found = read_and_tell(data, reading.asked_on_command_line(**table))
        given = reading.feature_source(features)
        paths = [data, *([given] if isinstance(given, Path) else []), *([images] if images is not None else [])]
        return found, ", ".join(str(path.resolve()) for path in paths)
    if features or images is not None:
        raise InputError("--features and --images belong to --data, not to --builtin")
    if builtin == "birds":
        return Reading(birds(n=samples, seed=seed, size=table["image_size"] or 48)), ""
    if builtin == "breast_cancer":
        return Reading(breast_cancer(seed)), ""
    raise unknown_name("built-in dataset", builtin, _BUILT_IN)


def _label_free(
    data: Path | None,
    table: dict[str, Any],
    embeddings: tuple[Path | None, Path | None, Path | None],
    builtin: str | None,
) -> tuple[Reading, str]:
    from ecbm.read.label_free import concept_names_in, label_free_and_tell
    from ecbm.read.reading import Reading, read_labels

    images, texts, names = embeddings
    if images is None or texts is None or names is None:
        raise InputError("concepts without labels need --image-embeddings, --concept-embeddings and --concepts")
    if builtin is not None or table["features"] or table["images"] is not None:
        raise InputError(
            "--image-embeddings are the inputs; leave out --builtin, --features and --images, and give the "
            "classes by --data TABLE"
        )
    concepts = concept_names_in(names)
    paths = ", ".join(str(path.resolve()) for path in (*([data] if data is not None else []), *embeddings) if path)
    if data is None:
        found = label_free_and_tell(images, texts, concepts)
        told = "no classes: every sample is 'unlabelled'; give a table with them by --data"
        return Reading(found.data, (), (*found.remarks, told)), paths
    rows = read_labels(data, reading.asked_on_command_line(**table), concepts)
    found = label_free_and_tell(
        images, texts, concepts, rows.labels, ids=rows.ids, splits=rows.splits, known=rows.known
    )
    return Reading(found.data, rows.columns, (*rows.remarks, *found.remarks)), paths


def train(
    workspace: WorkspaceArgument,
    backbone: BackboneOption = None,
    weights: WeightsOption = None,
    frozen: FrozenOption = None,
    layer: LayerOption = None,
    input_size: InputSizeOption = None,
    regime: RegimeOption = None,
    bottleneck: BottleneckOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchOption = None,
    learning_rate: RateOption = None,
    backbone_rate: BackboneRateOption = None,
    accumulate: AccumulateOption = None,
    augment: AugmentOption = None,
    class_balanced: BalancedOption = None,
    sync_batchnorm: SyncBatchnormOption = None,
    concept_l2: ConceptL2Option = None,
    label_l2: LabelL2Option = None,
    label_l1: LabelL1Option = None,
    epsilon: EpsilonOption = None,
    delta: DeltaOption = None,
    seed: SeedOption = None,
    keep_epochs: Annotated[
        bool,
        typer.Option(
            "--keep-epochs", help="Keep the backbone of every epoch: 'ecbm influence' sees more with them."
        ),
    ] = False,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on the workspace's data and keep it as a new version.

    Options given here replace those given to 'ecbm init'. A training that was interrupted goes on where it stopped.
    """
    from ecbm import parallel
    from ecbm.keep.workspace import Workspace
    from ecbm.train.asked import TrainingInterrupted
    from ecbm.verify.evaluate import evaluate

    given = {
        "backbone": backbone, "regime": regime, "bottleneck": bottleneck, "epochs": epochs, "seed": seed,
        "backbone_rate": backbone_rate, "accumulate": accumulate, "augment": augment,
        "class_balanced": class_balanced, "sync_batchnorm": sync_batchnorm,
        "batch_size": batch_size, "learning_rate": learning_rate, "concept_l2": concept_l2, "label_l2": label_l2,
        "label_l1": label_l1, "certified": _certified(epsilon, delta),
        "weights": weights, "frozen": _frozen(frozen), "layer": layer,
        "preprocessing": None if input_size is None else {"size": input_size},
    }  # fmt: skip
    opened = Workspace(workspace, device=device)
    if backbone is None:
        opened.check_trusted(opened.recipe)
    recipe = opened.recipe.replace(**_given(given))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said below, in one line each
            version = opened.train(recipe, keep_epochs=keep_epochs, reason=reason, author=author, expect=expect)
    except TrainingInterrupted as stop:
        raise Interrupted(stop.words(f"'ecbm train {workspace}' with the same options")) from None
    if parallel.rank() != 0:  # of several processes under torchrun the first one speaks
        return
    data, model = opened.data(version), opened.model(version)
    split = next((name for name in ("val", "test", "train") if name in data.split_sizes), "train")
    metrics = {name: value for name, value in evaluate(model, data.split(split)).items() if name != "per_concept"}
    noticed = model.provenance.training.get("warnings", [])
    if as_json:
        result = {"version": version, "recipe": model.recipe.to_dict(), "split": split, "metrics": metrics}
        print_json(result | ({"warnings": noticed} if noticed else {}))
        return
    say(
        f"version {version}: {opened.version(version).summary['words']}",
        f"on {split}: {_label_figures(metrics)}, concept accuracy {metrics['concept_accuracy']:.3f}",
        *(f"warning: {text}" for text in noticed),
    )


def _label_figures(metrics: dict[str, Any]) -> str:
    if "rmse" in metrics:
        return f"error (RMSE) {metrics['rmse']:.4g}, R² {metrics['r2']:.3f}"
    return f"class accuracy {metrics['class_accuracy']:.3f}"


def status(workspace: WorkspaceArgument, as_json: JsonOption = False) -> None:
    """What the workspace holds, which version is the current one, and what can be undone or redone."""
    from ecbm.keep.workspace import Workspace
    from ecbm.words import summary_words

    opened = Workspace(workspace)
    version, counts = opened.version(), opened.counts()
    author = opened.described([version], most_items=4)[0]
    undoable = (
        version.kind != "erase" and version.parent is not None and opened.version(version.parent).model is not None
    )
    result: dict[str, Any] = {
        "workspace": str(workspace),
        "version": version.version,
        "kind": version.kind,
        "time": version.time,
        "author": author["author"],
        "reason": author["reason"],
        "trained": version.model is not None,
        "summary": summary_words(version.summary),
        **version.summary.get("shape", {}),
        "can_undo": undoable,
        "can_redo": counts.pop("redo") > 0,
        **counts,
        "ledger_hash": opened.ledger_hash(),
    }
    if as_json:
        print_json(result)
        return
    # Lines, not a table: the ledger's hash must be there whole, to be kept elsewhere.
    size = readable_size(result.pop("bytes"))
    shown = result | {"time": local_time(version.time), "size": size}
    for name in ("splits", "input_shape", "can_undo", "can_redo", "trained"):
        if name in shown:
            shown[name] = _words(shown[name])
    width = max(map(len, shown)) + 2
    say(*(f"{name.replace('_', ' '):<{width}}{value}" for name, value in shown.items() if value not in (None, "")))


def _words(value: Any) -> str:
    if isinstance(value, dict):  # the splits, which JSON has in the order of the alphabet
        return ", ".join(f"{name} {value[name]:,}" for name in ("train", "val", "test") if name in value)
    if isinstance(value, list):
        return " × ".join(map(str, value))
    return "yes" if value else "no"
