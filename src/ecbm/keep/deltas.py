"""What an edit changed in a dataset: cells, labels, rows gone, rows new, columns gone, columns new."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load as arrays_from
from safetensors.numpy import save as array_bytes

from ecbm.keep.stored_tables import StoredTable, read_table, table_bytes

__all__ = ["Delta", "apply", "between", "delta_bytes", "read_delta"]


@dataclasses.dataclass(frozen=True)
class Delta:
    """From one table to the next, by position in the first."""

    arrays: dict[str, NDArray[Any]]
    new_concepts: list[str]
    appended: StoredTable | None
    types: dict[str, dict[str, str]] | None = None
    """Types and units of the new table's concepts that are not binary, where those differ from the old one's."""


def between(before: StoredTable, after: StoredTable) -> Delta | None:
    """The delta from one table to another; ``None`` where an edit could not have made it (order, classes)."""
    if before.ids == after.ids:  # most edits; no need to look every name up
        kept, places = after.ids, np.arange(len(after.ids))
    else:
        old_rows = {name: row for row, name in enumerate(before.ids)}
        kept = [name for name in after.ids if name in old_rows]
        places = np.array([old_rows[name] for name in kept], np.int64)
    fresh = after.ids[len(kept) :]
    old_columns = {name: column for column, name in enumerate(before.concept_names)}
    stay = [name for name in after.concept_names if name in old_columns]
    columns = np.array([old_columns[name] for name in stay], np.int64)
    new_concepts = after.concept_names[len(stay) :]
    unlike = (
        before.class_names != after.class_names
        or (before.target, before.target_unit) != (after.target, after.target_unit)
        or after.ids[: len(kept)] != kept
        or after.concept_names[: len(stay)] != stay
        or bool((np.diff(places) <= 0).any())
        or bool((np.diff(columns) <= 0).any())
        or [before.splits[row] for row in places] != after.splits[: len(kept)]
    )
    if unlike:
        return None
    shared = after.rows(np.arange(len(kept)))
    a = np.ascontiguousarray(before.concepts[places][:, columns]).view(np.uint32)
    b = np.ascontiguousarray(shared.concepts[:, : len(stay)]).view(np.uint32)
    rows, changed = np.nonzero(a != b)
    labels = np.nonzero(before.labels[places] != shared.labels)[0]
    arrays: dict[str, NDArray[Any]] = {
        "cell_rows": places[rows].astype(np.int32),
        "cell_columns": columns[changed].astype(np.int32),
        "cell_bits": b[rows, changed],
        "label_rows": places[labels].astype(np.int32),
        "label_values": shared.labels[labels],
        "gone_rows": _others(len(before.ids), places).astype(np.int32),
        "gone_columns": _others(len(before.concept_names), columns).astype(np.int32),
        "new_bits": np.ascontiguousarray(shared.concepts[:, len(stay) :]).view(np.uint32),
    }
    appended = after.rows(np.arange(len(kept), len(after.ids))) if fresh else None
    types = {"types": after.concept_types, "units": after.units}
    changed_types = None if types == {"types": before.concept_types, "units": before.units} else types
    kept_arrays = {name: array for name, array in arrays.items() if array.size}
    return Delta(kept_arrays, new_concepts, appended, changed_types)


def _others(count: int, some: NDArray[Any]) -> NDArray[np.int64]:
    """The places 0..count that are not among some, in order."""
    other = np.ones(count, bool)
    other[some] = False
    return np.nonzero(other)[0]


def delta_bytes(delta: Delta) -> bytes:
    """The delta as one safetensors file."""
    arrays = dict(delta.arrays)
    if delta.appended is not None:
        arrays["appended"] = np.frombuffer(table_bytes(delta.appended), np.uint8)
    arrays["names"] = np.frombuffer(json.dumps(delta.new_concepts).encode(), np.uint8)
    if delta.types is not None:
        arrays["types"] = np.frombuffer(json.dumps(delta.types).encode(), np.uint8)
    content: bytes = array_bytes(arrays)
    return content


def read_delta(content: bytes) -> Delta:
    """Inverse of :func:`delta_bytes`."""
    arrays = arrays_from(content)
    names = json.loads(arrays.pop("names").tobytes())
    appended = arrays.pop("appended", None)
    types = arrays.pop("types", None)
    return Delta(
        arrays,
        names,
        None if appended is None else read_table(appended.tobytes()),
        None if types is None else json.loads(types.tobytes()),
    )


def apply(delta: Delta, table: StoredTable, pool: int) -> StoredTable:
    """The next table; ``pool`` is the number of rows ever kept before those that the delta appends."""
    arrays = delta.arrays
    concepts, labels = table.concepts.copy(), table.labels.copy()
    if "cell_rows" in arrays:
        bits = concepts.view(np.uint32)
        bits[arrays["cell_rows"], arrays["cell_columns"]] = arrays["cell_bits"]
    if "label_rows" in arrays:
        labels[arrays["label_rows"]] = arrays["label_values"]
    result = dataclasses.replace(table, concepts=concepts, labels=labels)
    if "gone_rows" in arrays:
        result = result.rows(_others(len(table.ids), arrays["gone_rows"]))
    names = table.concept_names
    if "gone_columns" in arrays or delta.new_concepts:
        stay = _others(len(names), arrays.get("gone_columns", np.zeros(0, np.int32)))
        new = arrays.get("new_bits", np.zeros((len(result.ids), 0), np.uint32)).view(np.float32)
        result.concepts = np.concatenate([result.concepts[:, stay], new], axis=1)
        result.concept_names = [names[column] for column in stay.tolist()] + delta.new_concepts
    if delta.types is not None:
        result.concept_types, result.units = delta.types["types"], delta.types["units"]
    more = delta.appended
    if more is not None:
        result = dataclasses.replace(
            result,
            ids=result.ids + more.ids,
            splits=result.splits + more.splits,
            labels=np.concatenate([result.labels, more.labels]),
            concepts=np.concatenate([result.concepts, more.concepts]),
            origin=np.concatenate([result.origin, pool + np.arange(len(more.ids))]),
        )
    return result
