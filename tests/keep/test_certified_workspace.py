"""Certified removal in a workspace: the budget is in the ledger, the seed is secret and goes with an erasure."""

from __future__ import annotations

import json
import shutil

import pytest
from workspace_kit import rows

import ecbm
from ecbm.errors import InputError
from kit import same_bytes, tabular

RECIPE = ecbm.Recipe(backbone="linear", certified={"epsilon": 1.0, "delta": 1e-5})


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Trained, and one sample removed by each kind of method."""
    workspace = ecbm.Workspace.create(tmp_path_factory.mktemp("certified") / "w", tabular(60), RECIPE)
    workspace.train()
    for sample, method in (("s0", "auto"), ("s1", "exact"), ("s2", "hessian"), ("s3", "retrain")):
        workspace.edit(ecbm.Edit(remove_samples=[sample]), method)
    return workspace


@pytest.fixture
def copied(made, tmp_path):
    return ecbm.Workspace(shutil.copytree(made.folder, tmp_path / "w"))


def seeds(folder):
    return [json.loads(content) for (content,) in rows(folder, "SELECT content FROM details WHERE part = 'noise'")]


def test_every_release_is_in_the_ledger_with_what_it_spent(made):
    for item in made.log()[:-1]:
        record = item["certified"]
        assert (record["epsilon"], record["delta"]) == (1.0, 1e-5)
        assert max(record["concept_gradient"], record["label_gradient"]) <= record["tolerance"]
        assert 0 < record["epsilon_spent"] <= 1.0
    assert "certified" not in made.log()[-1]


def test_a_step_that_leaves_too_much_is_solved_again_before_it_is_released(made):
    resolved = {item["report"]["method"]: item["report"]["certified"].get("resolved") for item in made.log()[:4]}
    assert resolved == {"auto": False, "exact": False, "hessian": True, "retrain": None}


def test_versions_come_out_again_to_the_bit_while_their_seeds_are_kept(made):
    result = made.check(replay=True)
    assert result["ok"]
    assert [item["same"] for item in result["replayed"]] == [None, True, True, True, True, True]
    assert len(set(seeds(made.folder))) == 5


def test_no_command_and_no_export_tells_the_seed(made, tmp_path, capsys):
    made.export(tmp_path / "model")
    ecbm.report(made, out=tmp_path / "report.html")
    assert "gains at most a factor of 2.7 in the odds" in (tmp_path / "report.html").read_text("utf-8")
    told = json.dumps([made.log(), made.entries(), made.meta()]).encode()
    told += b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for seed in seeds(made.folder):
        assert seed.encode() not in told
        assert str(int(seed, 16)).encode() not in told


def test_an_erasure_destroys_all_seeds_and_keeps_none_of_its_own(copied):
    before = seeds(copied.folder)
    copied.erase(["s4"])
    assert seeds(copied.folder) == []
    kept = b"".join(path.read_bytes() for path in copied.folder.rglob("*") if path.is_file())
    assert not any(seed.encode() in kept for seed in before)
    record = copied.log()[0]["report"]["certified"]
    assert record["epsilon"] == 1.0
    # what the solver had left is what the noise hides
    assert not {"concept_gradient", "label_gradient", "epsilon_spent"} & set(record)
    assert copied.check()["ok"]


def test_erasing_twice_the_same_gives_other_noise(made, tmp_path):
    first, second = (ecbm.Workspace(shutil.copytree(made.folder, tmp_path / name)) for name in ("a", "b"))
    for workspace in (first, second):
        workspace.erase(["s4"])
    assert not same_bytes(first.model(), second.model())
    gap = (first.model().concept_head.weight - second.model().concept_head.weight).detach()
    assert 0 < float(gap.abs().max()) < 1e-5


def test_an_empty_edit_changes_nothing_and_draws_nothing(copied):
    data, model = copied.data(), copied.model()
    truth = float(data.concepts[data.row("s4"), data.concept_index("round")])
    version, _ = copied.edit(ecbm.Edit(correct_concepts=[("s4", "round", truth)]))
    assert version == 5
    assert same_bytes(model, copied.model())
    result = ecbm.Editor(model, data).apply(ecbm.Edit())
    assert result.model is model


def test_a_seed_cannot_be_given_to_a_workspace(copied):
    with pytest.raises(InputError, match="drawn by the workspace"):
        copied.edit(ecbm.Edit(remove_samples=["s4"]), noise=1)


def test_the_command_line_takes_the_promise(tmp_path, capsys, monkeypatch):
    import sys

    from ecbm.show import cli

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["ecbm", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        return int(stopped.value.code or 0), capsys.readouterr()

    ecbm.Workspace.create(tmp_path / "w", tabular(60), ecbm.Recipe(backbone="linear"))
    status, out = run("train", tmp_path / "w", "--epsilon", 2, "--json")
    assert status == 0
    assert json.loads(out.out)["recipe"]["certified"] == {"epsilon": 2.0, "delta": 1e-5, "tolerance": 1e-9}
    (tmp_path / "e.json").write_text(json.dumps({"remove_samples": ["s0"]}))
    assert run("edit", tmp_path / "w", tmp_path / "e.json")[0] == 0
    status, out = run("show", tmp_path / "w")
    assert "certified removal" in out.out
    status, out = run("train", tmp_path / "w", "--delta", 1e-5)
    assert (status, out.err.count("\n")) == (2, 1)
