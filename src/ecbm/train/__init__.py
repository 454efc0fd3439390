"""Train: the model, its objectives, the convex heads and the gradient loop."""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any


# ``ecbm.train`` is this folder and the package's first verb, and one object is both. Were the verb a function of
# its own, ``import ecbm.train.model as m`` would look for ``model`` in the function.
class _Train(types.ModuleType):
    def __call__(self, *arguments: Any, **options: Any) -> Any:
        from ecbm.train.train import train

        return train(*arguments, **options)

    @property
    def __signature__(self) -> inspect.Signature:
        from ecbm.train.train import train

        return inspect.signature(train)

    @property
    def __doc__(self) -> str:  # type: ignore[override]
        """What ``help(ecbm.train)`` shows: how to call it."""
        from ecbm.train.train import train

        return f"train{self.__signature__}\n\n{inspect.getdoc(train) or ''}"


sys.modules[__name__].__class__ = _Train
