"""The command that audits: ``verify``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ecbm.show.cli.common import JsonOption, VersionOption, WorkspaceArgument, print_json, say
from ecbm.show.tables import print_table

__all__ = ["register"]

_NAMES = {"noop": "unedited", "edit": "edited", "retrain": "retrained"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(rich_help_panel="Keep")(verify)


def verify(
    workspace: WorkspaceArgument,
    depth: Annotated[
        str,
        typer.Option(
            help="quick (seconds), erasure (membership inference, minutes) or release (many pairs, longer)."
        ),
    ] = "quick",
    version: VersionOption = None,
    forget: Annotated[
        str | None,
        typer.Option(help="Rehearse on: random, influential, canaries or subgroup.", show_default=False),
    ] = None,
    ids: Annotated[
        list[str] | None, typer.Option("--ids", help="Rehearse on these samples.", show_default=False)
    ] = None,
    group: Annotated[
        str | None, typer.Option(help="With --forget subgroup: a class or a concept.", show_default=False)
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="How a rehearsal removes samples: auto, exact, ekfac, hessian, retrain.", show_default=False
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="For auto: a share of retraining's work.", show_default=False)
    ] = None,
    tail: Annotated[bool, typer.Option("--tail", help="For auto: train a deep backbone's last layers on.")] = False,
    samples: Annotated[
        int | None, typer.Option(help="How many samples are forgotten (200; release: 60).", show_default=False)
    ] = None,
    references: Annotated[
        int | None,
        typer.Option(help="How many reference models (32; deep backbones: 8).", show_default=False),
    ] = None,
    pairs: Annotated[
        int | None, typer.Option(help="With --depth release: how many pairs (200).", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of every lot.")] = 0,
    shard: Annotated[
        str | None,
        typer.Option(
            help="i/n: do the i-th of n shares of the training; then once without it.", show_default=False
        ),
    ] = None,
    processes: Annotated[
        int | None,
        typer.Option(
            help="How many processes share the work (the cores, where it is worth it); the result is the same.",
            show_default=False,
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Verify that an edit or an erasure worked, and that the test could have seen it if it had not.

    quick computes certificate, gradients and objectives again and compares them with the record. erasure asks
    whether samples that the version removed can still be told from such that were never there; where the version
    removed none, or they are erased for good, it rehearses its method on other samples. release does so with many
    pairs of edit and retraining. The unedited model must be caught and retraining must pass in every audit;
    otherwise the verdict is inconclusive. The exit status is 1 if the verdict is failed.
    """
    from ecbm.keep.workspace import Workspace

    options: dict[str, Any] = {} if budget is None else {"budget": budget}
    options |= {"tail": True} if tail else {}
    result = Workspace(workspace).verify(
        depth, version=version, forget=forget, ids=ids, group=group, method=method, samples=samples,
        references=references, pairs=pairs, seed=seed, shard=shard, processes=processes, **options,
    )  # fmt: skip
    if as_json:
        print_json(result)
    else:
        _show(result)
    if result["verdict"] == "failed":
        raise typer.Exit(1)


def _show(result: dict[str, Any]) -> None:
    about = result["audited"]
    what = f"rehearsal of {about['method']}" if about["what"] == "rehearsal" else str(about["what"])
    say(f"version {result['version']}, {result['depth']} ({what}): {result['verdict']}", result["why"])
    if result["depth"] == "quick":
        rows = [[check["name"], _figure(check["value"]), _figure(check["limit"])] for check in result["checks"]]
        print_table(["check", "value", "at most"], rows)
        return
    models = {"noop": result["controls"]["noop"], "edit": result["edit"], "retrain": result["controls"]["retrain"]}
    if result["edit"]["auc"] is not None:
        rows = [
            [_NAMES[name], f"{found['auc']:.3f}", f"{found['low']:.3f} to {found['high']:.3f}"]
            for name, found in models.items()
        ]
        print_table(["model", "AUC", "95 % interval"], rows, title="Removed samples against such never there")
    if result.get("retained"):
        kept = result["retained"]
        change = (
            "easier to see than before" if kept["easier_to_see_than_before"] else "no easier to see than before"
        )
        say(f"samples that stay: AUC {kept['edit']['auc']:.3f}, before {kept['noop']['auc']:.3f}: {change}")
    for signal, found in (result.get("divergence") or {}).items():
        rows = [
            [_NAMES[name], f"{found[name]['mean']:.3g}", f"{found[name]['low']:.3g} to {found[name]['high']:.3g}"]
            for name in _NAMES
        ]
        print_table(["model", "KL", "95 % interval"], rows, title=f"Divergence from never there, {signal}")
    say(f"an attacker sees {result['threat_model']['attacker_sees']}; {result['threat_model']['owner']}")
    for words in result["limits"]:
        say(f"  - {words}")


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.2g}"
