"""``ecbm influence``: what people see, what machines get, and what is refused."""

from __future__ import annotations

import csv
import xml.etree.ElementTree as ElementTree

import pytest

import ecbm
from ecbm.show.influence_chart import bar_chart_svg, bars
from kit import tabular


@pytest.fixture(scope="module")
def ward(tmp_path_factory):
    folder = tmp_path_factory.mktemp("influence") / "ward"
    ecbm.Workspace.create(folder, tabular(60), ecbm.Recipe(backbone="linear")).train()
    return folder


@pytest.mark.parametrize(("kind", "count"), [("samples", 36), ("labels", 180), ("concepts", 5)])
def test_machines_get_every_influence_most_harmful_first(ward, machine, kind, count):
    result = machine("influence", ward, f"--{kind}")
    rows = result["influences"]
    assert result["of"] == "val"
    assert len(rows) == count
    assert all({"id", "concept", "change"} <= row.keys() for row in rows)
    changes = [row["change"] for row in rows]
    assert changes == sorted(changes)
    assert all((row["id"] is None) == (kind == "concepts") for row in rows)
    assert all((row["concept"] is None) == (kind == "samples") for row in rows)


def test_one_sample_is_a_target_and_predictions_stand_beside_what_happens(ward, machine):
    result = machine("influence", ward, "--samples", "--of", "s7", "--exact", "2", "--top", "3")
    assert result["of"] == "s7"
    assert len(result["influences"]) == 6
    first, second, third = (row["actual"] for row in result["influences"][:3])
    assert first < 0
    assert second < 0
    assert third is None


def test_people_see_a_table_with_bars(ward, run):
    status, out, err = run("influence", ward, "--labels", "--of", "s7", "--top", "2")
    assert (status, err) == (0, "")
    assert "negative: the loss falls" in out
    assert "→" in out
    assert "█" in out
    assert out.count("→") == 4
    assert "more lie between these" in out


def test_tables_and_plots_are_written(ward, run, tmp_path):
    status, _, _ = run("influence", ward, "--concepts", "--out", tmp_path / "a.csv")
    assert status == 0
    with open(tmp_path / "a.csv", newline="") as file:
        assert {row["concept"] for row in csv.DictReader(file)} == set(tabular(60).concept_names)
    assert run("influence", ward, "--concepts", "--exact", 1, "--out", tmp_path / "a.svg")[0] == 0
    drawing = ElementTree.parse(tmp_path / "a.svg").getroot()
    bar_count = len(drawing.findall("{http://www.w3.org/2000/svg}rect")) - 1  # the ground is one, too
    assert bar_count == 5
    assert "dark marks: measured" in (tmp_path / "a.svg").read_text()
    assert run("influence", ward, "--concepts", "--out", tmp_path / "a.html")[0] == 0
    assert (tmp_path / "a.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "give one of --samples, --labels, --concepts and --together"),
        (("--samples", "--labels"), "give one of --samples, --labels, --concepts and --together"),
        (("--samples", "--of", "s9999"), "unknown sample id or split 's9999'"),
        (("--samples", "--loss", "rund"), "unknown loss 'rund'; did you mean 'round'?"),
        (("--samples", "--out", "a.png"), "give a .csv, .svg or .html file"),
        (("--samples", "--method", "ekfac"), "with a frozen one 'heads' is exact"),
    ],
)
def test_bad_questions_end_with_one_line_and_status_2(ward, run, arguments, words):
    status, out, err = run("influence", ward, *arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.count("\n") == 1


def test_an_untrained_workspace_says_what_to_do(run, tmp_path):
    ecbm.Workspace.create(tmp_path / "w", tabular(40), ecbm.Recipe(backbone="linear"))
    status, _, err = run("influence", tmp_path / "w", "--samples")
    assert status == 2
    assert "ecbm train" in err


def test_names_are_text_in_a_drawing_and_nothing_to_draw_is_no_error():
    assert "<b>" not in bar_chart_svg(["<b>&"], [-1.0], "<b>")
    ElementTree.fromstring(bar_chart_svg([], [], "empty"))
    assert bars([]) == []
    assert bars([0.0, float("nan")]) == ["", ""]


def test_kept_epochs_make_the_trajectory_the_method_and_go_with_an_erasure(run, machine, tmp_path):
    recipe = ecbm.Recipe(backbone="mlp", hidden=(6,), epochs=2, patience=None)
    ecbm.Workspace.create(tmp_path / "w", tabular(60), recipe)
    assert run("train", tmp_path / "w", "--keep-epochs")[0] == 0
    kept = list((tmp_path / "w" / "cache").glob("trajectory-*/epoch-*.safetensors"))
    assert len(kept) == 2
    with_epochs = machine("influence", tmp_path / "w", "--samples")
    without = machine("influence", tmp_path / "w", "--samples", "--method", "heads")
    assert with_epochs["method"] == "trajectory"
    assert without["method"] == "heads"
    assert with_epochs["influences"] != without["influences"]
    assert "estimates" in run("influence", tmp_path / "w", "--samples")[1]
    ecbm.Workspace(tmp_path / "w").erase(["s0"])
    assert not list((tmp_path / "w").rglob("epoch-*.safetensors"))
