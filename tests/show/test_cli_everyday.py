"""What makes the command line pleasant: it says what changed, asks before it destroys, fits the terminal."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command

import ecbm
from ecbm.keep.workspace import Workspace
from ecbm.show.cli import app
from kit import tabular


def corrections(path, data, rows) -> None:
    """A table that gives every concept of some samples the value it has."""
    lines = [f"{s.id},{name},{value:g}" for s in data[rows] for name, value in s.concepts.items()]
    path.write_text("\n".join(["id,concept,value", *lines]) + "\n")


# -- edits -------------------------------------------------------------------------------------------------


def test_an_edit_that_changes_nothing_makes_no_version(workspace, files, run, machine):
    corrections(files / "same.csv", Workspace(workspace).data(), range(30))
    before = Workspace(workspace).counts()
    status, out, err = run("edit", workspace, files / "same.csv")
    assert (status, err) == (0, "")
    assert out == "150 of 150 labels already have these values: nothing to do; version 1 stays the current one\n"
    report = machine("edit", workspace, files / "same.csv")
    assert (report["version"], report["changed"]["terms"]) == (1, 0)
    assert Workspace(workspace).counts() == before


def test_an_edit_applied_twice_is_recorded_once(workspace, files, run):
    data = Workspace(workspace).data()
    flips = [f"{s.id},round,{1 - s.concepts['round']:g}" for s in data.split("train")[:5]]
    same = [f"{s.id},round,{s.concepts['round']:g}" for s in data.split("train")[5:8]]
    (files / "edit.csv").write_text("\n".join(["id,concept,value", *flips, *same]) + "\n")
    _, out, _ = run("edit", workspace, files / "edit.csv")
    assert "version 2: corrected 5 concept labels of 5 samples" in out
    assert "note: 3 of 8 labels already have these values" in out
    assert "8 of 8 labels already have these values: nothing to do" in run("edit", workspace, files / "edit.csv")[1]
    assert Workspace(workspace).head == 2


def test_show_gives_old_and_new_values(workspace, files, run, machine):
    sample = Workspace(workspace).data().split("train")[4]
    other = next(name for name in ("finch", "wren", "crow") if name != sample.label)
    content = {
        "correct_concepts": [
            {"id": sample.id, "concept": "round", "value": 1 - sample.concepts["round"]},
            {"id": sample.id, "concept": "size=big", "value": None},
        ],
        "correct_labels": [{"id": sample.id, "label": other}],
    }
    (files / "edit.json").write_text(json.dumps(content))
    machine("edit", workspace, files / "edit.json")
    _, out, _ = run("show", workspace)
    assert f"{sample.id}: round {sample.concepts['round']:g} → {1 - sample.concepts['round']:g}" in out
    assert f"{sample.id}: size=big {sample.concepts['size=big']:g} → missing" in out
    assert f"{sample.id}: class {sample.label} → {other}" in out
    shown = machine("show", workspace)
    assert shown["edit"] == content
    # what it was is itself an edit file, which takes the corrections back
    (files / "back.json").write_text(json.dumps(shown["before"]))
    machine("edit", workspace, files / "back.json")
    assert Workspace(workspace).data() == Workspace(workspace).data(1)


def test_edits_of_other_splits_say_that_training_does_not_read_them(workspace, files, run):
    sample = Workspace(workspace).data().split("test").ids[0]
    (files / "edit.json").write_text(json.dumps({"remove_samples": [sample]}))
    for extra in (("--preview",), ()):
        _, out, _ = run("edit", workspace, files / "edit.json", *extra)
        assert "note: it changes only samples of test, on which no training term depends" in out
    assert "note: it changes only samples of test" in run("show", workspace)[1]


def test_new_samples_with_a_concept_that_was_removed_are_told_how_to_leave_it_out(workspace, files, run, machine):
    (files / "gone.json").write_text('{"remove_concepts": ["round"]}')
    machine("edit", workspace, files / "gone.json")
    more = tabular(70, 4, seed=3).select([60, 61])
    more.to_frame().to_csv(files / "more.csv", index=False)
    np.save(files / "more.npy", more.x.numpy())
    (files / "add.json").write_text('{"add_samples": "more.csv"}')
    status, out, err = run("edit", workspace, files / "add.json")
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert (
        "add_samples: more.csv, column 'round': this concept was removed in version 2; to leave it out write" in err
    )
    remedy = "{" + err[err.index('"add_samples"') :].strip() + "}"
    (files / "add.json").write_text(remedy)
    assert machine("edit", workspace, files / "add.json")["version"] == 3
    assert Workspace(workspace).data().ids[-2:] == ("s60", "s61")


def test_new_samples_with_a_concept_that_never_was_are_told_the_nearest(workspace, files, run):
    more = tabular(70, 4, seed=3).select([60]).replace(concept_names=["size=bigg", *tabular(9).concept_names[1:]])
    more.to_frame().to_csv(files / "more.csv", index=False)
    np.save(files / "more.npy", more.x.numpy())
    (files / "add.json").write_text('{"add_samples": {"table": "more.csv", "features": "more.npy"}}')
    _, _, err = run("edit", workspace, files / "add.json")
    assert "more.csv, column 'size=bigg': this concept is not in the data (did you mean 'size=big'" in err
    assert '"features": "more.npy", "ignore": ["size=bigg"]' in err


def test_the_log_names_what_was_removed(workspace, files, run, machine):
    (files / "edit.json").write_text(
        json.dumps({"remove_samples": ["s3", "s5", "s10", "s11", "s12", "s20"], "remove_concepts": ["round"]})
    )
    machine("edit", workspace, files / "edit.json")
    _, out, _ = run("log", workspace)
    assert "removed: s10, s11, s12, s20 and 2 more" in out
    assert "removed concepts: round" in out
    machine("erase", workspace, "--ids", "s10", "--yes")
    assert "s10" not in run("log", workspace)[1]


# -- erasing -----------------------------------------------------------------------------------------------


def test_an_erasure_shows_what_it_destroys_and_is_not_made_without_consent(workspace, files, run, machine):
    machine("export", workspace, workspace / "exports" / "one")
    for arguments in ((), ("--json",)):
        status, out, err = run("erase", workspace, "--ids", "s5", *arguments)
        assert (status, out) == (2, "")
        assert "cannot be undone" in err
        assert "--yes" in err
    _, out, _ = run("erase", workspace, "--ids", "s5", "s7", "--preview")
    assert "2 samples: s5 (train), s7 (val)" in out
    assert "the weights and data of 2 versions" in out
    assert "exports/" in out
    assert f"the files the data was read from: {files / 'samples.csv'}" in out
    plan = machine("erase", workspace, "--ids", "s5", "--preview")
    assert (plan["preview"], plan["samples"], plan["version"]) == (True, {"s5": "train"}, 1)
    assert Workspace(workspace).head == 1
    assert run("erase", workspace, "--ids", "nobody", "--preview")[0] == 2


def test_the_preview_names_what_goes_with_the_last_sample_of_a_class(tmp_path, run, machine):
    data = tabular(40, 4)
    labels = [min(int(label), 1) for label in data.labels]
    labels[5] = 2
    ecbm.write_dataset(data.replace(labels=labels), tmp_path / "data")
    machine("init", tmp_path / "w", "--data", tmp_path / "data")
    machine("train", tmp_path / "w")
    _, out, _ = run("erase", tmp_path / "w", "--ids", "s5", "--preview")
    assert "what no other sample has: crow; the model is trained anew without it" in out


def test_what_a_deep_backbone_keeps_of_the_erased_is_said_with_what_goes_further(tmp_path, machine, run):
    ecbm.write_dataset(tabular(80, 4), tmp_path / "data")
    left = {}
    for name, arguments in {
        "heads": ("--method", "exact"),
        "tail": ("--tail", "--budget", "0.9"),
        "all": (),
    }.items():
        w = tmp_path / name
        machine("init", w, "--data", tmp_path / "data", "--backbone", "mlp")
        machine("train", w, "--epochs", "4")
        method = arguments or ("--method", "retrain")
        left[name] = machine("erase", w, "--ids", "s5", "--yes", *method)
    assert left["heads"]["traces"]["as_before"]
    assert not left["heads"]["traces"]["trained_on_without_them"]
    assert any("as before" in words and "--tail" in words for words in left["heads"]["not_reached"])
    assert left["tail"]["traces"]["trained_on_without_them"]
    assert not left["all"]["traces"]["as_before"]
    assert not any("--tail" in words for words in left["all"]["not_reached"])


@pytest.mark.parametrize(("answer", "status", "head"), [("n\n", 1, 1), ("\n", 1, 1), ("y\n", 0, 2)])
def test_a_person_is_asked(workspace, terminal, answer, status, head):
    found, shown = terminal("erase", workspace, "--ids", "s5", answer=answer)
    assert found == status, shown
    assert "This destroys for good:" in shown
    assert "Erase 1 sample for good? [y/N]" in shown
    assert ("nothing was changed" in shown) == (status == 1)
    assert Workspace(workspace).head == head


# -- predictions -------------------------------------------------------------------------------------------


def test_setting_a_concept_shows_before_and_after(workspace, run, machine):
    _, out, _ = run("predict", workspace, "s1", "--set", "color=red", "--set", "round=1")
    plain = machine("predict", workspace, "s1")["predictions"][0]
    item = machine("predict", workspace, "s1", "--set", "color=red", "--set", "round=1")["predictions"][0]
    assert item["before"] == {name: plain[name] for name in ("class", "runner_up", "classes", "concepts")}
    assert item["concepts"]["color::red"] == item["concepts"]["round"] == 1.0
    assert item["concepts"]["color::blue"] == 0.0
    for name, before, after in (("color::red", "color::red", "1"), ("color::blue", "color::blue", "0")):
        assert f"{name} {plain['concepts'][before]:.3f} → {after}" in out
    now = f"{item['class']} " if item["class"] != plain["class"] else ""
    figures = f"{plain['classes'][plain['class']]:.3f} → {now}{item['classes'][item['class']]:.3f}"
    assert f"class      {plain['class']} {figures}" in out
    assert f"runner-up  {plain['runner_up']} {plain['classes'][plain['runner_up']]:.3f} → " in out
    present = out[out.index("present") :]
    assert "color::red" in present
    assert "color::blue" not in present


def test_many_inputs_go_into_a_table(workspace, files, run, machine):
    for kind in ("csv", "parquet"):
        status, out, _ = run("predict", workspace, "--split", "test", "--out", files / f"p.{kind}")
        assert (status, out) == (0, f"12 predictions written to {files / f'p.{kind}'}\n")
    table = pd.read_csv(files / "p.csv")
    model, test = Workspace(workspace).model(), Workspace(workspace).data().split("test")
    assert list(table["id"]) == list(test.ids)
    assert list(table["class"]) == list(model.predict(test))
    assert np.allclose(table[[f"class:{n}" for n in model.class_names]], model.class_probabilities(test), atol=1e-5)
    assert np.allclose(
        table[[f"concept:{n}" for n in model.concept_names]], model.concept_probabilities(test), atol=1e-5
    )
    assert list(pd.read_parquet(files / "p.parquet")["runner_up"]) == list(table["runner_up"])
    written = machine("predict", workspace, "--split", "test", "--set", "round=1", "--out", files / "set.csv")
    assert written["count"] == 12
    changed = pd.read_csv(files / "set.csv")
    assert set(changed["concept:round"]) == {1}
    assert list(changed["class_before"]) == list(table["class"])


def test_several_inputs_keep_their_names_apart(workspace, files, machine, run):
    np.save(files / "x.npy", np.zeros((2, 4), np.float32))
    found = machine("predict", workspace, "s1", files / "x.npy", "s2")["predictions"]
    assert [item["id"] for item in found] == ["s1", "x.npy:0", "x.npy:1", "s2"]
    status, out, _ = run("predict", workspace, "s1", "s2")
    assert status == 0
    assert "runner-up" in out


def test_a_long_list_is_not_poured_over_a_person(files, run, machine):
    ecbm.write_dataset(tabular(100, 4, splits=False), files / "many")
    machine("init", files / "v", "--data", files / "many")
    machine("train", files / "v")
    _, out, _ = run("predict", files / "v", "--split", "train")
    assert "… and 60 more; --out FILE.csv writes all of them" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "nothing to predict"),
        (("s1", "--split", "test"), "not both"),
        (("--split", "tests"), "did you mean 'test'"),
        (("s1", "--out", "p.txt"), "give a .csv or .parquet file"),
        (("s1", "--out", "none/p.csv"), "cannot be written"),
    ],
)
def test_wrong_predictions_are_refused(workspace, run, monkeypatch, files, arguments, words):
    monkeypatch.chdir(files)
    status, out, err = run("predict", workspace, *arguments)
    assert (status, out, len(err.splitlines())) == (2, "", 1)
    assert words in err


# -- looking -----------------------------------------------------------------------------------------------


def test_describe_shows_classes_concepts_and_what_goes_together(files, run, machine):
    data = tabular(60, 4)
    _, out, _ = run("describe", files / "samples.csv", "--features", files / "features.npy")
    found = machine("describe", files / "samples.csv", "--features", files / "features.npy")
    for name, count in found["classes"].items():
        assert count == int((data.labels == data.class_index(name)).sum())
        assert re.search(rf"│ {name} +│ +{count} │", out)
    assert sum(found["classes_by_split"]["train"].values()) == len(data.split("train"))
    frame = data.to_frame()
    for name in data.concept_names:
        rate = frame[name].mean()
        assert f"{rate:.1%}" in out
        assert found["concepts_by_class"][name]["wren"] == pytest.approx(frame[frame.label == "wren"][name].mean())
    pair = found["together"][0]
    first, second = pair["concepts"]
    assert pair["correlation"] == pytest.approx(frame[first].corr(frame[second]), abs=1e-6)
    assert pair["both"] == int(((frame[first] == 1) & (frame[second] == 1)).sum())
    apart = [abs(one["correlation"]) for one in found["together"]]
    assert apart == sorted(apart, reverse=True)
    assert not any({"size=big", "size=small"} == set(one["concepts"]) for one in found["together"])
    assert re.search(rf"│ {re.escape(first)} +│ {re.escape(second)} +│ +{pair['correlation']:+.2f} │", out)


def test_status_is_in_local_time_with_readable_sizes_and_the_whole_hash(workspace, run, machine, monkeypatch):
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        _, out, _ = run("status", workspace)
        _, log, _ = run("log", workspace)
        _, shown, _ = run("show", workspace)
    finally:
        monkeypatch.delenv("TZ")
        time.tzset()
    found = machine("status", workspace)
    local = (pd.Timestamp(found["time"]) + pd.Timedelta(minutes=330)).strftime("%Y-%m-%d %H:%M:%S +0530")
    for text in (out, log, shown):
        assert local in text
    assert found["ledger_hash"] in out
    assert re.search(r"^size +[\d.]+ kB$", out, re.MULTILINE)
    assert re.search(r"^can undo +no$", out, re.MULTILINE)


def test_the_ledger_hash_is_whole_in_a_narrow_terminal(workspace, terminal, machine):
    _, shown = terminal("status", workspace)
    assert machine("status", workspace)["ledger_hash"] in shown.replace("\n", "")


def test_a_training_says_how_many_samples_it_learnt_from(workspace):
    summary = Workspace(workspace).version(1).summary["words"]
    assert summary == "trained a sequential model (linear backbone) on 36 training samples"


@pytest.mark.parametrize("columns", [40, 60, 80, 200])
def test_tables_fit_the_terminal_and_cut_nothing(tmp_path, run, machine, monkeypatch, columns):
    names = [f"a_rather_long_name_of_a_concept_number={number}" for number in range(4)]
    ecbm.write_dataset(tabular(60, 4, concepts=names), tmp_path / "data")
    machine("init", tmp_path / "w", "--data", tmp_path / "data")
    machine("train", tmp_path / "w")
    figures = machine("evaluate", tmp_path / "w")["per_concept"]
    monkeypatch.setenv("COLUMNS", str(columns))
    _, out, _ = run("evaluate", tmp_path / "w")
    table = [line for line in out.splitlines() if line[:1] in "┏┃┡│└"]
    assert max(map(len, table)) <= columns
    assert "…" not in out
    for name in names:
        assert f"{figures[name]['accuracy']:.4f}" in out
    cells = "".join(line.split("│")[1].strip() for line in table if line.startswith("│"))
    for name in names:
        assert name in cells
    hidden = re.search(rf"not shown in {columns} columns: (.*) \(a wider", out)
    shown = [header for header in ("F1", "AUC", "labels") if header in " ".join(table)]
    assert [*shown, *sorted(hidden[1].split(", ") if hidden else [])] == [
        *shown,
        *sorted({"F1", "AUC", "labels"} - set(shown)),
    ]


# -- the terminal ------------------------------------------------------------------------------------------

LOOKS = (("log", "W"), ("--help",), ("evaluate", "W"), ("status", "W"), ("train", "W", "--backbone", "mlp"))


@pytest.mark.parametrize("setting", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_who_wants_no_colours_gets_none(workspace, terminal, setting):
    for arguments in LOOKS:
        status, shown = terminal(*(workspace if word == "W" else word for word in arguments), **setting)
        assert status == 0
        assert "\x1b" not in shown, arguments


def test_a_terminal_has_colours_otherwise(workspace, terminal):
    assert "\x1b[33m" in terminal("log", workspace)[1]
    assert "\x1b[" in terminal("--help")[1]


@pytest.mark.parametrize("command", sorted(get_command(app).commands))
def test_help_shows_every_word_of_what_is_written(run, monkeypatch, command):
    """Square brackets are markup for the library that draws the help; what is in them must not vanish."""
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 400)
    _, out, _ = run(command, "--help")
    written = get_command(app).commands[command]
    texts = [written.help, *(getattr(option, "help", None) for option in written.params)]
    shown = " ".join(re.sub(r"[│╭╮╰╯─]", " ", out).split())
    for text in filter(None, texts):
        for word in text.replace("\\[", "[").split():
            assert word in shown, text
    if command == "export":
        assert "pip install 'ecbm[onnx]'" in shown


@pytest.mark.parametrize("command", sorted(get_command(app).commands))
def test_help_breaks_lines_where_the_terminal_ends_and_brackets_once(run, monkeypatch, command):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 2000)
    _, out, _ = run(command, "--help")
    usage = next(line for line in out.splitlines() if "Usage:" in line)
    assert "[[" not in usage
    assert "...]" not in usage
    intro = out.partition("╭")[0].split("Usage:")[1].split("\n")[1:]
    for line in filter(str.strip, intro):
        # a sentence that goes on in the next line of the source must not break there
        assert line.strip()[-1] in ".:,}]", line


def test_defaults_in_the_help_are_those_of_the_recipe(run, monkeypatch):
    monkeypatch.setattr("typer.rich_utils.MAX_WIDTH", 200)
    _, out, _ = run("train", "--help")
    recipe = ecbm.Recipe()
    for text in (
        f"Epochs of a deep backbone; {recipe.epochs} by default.",
        f"Samples in a batch; {recipe.batch_size} by default.",
        f"Batches that make one step; {recipe.accumulate} by default.",
        f"as a share of the heads'; {recipe.backbone_rate:g} by default.",
        f"{recipe.regime} (default)",
        f"{recipe.bottleneck} (default)",
        f"by default {ecbm.Recipe(backbone='convnet').peak_learning_rate:g} for convnet, else "
        f"{ecbm.Recipe(backbone='mlp').peak_learning_rate:g}.",
    ):
        assert text in out


def test_ctrl_c_says_that_finished_epochs_are_kept_and_how_to_go_on(files, machine):
    pictures = ecbm.datasets.birds(n=400, size=32)
    ecbm.write_dataset(pictures, files / "birds")
    w = files / "w"
    machine("init", w, "--data", files / "birds", "--epochs", 200, "--batch-size", 32)
    child = subprocess.Popen(
        [sys.executable, "-m", "ecbm.show.cli", "train", str(w)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        # A suite that a shell runs in the background ignores SIGINT, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while not list((w / "cache").glob("training-*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert (child.returncode, out) == (130, "")
    assert re.fullmatch(
        rf"ecbm: interrupted: \d+ finished epochs? kept; 'ecbm train {w}' with the same options goes on from there",
        err.splitlines()[-1],
    )
    assert "Traceback" not in err


def test_ctrl_c_elsewhere_says_that_nothing_is_half_done(run, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("ecbm.show.demo.run_demo", interrupted)
    status, _, err = run("demo")
    assert (status, err) == (130, "ecbm: interrupted; nothing is left half done, the command can be given again\n")


def test_a_workspace_says_what_it_is(workspace):
    opened = Workspace(workspace)
    assert repr(opened).startswith(f"Workspace('{workspace}', version 1: trained a sequential model")
    assert repr(opened).endswith("; 60 samples, 5 concepts)")
    assert opened.ledger_hash() in opened._repr_html_()
    assert "started with 60 samples" in opened._repr_html_()
