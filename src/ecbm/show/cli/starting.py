"""Commands that start: ``init``, ``train`` and ``status``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ecbm.errors import InputError, unknown_name
from ecbm.show.cli.common import (
    AuthorOption,
    ExpectOption,
    JsonOption,
    ReasonOption,
    WorkspaceArgument,
    print_json,
    say,
    signed,
)  # fmt: skip

if TYPE_CHECKING:
    from ecbm.read.dataset import Dataset
    from ecbm.train.recipe import Recipe

__all__ = ["register"]

_BUILT_IN = ("birds", "breast_cancer")

BackboneOption = Annotated[
    str | None,
    typer.Option(help="auto, linear (frozen features), mlp, convnet or resnet18.", rich_help_panel="Recipe"),
]
RegimeOption = Annotated[
    str | None, typer.Option(help="sequential, independent or joint.", rich_help_panel="Recipe")
]
BottleneckOption = Annotated[str | None, typer.Option(help="logits or probabilities.", rich_help_panel="Recipe")]
EpochsOption = Annotated[int | None, typer.Option(help="Epochs of a deep backbone.", rich_help_panel="Recipe")]
BatchOption = Annotated[int | None, typer.Option(help="Samples in a batch.", rich_help_panel="Recipe")]
RateOption = Annotated[float | None, typer.Option(help="Peak learning rate.", rich_help_panel="Recipe")]
ConceptL2Option = Annotated[float | None, typer.Option(help="L2 of the concept stage.", rich_help_panel="Recipe")]
LabelL2Option = Annotated[float | None, typer.Option(help="L2 of the label stage.", rich_help_panel="Recipe")]
SeedOption = Annotated[
    int | None, typer.Option(help="Seed of training (and of drawn birds).", rich_help_panel="Recipe")
]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Start")(init)
    app.command(rich_help_panel="Start")(train)
    app.command(rich_help_panel="Start")(status)


def _recipe(stored: dict[str, Any], given: dict[str, Any]) -> Recipe:
    from ecbm.train.recipe import Recipe

    return Recipe.from_dict(stored | {name: value for name, value in given.items() if value is not None})


def init(
    workspace: Annotated[Path, typer.Argument(help="Folder to make; must be new or empty.", show_default=False)],
    data: Annotated[
        Path | None, typer.Option(help="Table of samples (CSV, Parquet) or a dataset folder.", show_default=False)
    ] = None,
    features: Annotated[Path | None, typer.Option(help="Feature array (.npy, .npz), one row a sample.")] = None,
    images: Annotated[Path | None, typer.Option(help="Folder or zip with the pictures.")] = None,
    image_size: Annotated[int | None, typer.Option(help="Resize pictures to this height and width.")] = None,
    builtin: Annotated[str | None, typer.Option(help="Instead of --data: birds or breast_cancer.")] = None,
    samples: Annotated[int, typer.Option(help="How many birds to draw.")] = 3000,
    model: Annotated[
        Path | None, typer.Option(help="Start with a model folder that was trained on this very data.")
    ] = None,
    backbone: BackboneOption = None,
    regime: RegimeOption = None,
    bottleneck: BottleneckOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchOption = None,
    learning_rate: RateOption = None,
    concept_l2: ConceptL2Option = None,
    label_l2: LabelL2Option = None,
    seed: SeedOption = None,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    as_json: JsonOption = False,
) -> None:
    """Make a workspace: a folder that keeps the data, every version of the model, and who changed what and why.

    The data is copied into it. Train next with 'ecbm train WORKSPACE'.
    """
    from ecbm.keep.changing import adopt_model, create_workspace, shape_of
    from ecbm.keep.saving import load
    from ecbm.train.backbones import resolve_backbone

    if workspace.is_file() or (workspace.is_dir() and any(workspace.iterdir())):
        raise InputError(f"{workspace}: exists already and is not empty; give a new folder")
    given = {
        "backbone": backbone, "regime": regime, "bottleneck": bottleneck, "epochs": epochs, "seed": seed,
        "batch_size": batch_size, "learning_rate": learning_rate, "concept_l2": concept_l2, "label_l2": label_l2,
    }  # fmt: skip
    recipe = _recipe({}, given)
    adopted = load(model) if model is not None else None
    dataset, source = _read(data, features, images, image_size, builtin, samples, seed or 0)
    resolve_backbone(recipe, tuple(dataset.inputs.shape))
    signature = signed(author, reason)
    made = create_workspace(workspace, dataset, recipe, source=source, signature=signature)
    if adopted is not None:
        adopt_model(made, adopted, signature=signature)
    shape = shape_of(dataset)
    if as_json:
        print_json({"workspace": str(workspace), "version": made.head, **shape, "fingerprint": dataset.fingerprint})
        return
    say(f"made {workspace} with {dataset!r}")
    if adopted is None:
        say(f"next: ecbm train {workspace}")


def _read(
    data: Path | None,
    features: Path | None,
    images: Path | None,
    image_size: int | None,
    builtin: str | None,
    samples: int,
    seed: int,
) -> tuple[Dataset, str]:
    from ecbm.read.birds import birds
    from ecbm.read.breast_cancer import breast_cancer
    from ecbm.read.tables import read_dataset

    if (data is None) == (builtin is None):
        raise InputError("give --data PATH, or --builtin birds (or breast_cancer)")
    if data is not None:
        size = (image_size, image_size) if image_size else None
        found = read_dataset(data, features=features, images=images, image_size=size)
        paths = [str(path.resolve()) for path in (data, features, images) if path is not None]
        return found, ", ".join(paths)
    if features is not None or images is not None:
        raise InputError("--features and --images belong to --data, not to --builtin")
    if builtin == "birds":
        return birds(n=samples, seed=seed, size=image_size or 48), ""
    if builtin == "breast_cancer":
        return breast_cancer(seed), ""
    raise unknown_name("built-in dataset", builtin, _BUILT_IN)


def train(
    workspace: WorkspaceArgument,
    backbone: BackboneOption = None,
    regime: RegimeOption = None,
    bottleneck: BottleneckOption = None,
    epochs: EpochsOption = None,
    batch_size: BatchOption = None,
    learning_rate: RateOption = None,
    concept_l2: ConceptL2Option = None,
    label_l2: LabelL2Option = None,
    seed: SeedOption = None,
    reason: ReasonOption = "",
    author: AuthorOption = "",
    expect: ExpectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Train a model on the workspace's data and keep it as a new version.

    Options given here replace those given to 'ecbm init'. A training that was interrupted goes on where it stopped.
    """
    from ecbm.keep.changing import train_model
    from ecbm.keep.workspace import Workspace
    from ecbm.verify.evaluate import evaluate

    given = {
        "backbone": backbone, "regime": regime, "bottleneck": bottleneck, "epochs": epochs, "seed": seed,
        "batch_size": batch_size, "learning_rate": learning_rate, "concept_l2": concept_l2, "label_l2": label_l2,
    }  # fmt: skip
    opened = Workspace(workspace)
    recipe = _recipe(json.loads(opened.meta()["recipe"]), given)
    version = train_model(opened, recipe, signature=signed(author, reason), expected=expect)
    data, model = opened.data(version), opened.model(version)
    split = next((name for name in ("val", "test", "train") if name in data.split_sizes), "train")
    metrics = {name: value for name, value in evaluate(model, data.split(split)).items() if name != "per_concept"}
    if as_json:
        print_json({"version": version, "recipe": model.recipe.to_dict(), "split": split, "metrics": metrics})
        return
    say(
        f"version {version}: {opened.version(version).summary['words']}",
        f"on {split}: class accuracy {metrics['class_accuracy']:.3f}, "
        f"concept accuracy {metrics['concept_accuracy']:.3f}",
    )


def status(workspace: WorkspaceArgument, as_json: JsonOption = False) -> None:
    """What the workspace holds, which version is the current one, and what can be undone or redone."""
    from ecbm.keep.words import summary_words
    from ecbm.keep.workspace import Workspace

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
    table = Table(show_header=False, box=None)
    for name, value in result.items():
        if value not in (None, ""):
            shown = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else str(value)
            table.add_row(name.replace("_", " "), escape(shown))
    Console().print(table)
