"""Verify: metrics, calibration, leakage, intervention curves, and audits of edits and erasures."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any


# A folder and a verb of the package in one object, as ``ecbm.train`` is.
class _Verify(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from ecbm.verify.audit.rehearsal import verify

        return verify(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        from ecbm.verify.audit.rehearsal import verify

        return inspect.signature(verify)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What ``help(ecbm.verify)`` shows: how to call it."""
        from ecbm.verify.audit.rehearsal import verify

        return f"verify{self.__signature__}\n\n{inspect.getdoc(verify) or ''}"


sys.modules[__name__].__class__ = _Verify
