"""A report says what a version is to readers who did not make it, and never what an erasure has destroyed."""

from __future__ import annotations

import json
import re
import shutil

import numpy as np
import pytest
import torch

import ecbm
import number_kit
import types_kit
from ecbm.errors import InputError
from ecbm.show.report.audit import audit_from
from ecbm.show.report.content import gather
from ecbm.show.report.intervals import Bootstrap, exact_share
from ecbm.show.report.layout import page_of
from kit import pictures, tabular

LINEAR = ecbm.Recipe(backbone="linear")
NASTY = """<script>alert(1)</script> & "x" 'y' </style><img src=x onerror=alert(2)>"""
FIGURES = {"auc": 0.52, "low": 0.45, "high": 0.59}
AUDIT = {"verdict": "passed", "edit": FIGURES, "controls": {"noop": FIGURES | {"auc": 0.58}, "retrain": FIGURES}}


def made(folder, data, edit, recipe=LINEAR, **signature):
    workspace = ecbm.Workspace.create(folder, data, recipe, author="anna", reason="taken in")
    workspace.train(author="anna", reason="first")
    workspace.edit(edit, "exact", **({"author": "jonas", "reason": "second reading"} | signature))
    return workspace


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """Thirty corrected labels of pictures, two removed pictures and one class label."""
    data = pictures(80)
    ids = data.split("train").ids
    column = data.concept_index("crest=yes")
    corrections = [(i, "crest=yes", 1 - float(data.concepts[data.row(i), column])) for i in ids[:30]]
    other = data.class_names[(int(data.labels[data.row(ids[40])]) + 1) % 8]
    edit = ecbm.Edit(corrections, [(ids[40], other)], remove_samples=[ids[31], ids[32]])
    return made(tmp_path_factory.mktemp("birds") / "ward", data, edit, ecbm.Recipe(backbone="convnet", epochs=1))


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    edit = ecbm.Edit([(f"s{i}", "round", 1) for i in range(0, 50, 10)], [("s4", "crow")], remove_samples=["s11"])
    return made(tmp_path_factory.mktemp("rows") / "ward", tabular(90), edit)


def page(workspace, version=None, audit=None):
    return page_of(gather(workspace, version, audit)).html()


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html[html.index("<body>") :]))


def test_a_page_is_one_file_that_fetches_nothing_and_prints_on_a4(birds):
    html = page(birds)
    assert "<script" not in html
    assert not re.findall(r"""(?:src|href)=["'](?!data:image/|#)""", html)
    assert not re.findall(r"url\(|@import|https?://", html)
    assert "@page { size: A4" in html
    assert html.count('src="data:image/jpeg;base64,') > 20
    for heading in (
        "What was changed",
        "How good it is",
        "What was checked",
        "History",
        "What this report cannot say",
    ):
        assert f">{heading}</h2>" in html


def test_who_when_why_and_what_are_said(birds):
    found = ecbm.report(birds)
    assert found["version"] | {"time": ""} == {
        "number": 2, "parent": 1, "kind": "edit", "time": "", "author": "jonas", "reason": "second reading",
        "what": birds.version().summary["words"].replace("samples", "pictures"), "kept": True, "current": True,
    }  # fmt: skip
    assert "jonas" in found["summary"]
    assert "second reading" in found["summary"]
    shown = text_of(page(birds))
    assert found["summary"] in shown
    assert all(limit["words"].replace("'", "&#x27;") in shown for limit in found["limits"])


def test_a_bounded_number_of_changes_is_shown_and_all_of_them_are_in_the_json(birds):
    found = ecbm.report(birds)
    labels = found["changes"]["concept_labels"]
    assert len(labels) == 30
    assert {one["id"] for one in labels} == {one["id"] for one in birds.log()[0]["edit"]["correct_concepts"]}
    assert all({one["was"], one["is"]} == {"present", "absent"} for one in labels)
    assert sum(group["count"] for group in found["changes"]["groups"]) == 30
    assert re.search(r"and \d+ more", page(birds))
    assert len(found["changes"]["removed"]) == 2
    assert found["changes"]["class_labels"][0]["was"] != found["changes"]["class_labels"][0]["is"]


def test_figures_are_those_of_evaluate(rows):
    found = ecbm.report(rows)
    for split in ("val", "test"):
        measures = {row["name"]: row for row in found["figures"][split]["measures"]}
        for when, version in (("before", 1), ("after", 2)):
            right = ecbm.evaluate(rows.model(version), rows.data(2).split(split))
            assert measures["classes"][when]["value"] == pytest.approx(right["class_accuracy"], abs=1e-12)
            assert measures["all concepts"][when]["value"] == pytest.approx(right["concept_accuracy"], abs=1e-12)
            for name, figures in right["per_concept"].items():
                assert measures[name][when]["value"] == pytest.approx(figures["accuracy"], abs=1e-12)
        flips = found["predictions"][split]
        part = rows.data(2).split(split)
        old, new = (list(rows.model(version).predict(part)) for version in (1, 2))
        assert [one["id"] for one in flips["items"]] == sorted(
            [i for i, a, b in zip(part.ids, old, new, strict=True) if a != b],
            key=[one["id"] for one in flips["items"]].index,
        )
        assert flips["changed"] == sum(a != b for a, b in zip(old, new, strict=True))
        wrong = {i for row, i in enumerate(part.ids) if new[row] != part.label_of(row)}
        assert {one["id"] for one in found["mistakes"][split]} == wrong


def test_figures_of_typed_concepts_and_numbers_are_those_of_evaluate(tmp_path):
    data = number_kit.numbered()
    workspace = made(tmp_path / "w", data, number_kit.edits(data)["mix"])
    found = ecbm.report(workspace)
    measures = {row["name"]: row for row in found["figures"]["test"]["measures"]}
    right = ecbm.evaluate(workspace.model(), workspace.data().split("test"))
    assert measures["error of price"]["after"]["value"] == pytest.approx(right["mae"])
    assert measures["error of price, root mean square"]["after"]["value"] == pytest.approx(right["rmse"])
    assert measures["error of price"]["unit"] == "EUR"
    assert measures["colour"]["after"]["value"] == pytest.approx(right["per_concept"]["colour"]["accuracy"])
    assert measures["size"]["after"]["value"] == pytest.approx(right["per_concept"]["size"]["mae"])
    # a concept that the version before did not have cannot be compared
    assert measures["early"]["before"] is None
    assert found["changes"]["concepts_removed"] == ["severity"]
    root = measures["error of price, root mean square"]
    assert root["change"]["value"] == pytest.approx(right["rmse"] - root["before"]["value"])
    html = page(workspace)
    assert "EUR" in html
    assert "record" in html


@pytest.mark.parametrize("name", ["correct all types", "correct continuous", "remove ordinal", "mix"])
def test_edits_of_typed_concepts_are_reported_as_values(tmp_path, name):
    data = types_kit.mixed()
    workspace = made(tmp_path / "w", data, types_kit.edits(data)[name])
    found = ecbm.report(workspace)
    concepts = {one["concept"] for one in found["changes"]["concept_labels"]}
    assert not any("::" in concept for concept in concepts)
    assert ">Every concept</h2>" in page(workspace)


def test_every_text_of_a_user_is_escaped(tmp_path):
    data = tabular(60, concepts=(NASTY, "b", "c", "d", "e"), classes=(NASTY + "1", NASTY + "2", "z"))
    ids = [f"{NASTY}{i}" for i in range(60)]
    data = ecbm.Dataset(
        ids, data.inputs, data.concepts, data.labels, data.concept_names, data.class_names, data.splits
    )
    edit = ecbm.Edit([(ids[0], NASTY, 1), (ids[10], NASTY, 0)], [(ids[20], NASTY + "2")], remove_samples=[ids[1]])
    workspace = made(tmp_path / "w", data, edit, author=NASTY, reason=NASTY)
    html = page(workspace, audit=audit_from(AUDIT))
    assert "<script" not in html
    assert "<img src=x" not in html
    assert "</style>" not in html[html.index("</style>") + 1 :]
    assert "&lt;script&gt;" in html


def test_nothing_of_an_erased_sample_appears_in_any_report(birds, tmp_path):
    folder = tmp_path / "ward"
    shutil.copytree(birds.folder, folder)
    workspace = ecbm.Workspace(folder)
    before = ecbm.report(workspace)
    corrected, removed = before["changes"]["concept_labels"][0]["id"], before["changes"]["removed"][0]
    tested = workspace.data().split("test").ids[0]
    erased = [corrected, removed, tested]
    thumbs = {name: uri_of(before_material(birds), name) for name in erased}
    assert all(uri in page(birds) or name == tested for name, uri in thumbs.items())
    workspace.erase(erased, method="exact", reason="withdrew consent", author="anna")
    for number in range(len(workspace.log())):
        content = ecbm.report(workspace, number)
        html = page(workspace, number)
        for name in erased:
            assert name not in json.dumps(content)
            assert name not in html
            assert thumbs[name] not in html
    gone = ecbm.report(workspace, 2)
    assert gone["figures"] == {}
    assert gone["version"]["kept"] is False
    # what the same edit did to others is still known
    assert len(gone["changes"]["concept_labels"]) == 29
    assert gone["changes"]["destroyed"] > 0
    now = ecbm.report(workspace)
    assert now["erasures"][0]["samples"] == 3
    assert now["compared_with"] is None
    assert "withdrew consent" in page(workspace)
    assert now["integrity"]["ok"]


def before_material(workspace):
    return gather(workspace, None)


def uri_of(material, sample):
    from ecbm.show.page_parts import thumbnail

    return thumbnail(material.picture(sample))


def test_a_version_without_a_model_or_parent_has_a_report_too(rows):
    data_alone, first = ecbm.report(rows, 0), ecbm.report(rows, 1)
    assert data_alone["figures"] == {}
    assert first["compared_with"] is None
    assert first["predictions"]["test"] is None
    for number in (0, 1):
        assert "cannot say" in page(rows, number)


def test_the_same_workspace_gives_the_same_bytes(birds, tmp_path):
    for name in ("one", "two"):
        ecbm.report(ecbm.Workspace(birds.folder), out=tmp_path / name / "r.html")
    for suffix in (".html", ".json"):
        one, two = ((tmp_path / name / "r").with_suffix(suffix).read_bytes() for name in ("one", "two"))
        assert one == two
    assert json.loads((tmp_path / "one" / "r.json").read_text("utf-8")) == ecbm.report(birds)


def test_an_audit_is_shown_between_its_controls(rows, tmp_path):
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(AUDIT | {"samples": [{"id": "s77"}]}))
    found = ecbm.report(rows, audit=path)
    assert found["checks"]["audit"]["controls"]["noop"]["auc"] == 0.58
    # an audit may name samples; a report takes figures alone
    assert "s77" not in json.dumps(found["checks"])
    shown = text_of(page(rows, audit=found["checks"]["audit"]))
    assert "Audit: passed" in shown
    assert "Doing nothing (must be caught)" in shown
    with pytest.raises(InputError, match="audit is of version 1, the report of version 2"):
        ecbm.report(rows, audit=AUDIT | {"version": 1})
    failed = page(rows, audit=audit_from(AUDIT | {"verdict": "failed"}))
    assert "found traces" in text_of(failed)


def test_a_report_shows_the_verification_that_the_workspace_keeps(rows, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(rows.folder, copy)
    assert ecbm.report(copy)["checks"]["audit"] is None
    ecbm.Workspace(copy).verify(depth="quick")
    assert ecbm.report(copy)["checks"]["audit"]["verdict"] == "passed"
    assert ecbm.report(copy, 1)["checks"]["audit"] is None, "it is of another version"


def test_a_quick_check_is_not_taken_for_an_audit(rows):
    nothing = {"auc": None, "low": None, "high": None}
    quick = {"verdict": "passed", "edit": nothing, "controls": {"noop": nothing, "retrain": nothing}, "version": 2}
    found = ecbm.report(rows, audit=quick)
    assert "was not tried" in found["checks"]["audit"]["words"]
    assert "No audit" in [limit["title"] for limit in found["limits"]]
    shown = text_of(page(rows, audit=found["checks"]["audit"]))
    assert "Quick check: passed" in shown
    assert "could not tell" not in shown


@pytest.mark.parametrize(
    "given",
    [{}, {"verdict": "fine"}, AUDIT | {"edit": {"auc": "1", "low": 0, "high": 1}}, AUDIT | {"edit": {"auc": 7}}],
)
def test_an_audit_that_is_none_is_refused(given):
    with pytest.raises(InputError, match="audit"):
        audit_from(given)


def test_a_changed_ledger_is_told_in_the_report(rows, tmp_path):
    import sqlite3

    folder = tmp_path / "w"
    shutil.copytree(rows.folder, folder)
    with sqlite3.connect(folder / "records.sqlite") as connection:
        connection.execute(
            "UPDATE details SET content = '\"somebody else\"' WHERE part = 'author' AND sequence = 3"
        )
    found = ecbm.report(folder)
    assert not found["integrity"]["ok"]
    assert any("author" in problem for problem in found["integrity"]["problems"])
    assert "To know before you rely on it" in page(ecbm.Workspace(folder))


def test_reports_inside_a_workspace_lie_where_an_erasure_reaches_them(rows, tmp_path):
    folder = tmp_path / "w"
    shutil.copytree(rows.folder, folder)
    with pytest.raises(InputError, match="exports"):
        ecbm.report(folder, out=folder / "report.html")
    workspace = ecbm.Workspace(folder)
    ecbm.report(workspace, out=folder / "exports" / "report.html")
    assert workspace.check()["ok"]
    workspace.erase(["s0"])
    assert not (folder / "exports" / "report.html").exists()


def test_the_interval_of_a_mean_agrees_with_theory():
    draw = np.random.default_rng(1)
    right = (draw.random(2000) < 0.8).astype(float)
    found = Bootstrap(2000).mean(right)
    spread = 1.96 * np.sqrt(found["value"] * (1 - found["value"]) / 2000)
    assert found["low"] == pytest.approx(found["value"] - spread, abs=0.004)
    assert found["high"] == pytest.approx(found["value"] + spread, abs=0.004)


def test_labels_of_one_picture_are_drawn_together():
    # ten labels a picture, all right or all wrong: there is no more in them than in one
    draw = np.random.default_rng(2)
    one = (draw.random(300) < 0.7).astype(float)
    alone, together = Bootstrap(300).mean(one), Bootstrap(300).mean(np.repeat(one[:, None], 10, 1))
    assert (together["low"], together["high"]) == pytest.approx((alone["low"], alone["high"]))
    assert together["labels"] == 3000


def test_a_comparison_on_the_same_draws_takes_out_what_versions_share():
    draw = np.random.default_rng(3)
    before = (draw.random(400) < 0.6).astype(float)
    after = before.copy()
    after[np.flatnonzero(before == 0)[:20]] = 1.0
    found = Bootstrap(400).change(before, after)
    assert found["value"] == pytest.approx(0.05)
    assert found["low"] > 0.02
    assert found["high"] < 0.08
    assert Bootstrap(400).change(before, before) == {"value": 0.0, "low": 0.0, "high": 0.0}


def test_no_mistake_is_no_certainty():
    found = Bootstrap(20).mean(np.ones(20))
    assert (found["low"], found["high"]) == exact_share(20, 20)
    assert found["low"] == pytest.approx(0.025 ** (1 / 20))
    assert np.isnan(Bootstrap(5).mean(np.full(5, np.nan))["value"])


def test_large_splits_need_no_more_than_a_byte_a_draw(monkeypatch):
    monkeypatch.setattr("ecbm.show.report.intervals._READY", 10)
    small = Bootstrap(50).mean(np.arange(50.0), share=False)
    monkeypatch.undo()
    assert small == Bootstrap(50).mean(np.arange(50.0), share=False)


def test_pictures_of_any_form_become_square_thumbnails():
    from ecbm.show.page_parts import thumbnail

    grey = thumbnail(torch.rand(1, 20, 60))
    assert grey.startswith("data:image/jpeg;base64,")
    assert thumbnail(torch.zeros(3, 500, 300, dtype=torch.uint8)).startswith("data:image/jpeg")
    with pytest.raises(InputError, match="shape"):
        thumbnail(torch.zeros(4, 4))


def test_the_command_writes_page_and_json_and_prints_one_object(rows, run, machine, tmp_path):
    status, out, _ = run("report", rows.folder, "2", "--out", tmp_path / "r.html")
    assert status == 0
    assert "Version 2 was made by jonas" in out
    written = json.loads((tmp_path / "r.json").read_text("utf-8"))
    assert machine("report", rows.folder, "2") == written
    assert machine("report", rows.folder, "1", "--out", tmp_path / "only.json")["version"]["number"] == 1
    assert not (tmp_path / "only.html").exists()
    for wrong in (
        ("report", rows.folder),
        ("report", rows.folder, "--out", tmp_path / "r.pdf"),
        ("report", rows.folder, "77", "--json"),
        ("report", rows.folder, "--json", "--audit", tmp_path / "none.json"),
        ("report", tmp_path / "nowhere", "--json"),
    ):
        status, out, err = run(*wrong)
        assert (status, out, err.count("\n")) == (2, "", 1), wrong
