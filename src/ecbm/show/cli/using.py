"""Commands that use a model: ``evaluate`` and ``predict``."""

from __future__ import annotations

from typing import Annotated

import typer

from ecbm.show.cli.common import DeviceOption, JsonOption, VersionOption, WorkspaceArgument, figure, print_json
from ecbm.show.cli.predicting import predict
from ecbm.show.tables import print_table

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the commands."""
    app.command(rich_help_panel="Use")(evaluate)
    app.command(rich_help_panel="Use")(predict)


def evaluate(
    workspace: WorkspaceArgument,
    split: Annotated[str, typer.Option(help="Which samples: train, val or test.")] = "test",
    version: VersionOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """How well the model predicts classes and concepts."""
    from ecbm.keep.workspace import Workspace
    from ecbm.verify.evaluate import evaluate as measure

    opened = Workspace(workspace, device=device)
    chosen = opened.version(version)
    metrics = measure(opened.model(chosen.version), opened.data(chosen.version).split(split))
    if as_json:
        print_json({"version": chosen.version, "split": split, **metrics})
        return
    rows = [[name.replace("_", " "), figure(value)] for name, value in metrics.items() if isinstance(value, float)]
    print_table(["metric", "value"], rows, title=f"Version {chosen.version} on {split}")
    if "concepts_per_class" in metrics:
        read = [[name, str(count)] for name, count in metrics["concepts_per_class"].items()]
        print_table(["class", "concepts it reads"], read)
    rows = [
        [name, figure(row["accuracy"]), figure(row["f1"]), figure(row["auc"]), str(row["count"])]
        for name, row in metrics["per_concept"].items()
        if "rmse" not in row
    ]
    if rows:
        print_table(["concept", "accuracy", "F1", "AUC", "labels"], rows, drop=("labels", "AUC", "F1"))
    graded = [
        [name, figure(row["grade_error"])] for name, row in metrics["per_concept"].items() if "grade_error" in row
    ]
    if graded:
        print_table(["graded concept", "mean error in grades"], graded)
    measured = [
        [name, figure(row["r2"]), f"{row['rmse']:.4g} {row['unit']}".strip(), str(row["count"])]
        for name, row in metrics["per_concept"].items()
        if "rmse" in row
    ]
    if measured:
        print_table(["measured concept", "R²", "error (RMSE)", "labels"], measured, drop=("labels",))
