"""The audit of an erasure: can samples that were removed from a model be told from such that were never in it?

For every sample of a pool, references with it and without it say what the model should look like in either case.
The samples that were forgotten are then compared with samples that were left out from the beginning, in the
unedited model (where the test must see them), in the edited one, and in one that was trained without them (where
it must not).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecbm.train.model import ConceptBottleneck
from ecbm.verify.audit.collecting import Arrays, Crew, Shard, Store, collect
from ecbm.verify.audit.designs import halves
from ecbm.verify.audit.forget_sets import Pool
from ecbm.verify.audit.intervals import auc_difference, auc_interval, epsilon_bound
from ecbm.verify.audit.lira import fit, lira, lira_student
from ecbm.verify.audit.references import Trainer
from ecbm.verify.audit.rmia import mean_likelihood, offline_likelihood, rmia, rmia_gaussian
from ecbm.verify.audit.signals import SIGNALS, likelihoods, signals
from ecbm.verify.audit.verdict import Comparison, caught, decide

__all__ = ["MODELS", "Targets", "audit_erasure", "rehearsed"]

MODELS = ("noop", "edit", "retrain")
_POPULATION = 500
Array = NDArray[np.float64]
Scores = Mapping[str, Array]
"""A score of every sample of the pool, by model."""


@dataclasses.dataclass(frozen=True)
class Targets:
    """How the three models are made that are compared. None of them was trained with what is left out."""

    noop: Callable[[], ConceptBottleneck]
    edit: Callable[[], ConceptBottleneck]
    retrain: Callable[[], ConceptBottleneck]


def rehearsed(trainer: Trainer, pool: Pool, method: str, options: Mapping[str, Any]) -> Targets:
    """The three models of a rehearsal: trained without what is left out, edited by a method, trained anew."""
    left_out, forgotten = pool.named(pool.held_out), pool.named(pool.forget)
    made: list[ConceptBottleneck] = []

    def noop() -> ConceptBottleneck:
        if not made:
            made.append(trainer.retrained(left_out))
        return made[0]

    return Targets(
        noop,
        lambda: trainer.edited(noop(), left_out, forgotten, method, options),
        lambda: trainer.retrained([*left_out, *forgotten]),
    )


def audit_erasure(
    trainer: Trainer,
    pool: Pool,
    targets: Targets,
    *,
    references: int,
    seed: int,
    store: Store,
    shard: Shard | None = None,
    crew: Crew | None = None,
    edited_by: str = "",
) -> dict[str, Any] | list[str]:
    """Carry an audit out.

    Parameters
    ----------
    trainer, pool, targets
        What makes reference models, of which samples, and the models that are compared.
    references
        How many reference models, an even number; half of them have each sample.
    seed
        Of the lot.
    store
        Where what was computed is kept.
    shard
        This process's share of the work; all of it by default.
    crew
        Processes that do all of it together.
    edited_by
        Tells edits apart that share references in one store.

    Returns
    -------
    dict or list of str
        Verdict and figures; or the names of parts that other shards have not computed yet.
    """
    inside = halves(len(pool.ids), references, seed)
    rows = [trainer.data.row(name) for name in pool.ids]
    samples = trainer.data.select(rows)
    others = _population(trainer, pool, seed)
    population = trainer.data.select(others) if others else None

    def measured(model: ConceptBottleneck) -> Arrays:
        found = {"pool": signals(model, samples)}
        return found if population is None else found | {"population": signals(model, population)}

    def reference(place: int) -> Arrays:
        return measured(trainer.without(pool.named(np.flatnonzero(~inside[place])), place))

    edit = f"edit-{edited_by}" if edited_by else "edit"
    parts: list[tuple[str, Callable[[], Arrays]]] = [
        ("noop", lambda: measured(targets.noop())),
        (edit, lambda: measured(targets.edit())),
        ("retrain", lambda: measured(targets.retrain())),
    ]
    parts += [(f"reference-{place:04d}", lambda place=place: reference(place)) for place in range(references)]  # type: ignore[misc]
    found, missing = collect(parts, store, shard, "Reference models", crew)
    if missing:
        return missing
    read = {"noop": found["noop"], "edit": found[edit], "retrain": found["retrain"]}
    kept = [found[f"reference-{place:04d}"] for place in range(references)]
    return _figures(pool, read, kept, inside, number=trainer.data.predicts_number)


def _population(trainer: Trainer, pool: Pool, seed: int) -> list[int]:
    """Rows that no model was trained with: validation and test samples outside the pool."""
    inside = set(pool.ids)
    rows = [
        row
        for row, (name, split) in enumerate(zip(trainer.data.ids, trainer.data.splits, strict=True))
        if split != "train" and name not in inside
    ]
    if len(rows) > _POPULATION:
        drawn = np.random.default_rng([seed, 3]).choice(len(rows), _POPULATION, replace=False)
        rows = [rows[place] for place in np.sort(drawn)]
    return rows


def _figures(
    pool: Pool, models: Mapping[str, Arrays], kept: list[Arrays], inside: NDArray[np.bool_], *, number: bool
) -> dict[str, Any]:
    attacks = _attacks(pool, models, kept, inside, number=number)
    main = attacks["lira_student"]["together"]
    comparison = _compared(pool, main)
    decision = decide(comparison)
    interval = {name: _interval(pool, main[name]) for name in MODELS}
    return {
        "verdict": decision.verdict,
        "why": decision.why,
        "edit": interval["edit"],
        "controls": {name: interval[name] | {"caught": caught(getattr(comparison, name))} for name in MODELS[::2]},
        "differences": {
            "noop_minus_edit": comparison.noop_minus_edit.to_dict(),
            "edit_minus_retrain": comparison.edit_minus_retrain.to_dict(),
        },
        "attacks": {
            attack: {
                signal: {name: _interval(pool, scores[name]) for name in MODELS} for signal, scores in by.items()
            }
            for attack, by in attacks.items()
        },
        "retained": _retained(pool, main),
        "epsilon_at_least": {
            name: epsilon_bound(main[name][pool.forget], main[name][pool.held_out]) for name in MODELS
        },
    }


def _attacks(
    pool: Pool, models: Mapping[str, Arrays], kept: list[Arrays], inside: NDArray[np.bool_], *, number: bool
) -> dict[str, dict[str, Scores]]:
    """Scores by attack, signal and model. ``together`` adds what class and concepts tell."""
    values = np.stack([one["pool"] for one in kept])
    out: dict[str, dict[str, Scores]] = {"lira_student": {}, "lira": {}, "rmia_gaussian": {}}
    for place, signal in enumerate(SIGNALS):
        fits = fit(values[:, :, place], inside)
        own = {name: models[name]["pool"][:, place] for name in MODELS}
        out["lira_student"][signal] = {name: lira_student(value, fits) for name, value in own.items()}
        out["lira"][signal] = {name: lira(value, fits) for name, value in own.items()}
        if len(pool.held_out) > 1:
            out["rmia_gaussian"][signal] = {
                name: rmia_gaussian(value, fits, pool.held_out) for name, value in own.items()
            }
    for attack in ("lira_student", "lira"):
        first, second = (out[attack][signal] for signal in SIGNALS)
        out[attack]["together"] = {name: first[name] + second[name] for name in MODELS}
    if "population" in kept[0]:
        likely = likelihoods(values, number=number)
        around = likelihoods(np.stack([one["population"] for one in kept]), number=number)
        out["rmia"] = {}
        for place, signal in enumerate(SIGNALS):
            mean = mean_likelihood(likely[:, :, place], inside)
            theirs = offline_likelihood(around[:, :, place])
            out["rmia"][signal] = {
                name: rmia(
                    likelihoods(models[name]["pool"], number=number)[:, place],
                    mean,
                    likelihoods(models[name]["population"], number=number)[:, place],
                    theirs,
                )
                for name in MODELS
            }
    return out


def _pair(pool: Pool, scores: Array) -> tuple[Array, Array]:
    return scores[pool.forget], scores[pool.held_out]


def _interval(pool: Pool, scores: Array) -> dict[str, float]:
    return auc_interval(*_pair(pool, scores)).to_dict()


def _compared(pool: Pool, scores: Scores) -> Comparison:
    pairs = {name: _pair(pool, scores[name]) for name in MODELS}
    return Comparison(
        auc_interval(*pairs["noop"]),
        auc_interval(*pairs["edit"]),
        auc_interval(*pairs["retrain"]),
        auc_difference(pairs["noop"], pairs["edit"]),
        auc_difference(pairs["edit"], pairs["retrain"], 0.99),
    )


def _retained(pool: Pool, scores: Scores) -> dict[str, Any] | None:
    """How well samples that stay can be told from such that were never there: they can, being members; an edit
    may make that easier.
    """
    if not len(pool.retained):
        return None
    pairs = {name: (scores[name][pool.retained], scores[name][pool.held_out]) for name in MODELS}
    change = auc_difference(pairs["edit"], pairs["noop"])
    return {
        **{name: auc_interval(*pair).to_dict() for name, pair in pairs.items()},
        "edit_minus_noop": change.to_dict(),
        "easier_to_see_than_before": change.low > 0,
    }
