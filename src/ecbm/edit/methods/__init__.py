"""The methods of editing by name; a new one is a file beside these and a row here."""

from __future__ import annotations

from functools import partial

from ecbm.edit.methods.auto import auto
from ecbm.edit.methods.base import Method, Options, Outcome
from ecbm.edit.methods.exact import exact
from ecbm.edit.methods.influence import influence
from ecbm.edit.methods.retrain import retrain

__all__ = ["METHODS", "Method", "Options", "Outcome"]

METHODS: dict[str, Method] = {
    "auto": auto,
    "exact": exact,
    "ekfac": partial(influence, "ekfac"),
    "hessian": partial(influence, "hessian"),
    "retrain": retrain,
}
