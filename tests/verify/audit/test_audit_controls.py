"""Controls come out as they must, on tiny convex models, and a verdict follows from them alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

import ecbm
from ecbm.edit.state import EditorState
from ecbm.errors import InputError
from ecbm.verify.audit.asked import Asked
from ecbm.verify.audit.collecting import Memory, collect, parse_shard
from ecbm.verify.audit.designs import thirds
from ecbm.verify.audit.erasure import audit_erasure, rehearsed
from ecbm.verify.audit.forget_sets import choose_pool
from ecbm.verify.audit.intervals import Difference, Interval
from ecbm.verify.audit.references import FrozenTrainer, trainer_of
from ecbm.verify.audit.rehearsal import rehearse
from ecbm.verify.audit.release import release_figures
from ecbm.verify.audit.signals import signals
from ecbm.verify.audit.verdict import Comparison, decide
from kit import pictures, tabular

RECIPE = ecbm.Recipe(backbone="linear", concept_l2=1e-3)


@pytest.fixture(scope="module")
def known() -> tuple[ecbm.ConceptBottleneck, ecbm.Dataset]:
    # Many features for few samples: what such a model knows by heart can be seen.
    data = tabular(300, 40, seed=5)
    return ecbm.train(data, RECIPE), data


@pytest.fixture(scope="module")
def state(known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset]) -> EditorState:
    return ecbm.Editor(*known).state


def audited(
    known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset], state: EditorState, seed: int, **asked: Any
) -> dict[str, Any]:
    return rehearse(*known, state, Asked("erasure", seed=seed, samples=25, references=8, **asked))


def test_a_reference_is_what_training_without_the_samples_gives(
    known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset],
) -> None:
    model, data = known
    trainer = trainer_of(model, data)
    assert isinstance(trainer, FrozenTrainer)
    ids = data.split("train").ids
    first = trainer.without(ids[:30], 0)
    anew = trainer.retrained(ids[:30])
    edited = trainer.edited(first, ids[:30], ids[30:50], "exact", {})
    again = trainer.retrained(ids[:50])
    for one, other in ((first, anew), (edited, again)):
        assert np.abs(signals(one, data) - signals(other, data)).max() < 1e-6


def test_controls_come_out_as_they_must_in_at_least_95_percent_of_runs(
    known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset], state: EditorState
) -> None:
    runs = [audited(known, state, seed) for seed in range(20)]
    caught = Counter((run["controls"]["noop"]["caught"], run["controls"]["retrain"]["caught"]) for run in runs)
    assert caught[True, False] >= 19, caught
    verdicts = Counter(run["verdict"] for run in runs)
    assert verdicts["failed"] <= 1, verdicts
    assert verdicts["passed"] >= 19, verdicts


def test_retraining_is_taken_for_a_member_no_more_often_than_the_interval_says() -> None:
    """Signals of models that never saw a sample, drawn at random: 400 audits without a training."""
    from ecbm.verify.audit.designs import halves
    from ecbm.verify.audit.intervals import auc_interval
    from ecbm.verify.audit.lira import fit, lira_student

    draw, alarms = np.random.default_rng(0), 0
    for run in range(400):
        inside = halves(120, 8, run)
        shift = draw.gamma(2.0, 0.5, 120)
        fits = fit(draw.normal(size=inside.shape) + shift * inside, inside)
        score = lira_student(draw.normal(size=120), fits)
        alarms += auc_interval(score[:60], score[60:]).low > 0.5
    assert alarms <= 400 * 0.05


def test_doing_nothing_is_caught_when_it_calls_itself_an_edit(
    known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset],
) -> None:
    model, data = known
    pool = choose_pool(ecbm.Editor(model, data).state, data, "random", 25, 0)
    trainer = trainer_of(model, data)
    targets = rehearsed(trainer, pool, "exact", {})
    lazy = type(targets)(targets.noop, targets.noop, targets.retrain)
    found = audit_erasure(trainer, pool, lazy, references=8, seed=0, store=Memory())
    assert isinstance(found, dict)
    assert found["verdict"] == "failed"
    assert found["edit"] == {name: found["controls"]["noop"][name] for name in ("auc", "low", "high")}


@pytest.mark.parametrize("forget", ["influential", "canaries", "subgroup"])
def test_every_forget_set_has_its_controls(
    forget: str, known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset], state: EditorState
) -> None:
    found = audited(known, state, 1, forget=forget)
    assert found["verdict"] in ("passed", "inconclusive")
    assert found["differences"]["edit_minus_retrain"]["difference"] == pytest.approx(0, abs=1e-9)
    assert set(found["attacks"]) == {"lira_student", "lira", "rmia", "rmia_gaussian"}
    assert found["retained"]["noop"]["auc"] > 0.5
    assert found["threat_model"]["owner"].startswith("an audit cannot catch an owner who lies")


def interval(auc: float, half: float = 0.05) -> Interval:
    return Interval(auc, auc - half, auc + half)


def compared(noop: float, edit: float, retrain: float) -> Comparison:
    return Comparison(
        interval(noop),
        interval(edit),
        interval(retrain),
        Difference(noop - edit, noop - edit - 0.06, noop - edit + 0.06),
        Difference(edit - retrain, edit - retrain - 0.08, edit - retrain + 0.08),
    )


@pytest.mark.parametrize(
    ("noop", "edit", "retrain", "verdict", "words"),
    [
        (0.9, 0.5, 0.5, "passed", "cannot be told"),
        (0.9, 0.6, 0.5, "failed", "can still be told"),
        (0.9, 0.54, 0.45, "failed", "more like members than after retraining"),
        (0.9, 0.4, 0.5, "failed", "less like members"),
        (0.9, 0.42, 0.44, "passed", "cannot be told"),
        (0.53, 0.5, 0.5, "inconclusive", "could not have seen it"),
        (0.53, 0.9, 0.5, "inconclusive", "could not have seen it"),
        (0.9, 0.5, 0.6, "inconclusive", "could not have seen it"),
        (0.56, 0.52, 0.5, "inconclusive", "cannot be told from the unedited one"),
    ],
)
def test_a_verdict_follows_from_the_controls_first(
    noop: float, edit: float, retrain: float, verdict: str, words: str
) -> None:
    found = decide(compared(noop, edit, retrain))
    assert found.verdict == verdict
    assert words in found.why


def simulated(
    trace: float, seed: int, pairs: int = 90, samples: int = 30
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Signals of pairs in which membership adds 2 and an edit leaves a ``trace`` of it."""
    draw = np.random.default_rng(seed)
    roles = np.stack([thirds(samples, pair, seed) for pair in range(pairs)])
    centre = draw.normal(0, 3, (1, samples, 2))
    noise = draw.normal(size=(pairs, samples, 2))
    gone = (roles == 0)[..., None]
    edits = noise + 0.2 * draw.normal(size=noise.shape)
    return {
        "noop": centre + noise + 2 * gone,
        "edit": centre + edits + trace * gone,
        "retrain": centre + noise,
    }, roles


def test_a_release_sees_what_an_edit_leaves_and_nothing_else() -> None:
    clean = [release_figures(*simulated(0.0, seed)) for seed in range(20)]
    wrong = [run for run in clean if not run["controls"]["noop"]["caught"] or run["controls"]["retrain"]["caught"]]
    assert len(wrong) <= 1
    assert sum(run["verdict"] == "passed" for run in clean) >= 18
    noop = np.mean([run["divergence"]["class"]["noop"]["mean"] for run in clean])
    assert noop == pytest.approx(2.0, rel=0.15), "d²/2 of d = 2"
    assert abs(np.mean([run["divergence"]["class"]["retrain"]["mean"] for run in clean])) < 0.05
    assert all(release_figures(*simulated(1.0, seed))["verdict"] == "failed" for seed in range(3))


def test_the_release_of_an_exact_edit_passes(known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset]) -> None:
    model, data = known
    asked = Asked("release", pairs=60, samples=8, method="exact")
    found = rehearse(model, data, ecbm.Editor(model, data).state, asked)
    assert found["verdict"] == "passed"
    assert found["edit"]["auc"] == pytest.approx(found["controls"]["retrain"]["auc"], abs=1e-3)
    assert found["binned_divergence"] is None, "bins below 500 models see noise"


def test_a_deep_backbone_is_audited_with_trained_references() -> None:
    data = pictures(140)
    model = ecbm.train(data, ecbm.Recipe(backbone="convnet", epochs=1, patience=None))
    found = ecbm.verify(model, data, depth="erasure", samples=5, references=4, method="exact")
    assert found["verdict"] == "inconclusive", "four references of a network that learnt for one epoch see nothing"
    assert found["audited"]["exact_references"] is False
    assert any("deep backbone" in words for words in found["limits"])


def test_shards_compute_the_same_parts_and_a_part_is_computed_once() -> None:
    def parts(log: list[int]) -> list[Any]:
        def one(place: int) -> Any:
            return lambda: log.append(place) or {"x": np.full(2, float(place))}

        return [(f"p{place}", one(place)) for place in range(5)]

    store, log = Memory(), []
    found, missing = collect(parts(log), store, (1, 2), "Parts")
    assert (log, missing) == ([0, 2, 4], ["p1", "p3"])
    found, missing = collect(parts(log), store, (2, 2), "Parts")
    assert (log, missing) == ([0, 2, 4, 1, 3], [])
    whole, _ = collect(parts([]), Memory(), None, "Parts")
    assert all((whole[name]["x"] == found[name]["x"]).all() for name in whole)


class Several:
    """One of three processes, which the others join after its first part."""

    shard: tuple[int, int] | None = None

    def __init__(self, store: Memory) -> None:
        self.store, self.told = store, []

    def worked(self, seconds: float, left: int) -> None:
        assert seconds >= 0
        self.told.append(left)
        self.shard = (1, 3)
        if len(self.told) == 2:  # the second process is quick
            self.store.put("p1", {"x": np.ones(1)})
            self.store.put("p4", {"x": np.ones(1)})


def test_who_is_done_goes_on_with_what_the_others_have_not_begun() -> None:
    log: list[int] = []
    parts = [(f"p{p}", lambda p=p: log.append(p) or {"x": np.full(1, float(p))}) for p in range(9)]
    store = Memory()
    crew = Several(store)
    found, missing = collect(parts, store, None, "Parts", crew)
    assert log == [0, 3, 6, 7, 8, 5, 2], "its own, then the others' from their ends, none twice"
    assert crew.told == [8, 7, 4, 3, 2, 1, 0]
    assert (list(found), missing) == ([f"p{p}" for p in range(9)], [])
    assert found["p4"]["x"] == 1


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "a/b", "1/0", "-1/2"])
def test_a_shard_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="i/n"):
        parse_shard(text)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({"depth": "deep"}, "unknown depth"),
        ({"depth": "quick", "forget": "random"}, "makes no test on samples"),
        ({"depth": "erasure", "forget": "randm"}, "did you mean 'random'"),
        ({"depth": "erasure", "references": 7}, "even number"),
        ({"depth": "erasure", "samples": 1}, "whole number from 4"),
        ({"depth": "erasure", "ids": ("a",), "forget": "random"}, "not both"),
        ({"depth": "erasure", "method": "magic"}, "unknown method"),
        ({"depth": "erasure", "options": {"bugdet": 1}}, "did you mean 'budget'"),
        ({"depth": "release", "pairs": 5}, "whole number from 60"),
        ({"depth": "erasure", "seed": -1}, "seed must be"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_any_work(asked: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words):
        Asked(**asked)


def test_a_model_is_verified_with_its_data_and_nothing_else(
    known: tuple[ecbm.ConceptBottleneck, ecbm.Dataset],
) -> None:
    model, data = known
    with pytest.raises(InputError, match="give both"):
        ecbm.verify(model)
    with pytest.raises(InputError, match="expected a workspace"):
        ecbm.verify(data)
    with pytest.raises(InputError, match="trained on other data"):
        ecbm.verify(model, tabular(300, 40, seed=6))
