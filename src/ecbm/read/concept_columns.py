"""All concept columns of a table: each taken for what it is, groups that were declared made one concept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ecbm.errors import InputError, unknown_name
from ecbm.options import type_option
from ecbm.read.columns import Table
from ecbm.read.concept_types import concept_groups
from ecbm.read.kinds import Doubt, Found, concept_column
from ecbm.read.said_types import Said

__all__ = ["concept_columns", "group_remarks"]

# What a distribution that people typed sums to, within this.
_SUM_TOLERANCE = 2e-3


def concept_columns(table: Table, names: Sequence[str], said: Mapping[str, Said]) -> list[Found]:
    """What each concept column is, in the order of the table.

    Parameters
    ----------
    table
        The table.
    names
        Its concept columns.
    said
        Types by column, or by group: columns ``wing=red``, ``wing::red`` or (as pandas names them) ``wing_red``.

    Raises
    ------
    InputError
        One line about every column that could be several things.
    """
    groups = _declared_groups(table, names, said)
    member = {column: group for group, columns in groups.items() for column in columns}
    found: list[Found] = []
    doubts: list[Doubt] = []
    done: set[str] = set()
    for name in names:
        group = member.get(name)
        if group is None:
            made = concept_column(table, name, said.get(name))
            doubts += [made] if isinstance(made, Doubt) else []
            found += [made] if isinstance(made, Found) else []
        elif group not in done:
            done.add(group)
            found.append(_group(table, group, groups[group], said[group]))
    if doubts:
        raise doubts[0].error(table, doubts[1:])
    return found


def _declared_groups(table: Table, names: Sequence[str], said: Mapping[str, Said]) -> dict[str, tuple[str, ...]]:
    """Columns of every group whose type was given."""
    by_name = concept_groups(names)
    groups: dict[str, tuple[str, ...]] = {}
    for key, one in said.items():
        if key in names:
            continue
        columns = by_name.get(key) or tuple(name for name in names if _after(name, key))
        if not columns:
            known = [*names, *(group for group in by_name if group not in names)]
            raise unknown_name("column", key, known, where=f"{table.path}: {type_option(key, one.kind)}")
        if one.kind == "continuous":
            raise InputError(
                f"{table.path}: {type_option(key, one.kind)}: {key!r} has {len(columns)} columns "
                f"({columns[0]!r}, …); a continuous concept has one"
            )
        if one.kind != "binary":
            groups[key] = columns
    return groups


def _after(name: str, group: str) -> str:
    """What stands behind ``group_`` in a name, as pandas' get_dummies writes it."""
    return name[len(group) + 1 :] if name.startswith(f"{group}_") else ""


def _group(table: Table, group: str, columns: Sequence[str], said: Said) -> Found:
    """A declared group of columns as one concept."""
    parts = [concept_column(table, column, Said("binary")) for column in columns]
    values = np.concatenate([part.values for part in parts if isinstance(part, Found)], axis=1)
    pandas = all(_after(column, group) for column in columns) and group not in concept_groups(columns)
    names = tuple(f"{group}::{_after(column, group)}" for column in columns) if pandas else tuple(columns)
    gone = np.isnan(values)
    torn = gone.any(1) & ~gone.all(1)
    if torn.any():
        raise table.error(
            int(torn.argmax()),
            None,
            f"{group!r} is filled in some of its columns only; fill all or leave all empty",
        )
    if said.kind == "categorical":
        total = values.sum(1, dtype=np.float64)
        wrong = ~gone[:, 0] & (np.abs(total - 1) > _SUM_TOLERANCE)
        if wrong.any():
            row = int(wrong.argmax())
            what = "no value is present" if total[row] == 0 else f"its values sum to {total[row]:g}"
            raise table.error(
                row,
                None,
                f"{group!r}: {what}, but a categorical concept has exactly one; where it is missing leave its "
                "columns empty, and give a value that has no column one of its own",
            )
    return Found(group, said.kind, names, values, f"you said so: {len(columns)} columns")


def group_remarks(table: Table, found: Sequence[Found]) -> list[str]:
    """A line for every group of yes/no columns of which each row has exactly one: it could be one concept."""
    single = {one.column: one for one in found if one.kind == "binary" and one.names == (one.column,)}
    groups = {group: members for group, members in concept_groups(single).items() if len(members) > 1}
    prefixes: dict[str, list[str]] = {}
    for name in single:
        head, mark, _ = name.rpartition("_")
        if (
            mark and head and name in concept_groups([name])
        ):  # 'nucleus_shape=round' is one of 'nucleus_shape' alone
            prefixes.setdefault(head, []).append(name)
    groups |= {head: tuple(names) for head, names in prefixes.items() if len(names) > 1 and head not in groups}
    remarks = []
    for group, members in groups.items():
        values = np.concatenate([single[name].values for name in members], axis=1)
        if any(">=" in name for name in members):
            falls = np.isnan(values).any(1) | (np.diff(values, axis=1) <= 0).all(1)
            if falls.all():
                remarks.append(
                    f"{group!r}: {len(members)} thresholds, read as separate yes/no concepts; graded: "
                    f"{type_option(group, 'ordinal')}"
                )
            continue
        known = values[~np.isnan(values).any(1)]
        if len(known) and bool((np.isin(known, (0, 1)).all(1) & (known.sum(1) == 1)).all()):
            remarks.append(
                f"{group!r}: every row has exactly one of its {len(members)} columns, read as separate yes/no "
                f"concepts; one concept: {type_option(group, 'categorical')}"
            )
    return remarks
