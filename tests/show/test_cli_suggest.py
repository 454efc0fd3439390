"""``ecbm suggest``: as a person runs it, as a machine does, and on to ``ecbm edit``."""

from __future__ import annotations

import csv
import json
import os

import pytest
import torch

import ecbm


def clear(n: int) -> ecbm.Dataset:
    """Concepts that follow from the features."""
    x = torch.randn(n, 5, generator=torch.Generator().manual_seed(3))
    concepts = (x[:, :3] + x[:, 1:4] > 0).float()
    labels = concepts[:, 1].long() + (concepts[:, 2].long() & concepts[:, 0].long())
    splits = (["train"] * 6 + ["val"] * 2 + ["test"] * 2) * (n // 10)
    names = ["striped", "crested", "round"]
    return ecbm.Dataset([f"s{row}" for row in range(n)], x, concepts, labels, names, ["a", "b", "c"], splits)


@pytest.fixture
def spoilt(tmp_path, machine):
    """A workspace of a table with a column for the annotator, some of whose labels are wrong."""
    data = clear(400)
    rows = [row for row, split in enumerate(data.splits) if split == "train"]
    concepts = data.concepts.clone()
    for column in range(3):
        some = rows[column::20]
        concepts[some, column] = 1 - concepts[some, column]
    ecbm.write_dataset(data.replace(concepts=concepts), tmp_path / "data")
    table = tmp_path / "samples.csv"
    lines = (tmp_path / "data" / "samples.csv").read_text().splitlines()
    people = ["annotator", *("anna" if row % 2 else "ben" for row in range(len(data)))]
    table.write_text("".join(f"{line},{who}\n" for line, who in zip(lines, people, strict=True)))
    os.rename(tmp_path / "data" / "features.npy", tmp_path / "features.npy")
    machine(
        "init", tmp_path / "w", "--data", table, "--features", tmp_path / "features.npy", "--ignore", "annotator"
    )
    machine("train", tmp_path / "w")
    return tmp_path / "w", {data.ids[row] for row in rows[::20]}


def test_suggestions_are_found_written_and_taken_by_edit_as_they_are(spoilt, machine, tmp_path):
    workspace, wrong = spoilt
    found = machine("suggest", workspace, "--out", tmp_path / "edit.json")
    assert set(found["suggestions"][0]) >= {"id", "concept", "value", "score", "reasons"}
    scores = [s["score"] for s in found["suggestions"]]
    assert scores == sorted(scores, reverse=True)
    assert scores[-1] >= 0.5
    named = [s for s in found["suggestions"] if s["concept"] == "striped"]
    assert sum(s["id"] in wrong for s in named) >= 0.8 * len(named) > 0
    assert machine("log", workspace)["versions"][0]["version"] == 1, "nothing is applied by itself"
    report = machine("edit", workspace, tmp_path / "edit.json", "--method", "exact")
    edit = json.loads((tmp_path / "edit.json").read_text())
    assert report["version"] == 2
    assert report["changed"]["terms"] >= len(edit["correct_concepts"]) > 0
    again = machine("suggest", workspace)
    assert {(s["id"], s["concept"]) for s in again["suggestions"]}.isdisjoint(
        (s["id"], s["concept"]) for s in named
    )


def test_a_person_sees_a_table_with_reasons(spoilt, run, tmp_path):
    workspace, _ = spoilt
    status, out, err = run("suggest", workspace, "--out", tmp_path / "e.json", "--limit", 3)
    assert (status, err) == (0, "")
    assert "Probably wrong: about" in out
    assert "without this sample the model is" in out
    assert f"ecbm edit {workspace} {tmp_path / 'e.json'}" in out


def test_answers_are_read_as_they_were_printed_and_confirmed_ones_go_into_the_edit(spoilt, machine, tmp_path):
    workspace, _ = spoilt
    first = machine("suggest", workspace, "--limit", 6, "--concept", "striped")
    for place, item in enumerate(first["suggestions"]):
        item["wrong"] = place % 2 == 0
    (tmp_path / "answers.json").write_text(json.dumps(first))
    with (tmp_path / "answers.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "concept", "wrong", "recorded"])
        for s in first["suggestions"]:
            writer.writerow([s["id"], s["concept"], "yes" if s["wrong"] else "no", s["recorded"]])
    seen = []
    for name in ("answers.json", "answers.csv"):
        options = ("--answers", tmp_path / name, "--out", tmp_path / "edit.json", "--confirmed")
        seen.append(machine("suggest", workspace, *options))
        edit = json.loads((tmp_path / "edit.json").read_text())
        confirmed = {s["id"] for s in first["suggestions"] if s["wrong"]}
        assert {item["id"] for item in edit["correct_concepts"]} == confirmed
    assert seen[0] == seen[1]
    looked = {(s["id"], s["concept"]) for s in first["suggestions"]}
    assert looked.isdisjoint((s["id"], s["concept"]) for s in seen[0]["suggestions"])


def test_annotators_come_from_the_table_that_was_read_or_from_another(spoilt, machine, run, tmp_path):
    workspace, _ = spoilt
    other = tmp_path / "who.csv"
    lines = [line.split(",") for line in (tmp_path / "samples.csv").read_text().splitlines()]
    other.write_text("person;number\n" + "".join(f"{line[-1]};{line[0]}\n" for line in lines[1:]))
    by_name = machine("suggest", workspace, "--by", "annotator")
    assert by_name == machine("suggest", workspace, "--by", f"{other}:person") == machine(
        "suggest", workspace, "--by", other
    )  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--out", "edit.csv"), "an edit file is JSON; call it edit.json"),
        (("--split", "val", "--out", "edit.json"), "edits reach training labels alone"),
        (("--split", "test"), "give 'train' or 'val'"),
        (("--confirmed",), "give both"),
        (("--concept", "stripes"), "unknown concept 'stripes'; did you mean 'striped'?"),
        (("--by", "anotator"), "unknown column 'anotator'; did you mean 'annotator'?"),
        (("--by", "nowhere.csv:annotator"), "no such table"),
        (("--answers", "nowhere.json"), "cannot be read"),
        (("--answers", "words.json"), "not JSON"),
        (("--answers", "unknown.json"), "unknown sample id 'nobody'"),
        (("--answers", "maybe.json"), "'wrong' is 'maybe'; write yes or no"),
        (("--answers", "both.csv"), "said to be wrong and to be right"),
        (("--answers", "columns.csv"), "no column 'wrong'"),
        (("--least", "2"), "--least"),
    ],
)
def test_bad_input_is_one_line_and_changes_nothing(spoilt, run, tmp_path, monkeypatch, arguments, message):
    workspace, wrong = spoilt
    monkeypatch.chdir(tmp_path)
    one = sorted(wrong)[0]
    for name, text in {
        "words.json": "wrong: yes", "unknown.json": '[{"id": "nobody", "concept": "striped", "wrong": true}]',
        "maybe.json": json.dumps([{"id": one, "concept": "striped", "wrong": "maybe"}]),
        "both.csv": f"id,concept,wrong\n{one},striped,yes\n{one},striped,no\n",
        "columns.csv": f"id,concept,bad\n{one},striped,yes\n",
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text)
    status, out, err = run("suggest", workspace, *arguments)
    assert (status, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert not (tmp_path / "edit.json").exists()
