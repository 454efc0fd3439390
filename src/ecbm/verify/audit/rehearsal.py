"""A rehearsal: a method's erasure tried on samples that are still there, from a model that is trained for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ecbm.edit.editor import Editor
from ecbm.edit.state import EditorState
from ecbm.errors import InputError
from ecbm.read.dataset import Dataset
from ecbm.train.model import ConceptBottleneck
from ecbm.verify.audit.asked import Asked
from ecbm.verify.audit.collecting import Crew, Memory, Store
from ecbm.verify.audit.erasure import audit_erasure, rehearsed
from ecbm.verify.audit.forget_sets import Pool, choose_pool, pool_of_ids
from ecbm.verify.audit.quick import check_quickly
from ecbm.verify.audit.references import is_frozen, trainer_of
from ecbm.verify.audit.release import audit_release
from ecbm.verify.audit.threat import limits, threat_model

__all__ = ["finished", "rehearse", "verify"]

StoreFor = Callable[[dict[str, Any]], Store]
"""A store for the plan of an audit, as plain values."""


def finished(
    found: dict[str, Any] | list[str], about: dict[str, Any], asked: Asked, *, frozen: bool
) -> dict[str, Any]:
    """The result in its public form; of a shard whose neighbours are not done, how far it is."""
    if isinstance(found, list):
        nothing = {"auc": None, "low": None, "high": None}
        found = {
            "verdict": "inconclusive",
            "why": f"this share is done; {len(found)} parts of other shares are missing: run those, then once "
            "without a shard",
            "edit": nothing,
            "controls": {"noop": nothing | {"caught": None}, "retrain": nothing | {"caught": None}},
            "missing": found,
        }
    return {
        "verdict": found["verdict"],
        "depth": asked.depth,
        "why": found["why"],
        "audited": about,
        **{name: value for name, value in found.items() if name not in ("verdict", "why")},
        "threat_model": threat_model(frozen=frozen) if asked.depth != "quick" else None,
        "limits": limits(asked.depth, what=about["what"], frozen=frozen),
    }


def rehearse(
    model: ConceptBottleneck,
    data: Dataset,
    state: EditorState,
    asked: Asked,
    store_for: StoreFor | None = None,
    crew: Crew | None = None,
) -> dict[str, Any]:
    """Audit a method on the samples of a model's own training data."""
    frozen, method = is_frozen(model.recipe), asked.method or "auto"
    kind = asked.forget or "random"
    pool: Pool
    if asked.ids is not None:
        pool = pool_of_ids(data, asked.ids, asked.seed)
    else:
        pool = choose_pool(state, data, kind, asked.samples_wanted, asked.seed, asked.group)
    about: dict[str, Any] = {
        "what": "rehearsal",
        "method": method,
        "options": dict(asked.options),
        "forget": "ids" if asked.ids is not None else kind,
        "samples_are": pool.words,
        "forgotten": len(pool.forget) if asked.depth == "erasure" else len(pool.ids) // 3,
        "left_out": len(pool.held_out),
        "retained": len(pool.retained),
        "seed": asked.seed,
        "exact_references": frozen,
    }
    plan = {
        "depth": asked.depth,
        "data": pool.data.fingerprint,
        "recipe": model.recipe.to_dict(),
        "pool": list(pool.ids),
        "forget": len(pool.forget),
        "seed": asked.seed,
    }
    by = "-".join([method, *(f"{name}={value}" for name, value in sorted(asked.options.items()))])
    if asked.depth == "release":
        plan["method"] = by  # a pair is one part, its edit included
    store = Memory() if store_for is None else store_for(plan)
    trainer = trainer_of(model, pool.data, state if pool.data is data else None)
    found: dict[str, Any] | list[str]
    if asked.depth == "release":
        about["pairs"] = asked.pairs_wanted
        found = audit_release(
            trainer,
            pool,
            method,
            asked.options,
            pairs=asked.pairs_wanted,
            seed=asked.seed,
            store=store,
            shard=asked.shard,
            crew=crew,
        )
    else:
        about["references"] = asked.references_for(frozen=frozen)
        found = audit_erasure(
            trainer,
            pool,
            rehearsed(trainer, pool, method, asked.options),
            references=about["references"],
            seed=asked.seed,
            store=store,
            shard=asked.shard,
            crew=crew,
            edited_by=by,
        )
    return finished(found, about, asked, frozen=frozen)


def verify(subject: Any, data: Dataset | None = None, *, depth: str = "quick", **options: Any) -> dict[str, Any]:
    """Verify a model: is it what its data gives, and would samples that are removed from it be gone?

    Parameters
    ----------
    subject
        A :class:`ecbm.Workspace`, or a trained model.
    data
        With a model: the dataset it was trained on.
    depth
        ``"quick"``: certificate, residuals and objectives computed again. ``"erasure"``: membership inference on
        samples that are removed, with controls. ``"release"``: many pairs of edit and retraining.
    options
        ``forget`` (``"random"``, ``"influential"``, ``"canaries"``, ``"subgroup"``), ``ids``, ``group``,
        ``method``, ``samples``, ``references``, ``pairs``, ``seed``; of a workspace also ``version`` and ``shard``.
        Others are options of the method.

    Returns
    -------
    dict
        ``verdict`` (``"passed"``, ``"failed"`` or ``"inconclusive"``), ``why``, ``edit`` (``auc``, ``low``,
        ``high``), ``controls`` (``noop`` and ``retrain``), the threat model, and more (docs/verify.md).

    Examples
    --------
    >>> import ecbm
    >>> data = ecbm.datasets.breast_cancer()
    >>> model = ecbm.train(data, ecbm.Recipe(backbone="linear"))
    >>> ecbm.verify(model, data)["verdict"]
    'passed'
    """
    if not isinstance(subject, ConceptBottleneck):
        if not hasattr(subject, "verify"):
            raise InputError(f"verify: expected a workspace, or a model and its data, got {type(subject).__name__}")
        if data is not None:
            raise InputError("verify: a workspace has its own data; leave data out")
        found: dict[str, Any] = subject.verify(depth, **options)
        return found
    if data is None:
        raise InputError("verify: a model is verified on the data it was trained on; give both")
    model = subject
    names = ("method", "forget", "ids", "group", "samples", "references", "pairs", "seed")
    chosen = {name: options.pop(name) for name in names if name in options}
    if chosen.get("ids") is not None:
        chosen["ids"] = tuple(chosen["ids"])
    asked = Asked(depth=depth, options=options, **chosen)
    if depth == "quick":
        return finished(check_quickly(model, data), {"what": "model"}, asked, frozen=is_frozen(model.recipe))
    return rehearse(model, data, Editor(model, data).state, asked)
