"""The demo repairs a model, finds a correction that changes the class, and writes one self-contained page."""

from __future__ import annotations

import io
import os
import re

import pytest
import torch
from rich.console import Console

import ecbm
from ecbm.show.demo import run_demo
from ecbm.show.demo_page import find_correction, headline, story
from ecbm.show.demo_repair import OURS, QUICK, Row, under_two_seeds
from ecbm.show.pictures import terminal_row
from kit import CLASSES, CONCEPTS, hand_model


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    folder, text = tmp_path_factory.mktemp("demo") / "new", io.StringIO()
    result = run_demo(folder, Console(file=text, width=100), samples=240, epochs=2)
    return folder, result, text.getvalue()


def test_the_page_needs_nothing_else(demo):
    folder, result, _ = demo
    page = (folder / "index.html").read_text()
    assert os.listdir(folder) == ["index.html"]
    assert result["page"] == str(folder / "index.html")
    assert not re.findall(r"<script|<link|@import|url\((?!data:)", page)
    sources = re.findall(r'src="([^"]{0,30})', page)
    assert len(sources) >= 8
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert all(link.startswith("#") for link in re.findall(r'href="([^"]*)"', page))


def test_the_page_shows_pictures_metrics_concepts_and_the_curve(demo):
    page = (demo[0] / "index.html").read_text()
    for text in (
        "Class accuracy",
        "Concepts that were repaired",
        "Every way to repair it",
        "What the model sees",
        "Intervention curve",
        "Every concept",
        "Leakage check",
    ):
        assert text in page
    for name in ecbm.datasets.birds(n=80).concept_names:
        assert name in page
    # figures stand under each other on the right, those with a unit too
    for header in ("concepts", "time", "faster"):
        assert re.search(rf'<th[^>]*class="number"[^>]*>(<[^>]*>)*{header}<', page), header


def comparison(**recovery: float | None) -> dict[str, Row]:
    """Rows with the given recoveries, at times as they are usual."""
    times = {"no-op": 0.0, "heads only": 0.22, QUICK: 0.62, OURS: 6.24, "retraining": 34.8}
    times |= {"fine-tuning": 6.24, "fine-tuning + heads": 6.24}
    return {name: Row(name, 0.9, 0.9, recovery.get(name, 1.0), 0.5, cost, None) for name, cost in times.items()}


FIGURES = {"heads only": 0.59, QUICK: 0.593, OURS: 0.7, "fine-tuning": 0.61, "fine-tuning + heads": 0.67}


def test_the_headline_is_the_best_figure_of_the_table_beside_its_controls():
    assert story(comparison(**FIGURES)) == (
        "One of two annotators overlooked small marks, and the model learnt it. An edit of 0.2 s brings back 59% "
        "of what retraining gains in 35 s. Given 6.2 s it brings back 70%; fine-tuning for as long, 67%."
    )
    assert headline(comparison(**FIGURES)).name == "heads only"
    assert headline(comparison(**FIGURES | {QUICK: 0.65})).name == QUICK
    assert "too little" in story(comparison(**{QUICK: None}))


def test_the_figures_of_the_headline_are_those_of_the_table(demo):
    folder, result, _ = demo
    page = (folder / "index.html").read_text()
    rows = {row["name"]: Row(**row) for row in result["comparison"]}
    assert story(rows).replace("'", "&#x27;") in page
    quick = headline(rows)
    assert f"<dt>Repaired in {quick.seconds:.1f} s</dt>" in page
    if quick.recovery is not None:
        assert f"<dd>{quick.recovery:.0%}</dd>" in page
    assert "computed once and kept for every later edit took" in page


def test_the_demo_says_what_it_does_and_returns_the_figures(demo):
    _, result, text = demo
    assert "Drawing 240 birds" in text
    rows = {row["name"]: row for row in result["comparison"]}
    for name in (
        "no-op",
        "heads only",
        "one EK-FAC step",
        "ecbm, 5% budget",
        OURS,
        "fine-tuning",
        "retraining",
    ):
        assert name in text
        assert 0 <= rows[name]["concept_accuracy"] <= 1
    assert rows["no-op"]["closure"] == 0
    assert rows["retraining"]["recovery"] in (None, pytest.approx(1))
    assert 0 <= result["class_accuracy"] <= 1
    assert result["seconds"] > 0
    assert result["intervention"]["before"] != result["intervention"]["after"]
    assert result["intervention"]["group"] in text


@pytest.mark.parametrize("seed", [0, 2**63 - 1])
def test_every_seed_has_another_one(seed):
    first, second = under_two_seeds(ecbm.Recipe(seed=seed))
    assert first.seed == seed
    assert second.seed != seed


def test_a_place_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr("ecbm.show.demo.birds", lambda **_: pytest.fail("work was done"))
    (tmp_path / "file").write_text("text")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ecbm.InputError, match="the page cannot be written there"):
            run_demo(folder, Console(quiet=True))

    def read_only(**_):
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tempfile.TemporaryFile", read_only)
    with pytest.raises(ecbm.InputError, match="Read-only file system"):
        run_demo(tmp_path / "new", Console(quiet=True))


def test_the_clearest_correction_is_found():
    weight = torch.zeros(3, 5)
    weight[0, 4], weight[1, 4] = 2.0, -2.0
    x = torch.tensor([[0.0, 0, 0, 0, -1.0], [0.0, 0, 0, 0, -3.0], [0.0, 0, 0, 0, 1.0]])
    truth = torch.tensor([[0.0, 0, 0, 0, 1]] * 3)
    data = ecbm.Dataset("abc", x, truth, torch.zeros(3), CONCEPTS, CLASSES)
    found = find_correction(hand_model(weight), data)
    assert found is not None
    assert (found.row, found.group) == (1, "round")
    assert int(found.before.argmax()) == 1
    assert int(found.after.argmax()) == 0


def test_without_a_mistake_there_is_no_correction():
    weight = torch.zeros(3, 5)
    weight[0, 4] = 2.0
    data = ecbm.Dataset("a", torch.ones(1, 5), torch.ones(1, 5), torch.zeros(1), CONCEPTS, CLASSES)
    assert find_correction(hand_model(weight), data) is None


def test_pictures_in_a_terminal_have_the_width_asked_for():
    picture = torch.zeros(3, 32, 32, dtype=torch.uint8)
    text = terminal_row([picture, picture], ["left", "right"], size=10)
    lines = text.plain.splitlines()
    assert "left" in lines[-1]
    assert "right" in lines[-1]
    assert len(lines) == 10 // 2 + 1
