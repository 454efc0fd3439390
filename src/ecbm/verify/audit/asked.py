"""What an audit is asked for, checked before any work."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ecbm.edit.methods import METHODS, Options
from ecbm.errors import InputError, unknown_name
from ecbm.verify.audit.forget_sets import KINDS
from ecbm.verify.audit.release import FEWEST_PAIRS

__all__ = ["DEPTHS", "Asked"]

DEPTHS = ("quick", "erasure", "release")
# Reference models of a frozen and of a deep backbone, samples to be forgotten, pairs. On CUB features 16 references
# told members from others in 99.5 % of pairs of samples and 48 in all of them; a deep reference is a whole
# training.
_REFERENCES, _DEEP_REFERENCES = 32, 8
_SAMPLES = {"erasure": 200, "release": 60}
_PAIRS = 200


@dataclasses.dataclass(frozen=True)
class Asked:
    """What is asked for; ``None`` leaves a choice to the audit.

    Parameters
    ----------
    depth
        One of :data:`DEPTHS`.
    method, options
        How samples are removed in a rehearsal, as for :meth:`ecbm.Editor.apply`.
    forget
        Rehearse on this kind of samples (:data:`~ecbm.verify.audit.forget_sets.KINDS`).
    ids
        Rehearse on these samples.
    group
        The class or concept of ``forget="subgroup"``.
    samples, references, pairs
        How many are forgotten, how many reference models there are (even), how many pairs a release takes.
    seed
        Of every lot.
    shard
        (i, n): do the i-th of n shares of the work.
    processes
        How many processes of this machine share the work out among themselves.
    """

    depth: str = "quick"
    method: str | None = None
    options: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    forget: str | None = None
    ids: tuple[str, ...] | None = None
    group: str | None = None
    samples: int | None = None
    references: int | None = None
    pairs: int | None = None
    seed: int = 0
    shard: tuple[int, int] | None = None
    processes: int | None = None

    def __post_init__(self) -> None:
        if self.depth not in DEPTHS:
            raise unknown_name("depth", self.depth, DEPTHS)
        if self.method is not None and self.method not in METHODS:
            raise unknown_name("method", self.method, tuple(METHODS))
        if self.forget is not None and self.forget not in KINDS:
            raise unknown_name("forget set", self.forget, KINDS)
        if self.depth == "quick" and any(
            value is not None
            for value in (self.forget, self.ids, self.group, self.samples, self.references, self.pairs, self.shard)
        ):
            raise InputError("a quick check makes no test on samples; say depth erasure or release")
        if self.group is not None and self.forget != "subgroup":
            raise InputError("a group is for the forget set 'subgroup'; add it, or leave the group out")
        if self.ids is not None and (self.forget is not None or self.group is not None):
            raise InputError("samples are named or drawn: give ids or a forget set, not both")
        if self.ids is not None and (self.depth == "release" or not self.ids):
            raise InputError("name at least one sample, for depth erasure; a release draws its own")
        for name, least in (("samples", 4), ("references", 4), ("pairs", FEWEST_PAIRS), ("processes", 1)):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or value < least):
                raise InputError(f"{name} must be a whole number from {least} on, got {value!r}")
        if self.references is not None and self.references % 2:
            raise InputError(f"references come in pairs: give an even number, got {self.references}")
        if self.shard is not None and (self.processes or 1) > 1:
            raise InputError("a shard is the work of one process; give a shard or a number of processes, not both")
        if not isinstance(self.seed, int) or self.seed < 0:
            raise InputError(f"seed must be a whole number from 0 on, got {self.seed!r}")
        known = {field.name for field in dataclasses.fields(Options)}
        for name in self.options:
            if name not in known:
                raise unknown_name("option of an edit", name, sorted(known))
        Options(**self.options)

    def references_for(self, *, frozen: bool) -> int:
        return self.references or (_REFERENCES if frozen else _DEEP_REFERENCES)

    @property
    def samples_wanted(self) -> int:
        return self.samples or _SAMPLES[self.depth]

    @property
    def pairs_wanted(self) -> int:
        return self.pairs or _PAIRS
