"""The methods of editing by name; a new one is a file beside these and a row here."""

from __future__ import annotations

from functools import partial

from ecbm.edit.methods.auto import auto_edit
from ecbm.edit.methods.base import Method, Options, Outcome
from ecbm.edit.methods.exact import exact_edit
from ecbm.edit.methods.influence import influence_edit
from ecbm.edit.methods.retrain import retrain_edit

__all__ = ["METHODS", "Method", "Options", "Outcome"]

METHODS: dict[str, Method] = {
    "auto": auto_edit,
    "exact": exact_edit,
    "ekfac": partial(influence_edit, "ekfac"),
    "hessian": partial(influence_edit, "hessian"),
    "retrain": retrain_edit,
}
