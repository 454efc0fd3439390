"""The audit before a release: many pairs of an edit and a retraining, sample by sample (U-LiRA, Hayes et al. 2024).

In every pair a third of a pool is forgotten, a third stays and a third is left out, by lot. Over all pairs each
sample has values of "trained with it, then forgotten" (edit), of "trained with it" (noop), and of "never trained
with it" twice: from retrainings beside its own edits (retrain, a control) and from those of pairs that left it
out (what all are compared with). An attacker learns from half of the pairs what the two kinds look like for each
sample and guesses in the other half.

Samples and pairs are not independent, so intervals come from leaving out a twentieth of the pairs at a time (the
jackknife).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ecbm.errors import InputError
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.audit.collecting import Arrays, Crew, Shard, Store, collect
from ecbm.verify.audit.designs import FORGOTTEN, LEFT_OUT, thirds
from ecbm.verify.audit.divergence import FEWEST_FOR_BINS, binned_divergence, divergence_of
from ecbm.verify.audit.erasure import MODELS
from ecbm.verify.audit.forget_sets import Pool
from ecbm.verify.audit.intervals import Difference, Interval, auc
from ecbm.verify.audit.references import Trainer
from ecbm.verify.audit.signals import SIGNALS, signals
from ecbm.verify.audit.verdict import Comparison, Verdict, caught, decide

__all__ = ["FEWEST_PAIRS", "audit_release", "release_figures"]

FEWEST_PAIRS = 60
_BLOCKS = 20
# Divergences in nats that are no more than rounding of two ways to the same optimum.
_ROUNDING = 1e-6
Array = NDArray[np.float64]


def audit_release(
    trainer: Trainer,
    pool: Pool,
    method: str,
    options: Mapping[str, Any],
    *,
    pairs: int,
    seed: int,
    store: Store,
    shard: Shard | None = None,
    crew: Crew | None = None,
) -> dict[str, Any] | list[str]:
    """Carry the audit out with so many pairs; parameters and result are as for
    :func:`~ecbm.verify.audit.erasure.audit_erasure`.
    """
    if pairs < FEWEST_PAIRS:
        raise InputError(f"a release audit needs {FEWEST_PAIRS} pairs at least, got {pairs}")
    samples = trainer.data.select([trainer.data.row(name) for name in pool.ids])

    def pair(place: int) -> Arrays:
        roles = thirds(len(pool.ids), place, seed)
        left_out = pool.named(np.flatnonzero(roles == LEFT_OUT))
        forgotten = pool.named(np.flatnonzero(roles == FORGOTTEN))
        noop = trainer.without(left_out, 2 * place)
        models: dict[str, ConceptBottleneck] = {
            "noop": noop,
            "edit": trainer.edited(noop, left_out, forgotten, method, options),
            "retrain": trainer.without([*left_out, *forgotten], 2 * place + 1),
        }
        return {name: signals(model, samples) for name, model in models.items()}

    parts: list[tuple[str, Callable[[], Arrays]]] = [
        (f"pair-{place:04d}", lambda place=place: pair(place))  # type: ignore[misc]
        for place in range(pairs)
    ]
    found, missing = collect(parts, store, shard, "Pairs of edit and retraining", crew)
    if missing:
        return missing
    roles = np.stack([thirds(len(pool.ids), place, seed) for place in range(pairs)])
    values = {name: np.stack([found[part][name] for part, _ in parts]) for name in MODELS}
    return release_figures(values, roles)


Statistics = dict[tuple[str, str], float]
"""What is told of some of the pairs: the AUC ("auc") and the mean divergence by signal, each by model."""


class _Jackknife:
    """Statistics of all pairs, and of all but a twentieth of them at a time."""

    def __init__(self, values: Mapping[str, Array], roles: NDArray[np.int64]) -> None:
        everything = np.arange(len(roles))
        # Three pairs in a row share a lot.
        block_of = everything // 3 % _BLOCKS
        self._whole = _statistics(values, roles, everything)
        self._parts = [_statistics(values, roles, everything[block_of != block]) for block in range(_BLOCKS)]

    def interval(self, kind: str, model: str, against: str | None = None, level: float = 0.95) -> Difference:
        """A figure of a model, or its difference to that of another one, with its interval."""

        def read(found: Statistics) -> float:
            return found[kind, model] - (0.0 if against is None else found[kind, against])

        value, each = read(self._whole), np.array([read(one) for one in self._parts])
        error = math.sqrt((_BLOCKS - 1) / _BLOCKS * float(((each - each.mean()) ** 2).sum()))
        half = _student(level) * error
        return Difference(value, value - half, value + half)

    def auc(self, model: str) -> Interval:
        found = self.interval("auc", model)
        return Interval(found.difference, max(0.0, found.low), min(1.0, found.high))


def release_figures(values: Mapping[str, Array], roles: NDArray[np.int64]) -> dict[str, Any]:
    """Verdict and figures from signals (pairs, samples, 2) by model and roles (pairs, samples)."""
    found = _Jackknife(values, roles)
    comparison = Comparison(
        found.auc("noop"),
        found.auc("edit"),
        found.auc("retrain"),
        found.interval("auc", "noop", "edit"),
        found.interval("auc", "edit", "retrain", 0.99),
    )
    apart = {signal: found.interval(signal, "edit", "retrain", 0.99) for signal in SIGNALS}
    decision = decide(comparison)
    worst = max(SIGNALS, key=lambda signal: apart[signal].low)
    if decision.verdict == "passed" and apart[worst].low > _ROUNDING:
        gap = apart[worst]
        decision = Verdict(
            "failed",
            f"what edited models say of the samples differs from what retrained ones say ({worst}: divergence "
            f"{gap.difference:+.3g} against retraining, 99 % interval {gap.low:+.3g} to {gap.high:+.3g})",
        )
    return {
        "verdict": decision.verdict,
        "why": decision.why,
        "edit": comparison.edit.to_dict(),
        "controls": {
            name: getattr(comparison, name).to_dict() | {"caught": caught(getattr(comparison, name))}
            for name in MODELS[::2]
        },
        "differences": {
            "noop_minus_edit": comparison.noop_minus_edit.to_dict(),
            "edit_minus_retrain": comparison.edit_minus_retrain.to_dict(),
        },
        "divergence": {
            signal: {
                **{name: _named(found.interval(signal, name)) for name in MODELS},
                "edit_minus_retrain": apart[signal].to_dict(),
            }
            for signal in SIGNALS
        },
        "binned_divergence": _binned(values, roles),
    }


def _named(found: Difference) -> dict[str, float]:
    return {"mean": found.difference, "low": found.low, "high": found.high}


def _student(level: float) -> float:
    from scipy.stats import t

    return float(t.ppf(0.5 + level / 2, _BLOCKS - 1))


def _statistics(values: Mapping[str, Array], roles: NDArray[np.int64], use: NDArray[np.int64]) -> Statistics:
    found = {("auc", name): _unlearning_auc(values[name], values["retrain"], roles, use) for name in MODELS}
    for place, signal in enumerate(SIGNALS):
        never = values["retrain"][..., place]
        for name in MODELS:
            found[signal, name] = _mean_divergence(values[name][..., place], never, roles, use)
    return found


def _unlearning_auc(mine: Array, never: Array, roles: NDArray[np.int64], use: NDArray[np.int64]) -> float:
    """How well forgotten samples are told from such that were never there, learning from one half of the pairs and
    guessing in the other. Three pairs in a row stay together.
    """
    members, others = [], []
    for half in (0, 1):
        known, open_ = use[use // 3 % 2 == half], use[use // 3 % 2 != half]
        score = np.zeros(mine[open_].shape[:2]), np.zeros(mine[open_].shape[:2])
        for place in range(mine.shape[2]):
            one = _moments(mine[known][..., place], roles[known] == FORGOTTEN)
            two = _moments(never[known][..., place], roles[known] == LEFT_OUT)
            for total, signal in zip(score, (mine[open_][..., place], never[open_][..., place]), strict=True):
                total += _predictive(signal, *one) - _predictive(signal, *two)
        members.append(score[0][roles[open_] == FORGOTTEN])
        others.append(score[1][roles[open_] == LEFT_OUT])
    return auc(np.concatenate(members), np.concatenate(others))


def _moments(values: Array, mask: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Mean, variance and count of every sample over the pairs that are meant."""
    count = mask.sum(0)
    if int(count.min()) < 4:
        raise InputError("a sample was forgotten or left out in fewer than four pairs; take more pairs")
    mean = np.where(mask, values, 0.0).sum(0) / count
    variance = np.where(mask, (values - mean) ** 2, 0.0).sum(0) / (count - 1)
    return mean, np.maximum(variance, 1e-24 * (1 + mean**2)), count.astype(np.float64)


def _predictive(signal: Array, mean: Array, variance: Array, count: Array) -> Array:
    """log density of a further value, with Student's distribution."""
    from scipy.special import gammaln

    freedom, square = count - 1, variance * (1 + 1 / count)
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(np.pi * freedom * square)
    log: Array = constant - (freedom + 1) / 2 * np.log1p((signal - mean) ** 2 / (freedom * square))
    return log


def _mean_divergence(mine: Array, never: Array, roles: NDArray[np.int64], use: NDArray[np.int64]) -> float:
    """The mean over samples of KL(forgotten ‖ never there)."""
    here = roles[use]
    return float(
        divergence_of(*_moments(mine[use], here == FORGOTTEN), *_moments(never[use], here == LEFT_OUT)).mean()
    )


def _kinds(roles: NDArray[np.int64]) -> list[tuple[int, tuple[NDArray[np.bool_], NDArray[np.bool_]]]]:
    return [(place, (row == FORGOTTEN, row == LEFT_OUT)) for place, row in enumerate(roles.T)]


def _binned(values: Mapping[str, Array], roles: NDArray[np.int64]) -> dict[str, Any] | None:
    """The divergence by bins where there are enough models of each kind; ``None`` otherwise."""
    if min(int((roles == kind).sum(0).min()) for kind in (FORGOTTEN, LEFT_OUT)) < FEWEST_FOR_BINS:
        return None
    return {
        signal: {
            name: float(
                np.mean(
                    [
                        binned_divergence(
                            values[name][a, row, place][:, None], values["retrain"][b, row, place][:, None]
                        )[0]
                        for row, (a, b) in _kinds(roles)
                    ]
                )
            )
            for name in MODELS
        }
        for place, signal in enumerate(SIGNALS)
    }
