"""Opening a pickle that comes with a public archive, without running what it may contain."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ecbm.errors import InputError

__all__ = ["load_plain_pickle"]

_PLAIN = {"list", "dict", "set", "frozenset", "tuple", "str", "int", "float", "bool", "bytes", "complex"}


def _latin1(text: str, encoding: str) -> bytes:
    """Old pickles spell bytes as text to be encoded; only as much of ``codecs.encode`` as that needs."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"encoding {encoding!r}")
    return text.encode("latin1")


def _numpy_parts() -> dict[str, Any]:
    # An array's own way of saying how to rebuild it, so that no private name of NumPy stands here.
    reconstruct = np.zeros(1).__reduce__()[0]
    scalar = np.float64(0).__reduce__()[0]
    parts: dict[str, Any] = {"numpy.ndarray": np.ndarray, "numpy.dtype": np.dtype}
    for module in ("numpy.core.multiarray", "numpy._core.multiarray"):
        parts[f"{module}._reconstruct"] = reconstruct
        parts[f"{module}.scalar"] = scalar
    return parts


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[str, Callable[..., Any]] = {"_codecs.encode": _latin1, **_numpy_parts()}
        if module in ("builtins", "__builtin__") and name in _PLAIN:
            return super().find_class("builtins", name)
        found = allowed.get(f"{module}.{name}")
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it asks for an object outside the file")


def load_plain_pickle(path: Path) -> object:
    """Load a pickle of lists, dictionaries, text, numbers and number arrays; refuse anything else.

    Raises
    ------
    InputError
        When the file is damaged, or asks for any other class or function; nothing of it has been called then.
    """
    try:
        return _Unpickler(io.BytesIO(path.read_bytes())).load()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    # A damaged pickle can raise nearly every kind of exception.
    except Exception as error:
        reason = " ".join(str(error).split())[:150]
        raise InputError(f"{path}: refused, not a pickle of plain lists and text ({reason})") from None
