"""Commands that use a model: ``evaluate`` and ``predict``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ecbm.errors import InputError, unknown_name
from ecbm.show.cli.common import JsonOption, WorkspaceArgument, figure, print_json

if TYPE_CHECKING:
    from ecbm.keep.workspace import Workspace
    from ecbm.read.inputs import Inputs

__all__ = ["register"]

VersionOption = Annotated[
    str | None,
    typer.Option("--version", help="A version's number; the current one by default.", show_default=False),
]
_PICTURES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".tif", ".tiff", ".webp")


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Use")(evaluate)
    app.command(rich_help_panel="Use")(predict)


def evaluate(
    workspace: WorkspaceArgument,
    split: Annotated[str, typer.Option(help="Which samples: train, val or test.")] = "test",
    version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """How well the model predicts classes and concepts."""
    from ecbm.keep.workspace import Workspace
    from ecbm.verify.evaluate import evaluate as measure

    opened = Workspace(workspace)
    chosen = opened.version(version)
    metrics = measure(opened.model(chosen.version), opened.data(chosen.version).split(split))
    if as_json:
        print_json({"version": chosen.version, "split": split, **metrics})
        return
    table = Table("metric", "value", title=f"Version {chosen.version} on {split}", title_justify="left")
    for name, value in metrics.items():
        if isinstance(value, float):
            table.add_row(name.replace("_", " "), figure(value))
    console = Console()
    console.print(table)
    concepts = Table("concept", "accuracy", "F1", "AUC", "labels")
    for name, row in metrics["per_concept"].items():
        concepts.add_row(
            escape(name), figure(row["accuracy"]), figure(row["f1"]), figure(row["auc"]), str(row["count"])
        )
    console.print(concepts)


def predict(
    workspace: WorkspaceArgument,
    given: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            help="A picture, a folder or zip of pictures, a feature array (.npy, .npz), or a sample's id.",
            show_default=False,
        ),
    ],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="Set a concept by hand: 'wing_color=blue=1', or its group: 'wing_color=blue'."),
    ] = None,
    version: VersionOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict classes and concepts; with --set, what the class would be if a concept were different."""
    from ecbm.keep.workspace import Workspace

    opened = Workspace(workspace)
    chosen = opened.version(version)
    model = opened.model(chosen.version)
    names, inputs = _inputs(opened, chosen.version, given, model.input_shape)
    logits = model.concept_logits(inputs)
    concepts = logits.sigmoid()
    values = _settings(settings or [])
    model.resolve_intervention(values, len(logits))
    classes = model.intervene_on_logits(logits, values) if values else model.classify(logits)
    predictions: list[dict[str, Any]] = [
        {
            "id": name,
            "class": model.class_names[int(row.argmax())],
            "classes": dict(zip(model.class_names, row.tolist(), strict=True)),
            "concepts": dict(zip(model.concept_names, own.tolist(), strict=True)),
        }
        for name, row, own in zip(names, classes, concepts, strict=True)
    ]
    if as_json:
        print_json({"version": chosen.version, "set": values, "predictions": predictions})
        return
    table = Table("input", "class", "probability", "concepts present")
    for item in predictions:
        kind: dict[str, float] = item["classes"]
        found = [name for name, value in item["concepts"].items() if value >= 0.5]
        own = escape(item["class"])
        table.add_row(escape(item["id"]), own, f"{kind[item['class']]:.3f}", escape(", ".join(found)))
    Console().print(table)


def _settings(texts: list[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for text in texts:
        name, found, value = text.rpartition("=")
        if not found or not name or not value:
            raise InputError(f"--set {text!r}: write CONCEPT=VALUE, for example 'crest=1' or 'wing_color=blue'")
        try:
            values[name] = float(value)
        except ValueError:
            values[name] = value
    return values


def _inputs(opened: Workspace, version: int, given: str, shape: tuple[int, ...]) -> tuple[list[str], Inputs]:
    from ecbm.read.features import read_features
    from ecbm.read.inputs import ImageInputs, TensorInputs

    path = Path(given)
    size = (shape[1], shape[2]) if len(shape) == 3 else None
    try:
        exists = path.exists()
    except (OSError, ValueError):
        exists = False
    if not exists:
        data = opened.data(version)
        if given not in data.rows_by_id:
            if path.suffix:
                raise InputError(f"{given}: no such file, and no sample has this id")
            raise unknown_name("sample id", given, data.ids)
        return [given], data.inputs.subset([data.row(given)])
    if path.suffix.lower() in (".npy", ".npz"):
        rows = read_features(path)
        if tuple(rows.shape) == shape:
            rows = rows[None]
        elif len(shape) == 1 and tuple(rows.shape) == (shape[0], 1):
            rows = rows.T
        return [str(number) for number in range(len(rows))], TensorInputs(rows)
    if size is None:
        raise InputError(f"{given}: this model reads feature rows; give an array (.npy, .npz) or a sample's id")
    if path.is_file() and path.suffix.lower() != ".zip":
        return [path.name], ImageInputs(path.parent, [path.name], size)
    names = _pictures(path)
    if not names:
        raise InputError(f"{given}: no pictures in it ({', '.join(_PICTURES)})")
    return names, ImageInputs(path, names, size)


def _pictures(path: Path) -> list[str]:
    if path.is_dir():
        found = [str(item.relative_to(path)) for item in path.rglob("*") if item.is_file()]
    else:
        from ecbm.read.pictures import open_archive

        with open_archive(path) as archive:
            found = archive.namelist()
    return sorted(name for name in found if name.lower().endswith(_PICTURES))
