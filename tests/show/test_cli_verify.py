"""``ecbm verify`` on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import ecbm
from ecbm.keep.workspace import Workspace
from ecbm.show.cli import app
from ecbm.show.report.audit import audit_from
from kit import python, tabular


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("verified") / "ward"
    data = tabular(300, 30, seed=5)
    workspace = Workspace.create(place, data, ecbm.Recipe(backbone="linear", concept_l2=1e-3))
    workspace.train()
    workspace.edit(ecbm.Edit(remove_samples=data.split("train").ids[:30]), "exact")
    return place


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["verify", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        return 2, str(done.exception)
    return done.exit_code, done.stdout


@pytest.mark.parametrize("depth", [(), ("--depth", "erasure", "--references", "8")])
def test_json_has_the_public_form(folder: Path, depth: tuple[str, ...]) -> None:
    status, output = run(folder, *depth, "--json")
    assert status == 0
    found = json.loads(output)
    assert found["verdict"] == "passed"
    assert {"auc", "low", "high"} <= set(found["edit"])
    assert set(found["controls"]) == {"noop", "retrain"}
    for control in found["controls"].values():
        assert {"auc", "low", "high", "caught"} <= set(control)
    assert (found["version"], audit_from(found)["verdict"]) == (2, "passed"), "a report can show it"
    if depth:
        assert found["edit"]["low"] <= found["edit"]["auc"] <= found["edit"]["high"]
        assert found["threat_model"]["attacker_sees"]


def test_people_see_the_verdict_its_reason_and_the_limits(folder: Path) -> None:
    status, output = run(folder, "--depth", "erasure", "--references", "8")
    assert status == 0
    assert "version 2, erasure (edit): passed" in output
    for words in ("unedited", "retrained", "cannot catch an owner who lies", "no proof against every other attack"):
        assert words in output
    assert "label_head is solved" in run(folder)[1]


def test_a_failed_verdict_has_exit_status_1(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Workspace.model

    def doctored(self: Workspace, number: int | str | None = None) -> ecbm.ConceptBottleneck:
        model = honest(self, number)
        model.label_head.bias.data[0] += 0.01
        return model

    monkeypatch.setattr(Workspace, "model", doctored)
    status, output = run(folder)
    assert status == 1
    assert "failed" in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--depth", "deep"), "unknown depth"),
        (("--version", "9"), "unknown version"),
        (("--version", "0"), "has no model yet"),
        (("--depth", "erasure", "--version", "1"), "removed no training samples"),
        (("--depth", "erasure", "--ids", "nobody"), "unknown sample id 'nobody'"),
        (("--depth", "erasure", "--shard", "3/2"), "a shard is i/n"),
        (("--depth", "erasure", "--group", "wren"), "for the forget set 'subgroup'"),
        (("--shard", "1/2"), "makes no test on samples"),
        (("--depth", "erasure", "--processes", "0"), "processes must be a whole number from 1 on"),
        (("--depth", "erasure", "--shard", "1/2", "--processes", "2"), "a shard is the work of one process"),
    ],
)
def test_bad_input_is_one_line(folder: Path, arguments: tuple[str, ...], words: str) -> None:
    status, output = run(folder, *arguments)
    assert status == 2
    assert words in output
    assert "\n" not in output.strip()


def test_a_folder_that_is_no_workspace_is_refused_by_the_command_itself(tmp_path: Path) -> None:
    done = python("-m", "ecbm.show.cli", "verify", tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_help_does_not_wait_for_torch() -> None:
    script = "import sys; from ecbm.show.cli import verifying; print('torch' in sys.modules)"
    assert python("-c", script).stdout.strip() == "False"
