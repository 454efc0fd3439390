"""The methods of editing by name; a new one is a file beside these and a row here."""

from __future__ import annotations

from importlib import import_module

from ecbm.edit.alignment import Alignment
from ecbm.edit.methods.base import Method, Options, Outcome
from ecbm.edit.state import EditorState

__all__ = ["METHODS", "Method", "Options", "Outcome"]


def _found_in(module: str, function: str) -> Method:
    """A method that is loaded when it is first used: curvature takes longer to load than a small edit to make."""

    def run(alignment: Alignment, state: EditorState, options: Options) -> Outcome:
        method: Method = getattr(import_module(f"{__name__}.{module}"), function)
        return method(alignment, state, options)

    return run


METHODS: dict[str, Method] = {
    "auto": _found_in("auto", "auto_edit"),
    "exact": _found_in("exact", "exact_edit"),
    "ekfac": _found_in("influence", "ekfac_edit"),
    "hessian": _found_in("influence", "hessian_edit"),
    "retrain": _found_in("retrain", "retrain_edit"),
}
