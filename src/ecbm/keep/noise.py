"""The secret seeds of certified releases: kept, so that versions can be computed again, until an erasure.

Who knows the seed can subtract the noise. It is a detail of the ledger that no command prints and no export holds;
an erasure destroys those of all earlier versions, and the release that it makes itself has none on record.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from ecbm.keep.ledger import Detail
from ecbm.train.recipe import Recipe

__all__ = ["PARTS", "new_noise", "noise_details", "noise_of"]

PARTS = ("noise", "certified")


def new_noise(recipe: Recipe) -> int | None:
    """A seed of 128 bits from the system, for a recipe that promises certified removal."""
    return None if recipe.certified is None else secrets.randbits(128)


def noise_details(noise: int | None, record: Mapping[str, Any] | None) -> list[Detail]:
    """The ledger details of a release: its seed, and what of the budget was spent."""
    if noise is None or record is None:
        return []
    return [Detail("noise", f"{noise:032x}"), Detail("certified", dict(record))]


def noise_of(single: Mapping[str, Any]) -> int | None:
    """The seed among the details of a version."""
    return int(single["noise"], 16) if "noise" in single else None
