"""``ecbm reproduce``: every experiment from end to end, interrupted and gone on with, spread, listed, refused."""

from __future__ import annotations

import csv
import json
import sys
import warnings
from html import escape
from pathlib import Path

import pytest
from reproduce_kit import asked

import ecbm
from archives_kit import celeba_files, oai_files
from ecbm.errors import InputError
from ecbm.show.reproduce import run as running
from ecbm.show.reproduce.case import open_case
from ecbm.show.reproduce.findings import Column, Table
from ecbm.show.reproduce.report import table_block
from ecbm.show.reproduce.run import Shard, run_experiments
from ecbm.show.reproduce.settings import NAMES, layered, read_settings
from ecbm.show.reproduce.store import Store
from kit import in_own_thread, python
from page_kit import launch

pytest.importorskip("matplotlib")


@pytest.fixture(scope="module")
def everything(tmp_path_factory):
    """All experiments on a small table, once."""
    folder = tmp_path_factory.mktemp("reproduce")
    return asked(folder), run_experiments(asked(folder), NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_writes_a_table_figures_and_sentences(everything, name):
    given, result = everything
    out = given.out
    found = json.loads((out / f"{name}.json").read_text())
    assert found["sentences"] == result["findings"][name]["sentences"]
    assert all(sentence.endswith(".") for sentence in found["sentences"])
    assert found["tables"][0]["rows"], "a table without rows"
    assert found["environment"]["torch"]
    assert found["command"].startswith(f"ecbm reproduce {name} --data finches")
    for ending in ("md", "csv", "svg", "png"):
        assert any(out.glob(f"{name}*.{ending}")), f"no {ending} of {name}"
    with next(out.glob(f"{name}*.csv")).open() as file:
        assert list(csv.DictReader(file))
    assert str(given.settings.parent) not in (out / f"{name}.json").read_text(), "a path of this machine"


def test_the_report_has_every_experiment_its_sentences_and_nothing_from_elsewhere(everything):
    given, result = everything
    page = (given.out / "index.html").read_text()
    tables = read_settings()
    for name in NAMES:
        assert f">{tables[name]['title']}</h2>" in page
    assert page.count("data:image/svg+xml;base64,") >= len(NAMES)
    assert "The corrected bounds hold in" in page
    assert 'src="http' not in page
    assert "@import" not in page
    assert result["missing"] == {}


def test_the_report_begins_with_what_all_experiments_found(everything):
    given, result = everything
    page = (given.out / "index.html").read_text()
    short = page[page.index(">In short</h2>") : page.index(">Table 1: utility and time</h2>")]
    assert short.count("<li>") == len(NAMES)
    for name in NAMES:
        found = result["findings"][name]
        assert escape(found["summary"]) in short.replace("&nbsp;", " ")
        assert json.loads((given.out / f"{name}.json").read_text())["summary"] == found["summary"]
        for sentence in found["sentences"]:
            assert len(sentence) < 1200, f"a wall of numbers: {sentence}"


def test_the_report_of_one_experiment_has_no_summary_of_all(tmp_path):
    run_experiments(asked(tmp_path), ["bounds"])
    page = (tmp_path / "results" / "bounds.html").read_text()
    assert ">In short</h2>" not in page
    assert "Closure is 1 −" in page


def test_the_report_fits_the_screen_and_asks_nobody_and_its_long_tables_are_open_on_paper(everything):
    in_own_thread(lambda: _look_at(everything[0].out / "index.html"))


def _look_at(report):
    sync = pytest.importorskip("playwright.sync_api")
    asked_for = []
    with sync.sync_playwright() as playwright:
        page = launch(playwright).new_page()
        page.on("request", lambda request: asked_for.append(request.url))
        page.goto(report.as_uri())
        for width in (1100, 390):
            page.set_viewport_size({"width": width, "height": 900})
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
            assert page.evaluate("document.documentElement.scrollWidth") <= width
            wide = "[...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth)"
            assert page.evaluate(f"{wide}.length") == 0, f"a table is cut at {width} px"
        page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = false })")
        hidden = "[...document.querySelectorAll('details table')].filter((one) => !one.checkVisibility()).length"
        assert page.evaluate(hidden) > 0
        page.emulate_media(media="print")
        assert page.evaluate(hidden) == 0
    assert [url for url in asked_for if not url.startswith(("file:", "data:"))] == []


def test_a_table_has_its_groups_as_headings_and_no_empty_columns():
    columns = (Column("level", "level"), Column("method", "method"), Column("f1", "F1", ".2f", "sd"),
               Column("why", "not run because"))  # fmt: skip
    rows = [{"level": of, "method": name, "f1": 0.5, "sd": 0.1, "why": ""} for of in ("a", "b") for name in "<y"]
    found = table_block(Table("", "", columns, rows))
    assert found.count('scope="rowgroup"') == 2
    assert "not run because" not in found
    assert '<th scope="row">&lt;</th><td data-label="F1" class="number">0.50 ± 0.10</td>' in found
    rows[0]["why"] = "no room"
    assert "not run because" in table_block(Table("", "", columns, rows))


def test_table1_has_every_method_and_control_at_every_level(everything):
    given, _ = everything
    rows = json.loads((given.out / "table1.json").read_text())["tables"][0]["rows"]
    by_edit = {}
    for row in rows:
        by_edit.setdefault(row["edit"], {})[row["method"]] = row
    assert list(by_edit) == [
        "concept labels, 20%", "1 concept removed", "2 concepts removed", "samples, 20% removed"
    ]  # fmt: skip
    for found in by_edit.values():
        names = " ".join(found)
        for method in (
            "no-op",
            "exact",
            "as written",
            "ekfac guarded",
            "hessian",
            "auto",
            "fine-tuning",
            "retrain",
        ):
            assert method in names
        assert found["retrain"]["class_closure"] == pytest.approx(1.0, abs=1e-4), "frozen features: seeds agree"
        assert found["exact (heads only)"]["class_closure"] == pytest.approx(1.0, abs=1e-4)
        assert found["no-op"]["class_closure"] == 0
    assert by_edit["samples, 20% removed"]["retrain"]["class_f1_sd"] is not None


def test_the_bounds_hold(everything):
    given, _ = everything
    for row in json.loads((given.out / "bounds.json").read_text())["tables"][0]["rows"]:
        assert row["held"] == row["of_cases"]
        assert row["bound"] >= row["distance"]


def test_a_second_run_computes_nothing_and_gives_the_same_bytes(everything, monkeypatch):
    given, _ = everything
    names = ("table1", "bounds")
    files = [path for name in names for path in sorted(given.out.glob(f"{name}.*"))]
    before = {path: path.read_bytes() for path in files}

    def never(*_, **__):
        raise AssertionError("computed again")

    monkeypatch.setattr(running, "_train", never)
    monkeypatch.setattr(running, "_compute", never)
    run_experiments(given, names)
    assert {path: path.read_bytes() for path in files} == before
    assert len(files) == 10


def _figures(out: Path) -> list[dict]:
    """Rows without what a clock gives."""
    timed = ("seconds", "speed_up", "share_of_retraining", "preparation")
    rows = json.loads((out / "harmful.json").read_text())["tables"][0]["rows"]
    return [{key: value for key, value in row.items() if key not in timed} for row in rows]


def test_an_interrupted_run_goes_on_and_the_figures_are_those_of_an_uninterrupted_one(
    everything, tmp_path, monkeypatch
):
    whole = _figures(everything[0].out)
    given = asked(tmp_path)
    done = []
    finish = Store.finish_piece

    def killed(self, name, value):
        if done:
            raise KeyboardInterrupt
        done.append(name)
        finish(self, name, value)

    with monkeypatch.context() as patched:
        patched.setattr(Store, "finish_piece", killed)
        with pytest.raises(KeyboardInterrupt):
            run_experiments(given, ["harmful"])
    assert not (given.out / "harmful.json").exists()
    again = []
    monkeypatch.setattr(
        Store, "finish_piece", lambda self, name, value: (again.append(name), finish(self, name, value))
    )
    trained = []
    monkeypatch.setattr(running, "_train", lambda *arguments: trained.append(arguments))
    run_experiments(given, ["harmful"])
    assert done[0] not in again
    assert not trained, "models are trained once"
    assert _figures(given.out) == whole


def test_a_damaged_piece_is_computed_again(tmp_path):
    given = asked(tmp_path)
    run_experiments(given, ["bounds"])
    before = (given.out / "bounds.csv").read_bytes()
    piece = next((given.out / "work" / "pieces").glob("bounds-0-*.json"))
    piece.write_text(piece.read_text()[:40])
    run_experiments(given, ["bounds"])
    assert (given.out / "bounds.csv").read_bytes() == before


def test_shards_share_the_repetitions_and_the_last_one_writes(tmp_path):
    given = asked(tmp_path, repetitions=2)
    first = run_experiments(given, ["bounds"], shard=Shard.of("2/2"))
    assert first["missing"] == {"bounds": 1}
    assert not (given.out / "bounds.json").exists()
    second = run_experiments(given, ["bounds"], shard=Shard.of("1/2"))
    assert second["missing"] == {}
    alone = asked(tmp_path, repetitions=2, out=tmp_path / "alone")
    run_experiments(alone, ["bounds"])
    assert (given.out / "bounds.csv").read_bytes() == (alone.out / "bounds.csv").read_bytes()


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0"])
def test_a_shard_that_is_none_is_refused(text):
    with pytest.raises(InputError, match="expected i/n"):
        Shard.of(text)


def test_under_torchrun_every_process_takes_its_share_and_trains_alone(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    monkeypatch.setenv("RANK", "2")
    assert Shard.of(None) == Shard(2, 3, together=True)
    assert Shard.of(None).count == 1, "training must not wait for the others"


def test_pictures_are_drawn_beside_their_concepts(tmp_path):
    given = asked(tmp_path, data="birds")
    case = open_case(given, "visual")
    assert len(case.data) == 80
    assert not case.linear
    run_experiments(given, ["visual"])
    drawing = (given.out / "visual.svg").read_text()
    assert drawing.count("<image") == 2
    assert "<dc:date>" not in drawing


def test_settings_lie_one_over_another():
    tables = read_settings()
    assert layered(tables, "table1", frozen=True, quick=False)["hessian"]
    assert not layered(tables, "table1", frozen=False, quick=False)["hessian"]
    assert layered(tables, "table1", frozen=False, quick=False)["share"] == 0.03
    assert layered(tables, "periodic", frozen=False, quick=False)["rounds"] == 10


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"data": "nothing-here"}, "unknown dataset 'nothing-here'"),
        ({"settings": Path("no.toml")}, "--settings no.toml: cannot be read"),
        ({"backbone": "lineal"}, "did you mean 'linear'"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(tmp_path, change, message):
    with pytest.raises(InputError, match=message):
        run_experiments(asked(tmp_path, **change), ["bounds"])


def test_concepts_that_are_not_yes_or_no_are_refused(tmp_path):
    data = ecbm.Dataset(
        [f"s{i}" for i in range(40)], [[float(i)] for i in range(40)], [[i / 40] for i in range(40)],
        [i % 2 for i in range(40)], ["size"], ["a", "b"], ["train", "train", "val", "test"] * 10,
        concept_types={"size": "continuous"},
    )  # fmt: skip
    ecbm.write_dataset(data, tmp_path / "sizes")
    with pytest.raises(InputError, match="has continuous concepts; the paper's protocols flip yes/no labels"):
        run_experiments(asked(tmp_path, data=str(tmp_path / "sizes")), ["bounds"])


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(InputError, match=r"pip install 'ecbm\[reproduce\]'"):
        run_experiments(asked(tmp_path), ["bounds"])
    assert not (tmp_path / "results").exists()


def test_the_command_lists_experiments_without_waiting_for_torch():
    script = (
        "import sys; from ecbm.show.cli import main; sys.argv = ['ecbm', 'reproduce', '--list', '--json']\n"
        "try: main()\nfinally: print([n for n in ('torch', 'matplotlib') if n in sys.modules])"
    )
    lines = python("-c", script).stdout.splitlines()
    found = json.loads(lines[0])["experiments"]
    assert [one["name"] for one in found] == list(NAMES)
    assert all(one["needs"] and one["time"] and one["what"] for one in found)
    assert lines[-1] == "[]"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tabel1"], "unknown experiment 'tabel1'; did you mean 'table1'?"),
        ([], "give an experiment (table1"),
        (["bounds", "--shard", "5"], "--shard 5: expected i/n"),
    ],
)
def test_the_command_refuses_what_it_does_not_know(arguments, message, tmp_path):
    done = python("-m", "ecbm.show.cli", "reproduce", *arguments, "--out", tmp_path / "out")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_archives_in_their_official_layouts_are_known_by_their_files(tmp_path):
    celeba_files(tmp_path / "faces")
    oai_files(tmp_path / "knees")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # faces of the miniature archive are left out
        faces = open_case(asked(tmp_path, data=str(tmp_path / "faces"), image_size=8), "table1")
    knees = open_case(asked(tmp_path, data=str(tmp_path / "knees"), image_size=8), "table1")
    assert (faces.data_name, len(faces.data.concept_names)) == ("faces", 32)
    assert (knees.data_name, len(knees.data.concept_names)) == ("knees", 10)
    assert faces.recipe.backbone == knees.recipe.backbone == "convnet"
