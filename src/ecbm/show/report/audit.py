"""The result of ``ecbm verify``, as far as a report shows it.

Only figures and fixed words are taken: an audit may name samples, and a report outlives the right to name them.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from ecbm.errors import InputError
from ecbm.keep.auditing import last_verdicts
from ecbm.keep.workspace import Workspace

__all__ = ["QUICK", "VERDICTS", "audit_from", "kept_audit", "read_audit"]

VERDICTS = {
    "passed": "The audit could not tell this model from one that was trained without the data in question.",
    "failed": "The audit found traces of the data in question in this model.",
    "inconclusive": "The audit is inconclusive: as it was run, it could not have seen a difference.",
}
# A quick check measures the model; it does not try to recognise anybody in it.
QUICK = {
    "passed": "The model was measured again: model, data and record agree. Whether removed data can still be "
    "recognised in it was not tried.",
    "failed": "The model was measured again, and it is not what its record says.",
    "inconclusive": "The model was measured again, but there was nothing to hold it against.",
}
_CONTROLS = ("noop", "retrain")


def read_audit(path: str | Path) -> dict[str, Any]:
    """The audit in a JSON file that ``ecbm verify --json`` has printed."""
    try:
        given = json.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror or error}; give the JSON that 'ecbm verify --json' prints"
        ) from None
    except ValueError:
        raise InputError(f"{path}: not JSON; give what 'ecbm verify --json' prints") from None
    return audit_from(given, str(path))


def kept_audit(workspace: Workspace, number: int | str | None) -> dict[str, Any] | None:
    """The deepest result of ``ecbm verify`` that the workspace keeps for a version."""
    found = last_verdicts(workspace, number)
    depth = next((name for name in ("release", "erasure", "quick") if name in found), None)
    return None if depth is None else audit_from(found[depth])


def audit_from(given: Any, where: str = "audit") -> dict[str, Any]:
    """The verdict and the figures of an audit, checked.

    Examples
    --------
    >>> figures = {"auc": 0.51, "low": 0.46, "high": 0.56}
    >>> controls = {"noop": figures, "retrain": figures}
    >>> audit_from({"verdict": "passed", "edit": figures, "controls": controls})["verdict"]
    'passed'
    """
    if not isinstance(given, dict) or given.get("verdict") not in VERDICTS:
        raise InputError(f"{where}: 'verdict' must be one of {', '.join(VERDICTS)}; give what 'ecbm verify' prints")
    controls = given.get("controls")
    found: dict[str, Any] = {"verdict": given["verdict"], "words": VERDICTS[given["verdict"]]}
    found["edit"] = _figures(given.get("edit"), f"{where}: 'edit'")
    found["controls"] = {
        name: _figures(controls.get(name) if isinstance(controls, dict) else None, f"{where}: control {name!r}")
        for name in _CONTROLS
    }
    found["recognition"] = found["edit"] is not None
    if not found["recognition"]:
        found["words"] = QUICK[given["verdict"]]
    version = given.get("version")
    found["version"] = version if isinstance(version, int) and not isinstance(version, bool) else None
    return found


def _figures(given: Any, where: str) -> dict[str, float] | None:
    """AUC and interval; ``None`` where the audit has none (the quick depth)."""
    if not isinstance(given, dict) or given.get("auc") is None:
        return None
    found = {}
    for name in ("auc", "low", "high"):
        value = given.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise InputError(f"{where}: {name!r} must be a number, got {value!r}")
        if not 0 <= value <= 1:
            raise InputError(f"{where}: {name!r} must lie from 0 to 1, got {value!r}")
        found[name] = float(value)
    return found
