"""What the command line asks of a version, Python asks as well, with the same options and the same answers."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pandas
import pytest
from typer.testing import CliRunner

import ecbm
from ecbm.errors import InputError
from ecbm.keep.workspace import Workspace
from ecbm.show.cli import app
from kit import tabular

RECIPE = ecbm.Recipe(backbone="linear", concept_l2=1e-3)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Workspace:
    """Version 2 has one concept label turned around."""
    place = tmp_path_factory.mktemp("asked")
    data = tabular(160, 12, seed=5)
    made = Workspace.create(place / "ward", data, RECIPE)
    made.train()
    first = data.split("train").ids[0]
    value = 1 - float(data.concepts[data.row(first), 0])
    made.edit(ecbm.Edit(correct_concepts=[(first, data.concept_names[0], value)]), "exact")
    return made


def said(*arguments: object) -> dict:
    done = CliRunner().invoke(app, [*map(str, arguments), "--json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def test_influence_is_a_table_with_what_the_command_prints(workspace: Workspace) -> None:
    table = workspace.influence("val", "labels", top=4, exact=1)
    assert isinstance(table, pandas.DataFrame)
    printed = said("influence", workspace.folder, "--labels", "--top", 4, "--exact", 1)["influences"]
    assert table["change"].tolist() == [row["change"] for row in printed]
    assert table["id"].tolist() == [row["id"] for row in printed]
    assert table["actual"].iloc[0] == printed[0]["actual"]
    ids = list(workspace.data().split("train").ids[3:9])
    together = workspace.influence(together=ids, exact=1)
    printed = said("influence", workspace.folder, "--together", *ids, "--exact", 1)
    assert printed["kind"] == "together"
    assert printed["influences"] == [{"id": None, "concept": None, **together.iloc[0, 2:].to_dict()}]
    assert workspace.influence(version=1)["change"].tolist() != workspace.influence()["change"].tolist()


def test_people_see_a_set_beside_the_sum_of_its_samples(workspace: Workspace) -> None:
    ids = workspace.data().split("train").ids
    done = CliRunner().invoke(app, ["influence", str(workspace.folder), "--together", *ids[:5]])
    assert done.exit_code == 0
    for words in ("5 samples were removed together", "predicted", "sum of their own influences"):
        assert words in done.stdout
    for wrong, words in (
        (["--together", ids[0], ids[0]], "twice"),
        (["--samples", ids[0]], "ids follow --together"),
        (["--samples", "--together", ids[0]], "give one of"),
    ):
        done = CliRunner().invoke(app, ["influence", str(workspace.folder), *wrong])
        assert isinstance(done.exception, InputError), wrong
        assert words in str(done.exception)


def test_suggestions_are_those_of_the_command(workspace: Workspace) -> None:
    found = workspace.suggest(least=0.05, limit=6)
    assert len(found.to_frame()) == len(found) + len(found.rare)
    printed = said("suggest", workspace.folder, "--least", 0.05, "--limit", 6)
    assert json.loads(json.dumps(found.to_dict())) == {k: v for k, v in printed.items() if k != "version"}


def test_annotators_and_answers_may_be_files(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict = {}
    monkeypatch.setattr("ecbm.verify.suggest.suggest.suggest", lambda model, data, **options: given.update(options))
    ids, concept = workspace.data().ids, workspace.data().concept_names[0]
    people = {name: "anna" if place % 2 else "bert" for place, name in enumerate(ids)}
    (tmp_path / "who.csv").write_text("id,annotator\n" + "".join(f"{one},{who}\n" for one, who in people.items()))
    answers = tmp_path / "answers.csv"
    answers.write_text(f"id,concept,wrong\n{ids[0]},{concept},no\n")
    workspace.suggest(by=f"{tmp_path / 'who.csv'}:annotator", answers=str(answers), split="val")
    assert given["by"] == people
    assert [(one.id, one.concept, one.wrong) for one in given["answers"]] == [(ids[0], concept, False)]
    assert given["split"] == "val"
    workspace.suggest(by=people, answers=given["answers"])
    assert given["by"] == people
    with pytest.raises(InputError, match="no such table"):
        workspace.suggest(by="annotator")


def test_a_folder_around_says_nothing_about_data_that_was_not_read_from_a_table(
    workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = workspace.data().ids
    (tmp_path / "samples.csv").write_text("id,site\n" + "".join(f"{name},a\n" for name in ids))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="no such table"):
        workspace.suggest(by="site")


def test_reports_figures_and_comparisons_are_those_of_the_command(workspace: Workspace, tmp_path: Path) -> None:
    out = tmp_path / "two.html"
    found = workspace.report(2, out=out)
    assert found == ecbm.report(workspace, 2)
    assert out.read_text().startswith("<!doctype html>")
    assert json.loads(out.with_suffix(".json").read_text()) == json.loads(json.dumps(found))
    assert workspace.diff(1, 2) == said("diff", workspace.folder, 1, 2)
    test = workspace.data().split("test")
    assert workspace.evaluate() == ecbm.evaluate(workspace.model(), test)
    assert workspace.evaluate("val", version=1) != workspace.evaluate("val")


@pytest.mark.parametrize("verb", ["suggest", "influence", "verify", "report"])
def test_python_has_every_option_of_the_command(verb: str) -> None:
    """By another name: ids that follow one another, a class, files of answers, flags for kinds of influence."""
    renamed = {
        "class_name": "label", "concept": "concepts", "samples": "kind", "labels": "kind", "concepts": "kind",
        "more": "together", "budget": "options", "tail": "options",
    }  # fmt: skip
    # What is written to a file or the terminal, or is said when a workspace is opened.
    apart = {"workspace", "as_json", "device"} | (
        {"out", "confirmed"} if verb in ("suggest", "influence") else set()
    )
    command = next(one for one in app.registered_commands if one.callback and one.callback.__name__ == verb)
    assert command.callback is not None
    asked = set(inspect.signature(command.callback).parameters) - apart
    if verb == "verify":
        renamed.pop("samples")
    offered = set(inspect.signature(getattr(Workspace, verb)).parameters)
    assert {renamed.get(name, name) for name in asked} <= offered
