"""Feature arrays from ``.npy`` and ``.npz`` files, never through pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ecbm.errors import InputError, unknown_name

__all__ = ["as_features", "given_features", "read_features"]


def read_features(
    path: str | Path, key: str | None = None, *, pictures: bool | None = None, gaps: bool = False
) -> Tensor:
    """Read one array, row i for sample i.

    Parameters
    ----------
    path
        A ``.npy`` or ``.npz`` file.
    key
        Which array of an ``.npz``; needed only if it holds several and none is called ``arr_0``.
    pictures
        Whether uint8 values are pixels (kept as uint8, shown to models as 0..1) or numbers (turned into
        float32). ``None``: pixels if the array is (n, channels, height, width).
    gaps
        Whether values may be missing (NaN).
    """
    path = Path(path)
    if not path.is_file():
        raise InputError(f"{path}: no such file; check the path of the features")
    try:
        array = _load(path, key)
    except InputError:
        raise
    # NumPy and zipfile raise nearly every kind of exception on damaged files.
    except Exception as error:
        reason = "it holds pickled objects, which are never opened" if "pickle" in str(error) else str(error)
        reason = " ".join(reason.split())[:200]
        raise InputError(
            f"{path}: not a readable array ({reason}); save a plain number array with numpy.save"
        ) from None
    return as_features(array, str(path), pictures, gaps=gaps)


def given_features(
    features: str | Path | Tensor | np.ndarray,
    count: int,
    listing: str,
    pictures: bool | None = None,
    *,
    gaps: bool = False,
) -> Tensor:
    """Features given as a file or an array, checked to have ``count`` rows (those of ``listing``).

    With ``gaps`` values may be missing (NaN).
    """
    if isinstance(features, (str, Path)):
        tensor, called = read_features(features, pictures=pictures, gaps=gaps), str(features)
    else:
        called = "features"
        tensor = as_features(np.asarray(features), called, pictures)
    if len(tensor) != count:
        raise InputError(
            f"{called}: {len(tensor)} rows of features but {listing} has {count} samples; "
            "row i of the features must belong to row i of the samples"
        )
    return tensor


def as_features(array: np.ndarray, called: str, pictures: bool | None, *, gaps: bool = False) -> Tensor:
    """Check an array and bring it to uint8 (pixels) or float32."""
    if array.ndim == 0:
        raise InputError(f"{called}: a single number; give an array with one row a sample")
    if array.ndim == 1:
        array = array[:, None]
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise InputError(f"{called}: {array.dtype} values; give real numbers (float16/32/64 or integers)")
    channels_last = array.ndim == 4 and array.shape[1] not in (1, 3) and array.shape[3] in (1, 3)
    if pictures is None and array.dtype == np.uint8 and channels_last:
        raise InputError(
            f"{called}: pictures of shape {array.shape[1:]}; transpose them to (channels, height, width)"
        )
    if pictures is None:
        pictures = array.ndim == 4
    keep = array.dtype == np.uint8 and pictures
    # astype also brings foreign byte orders, which torch does not read, to the native one.
    tensor = torch.from_numpy(np.ascontiguousarray(array if keep else array.astype(np.float32)))
    if not gaps:
        _check_finite(called, tensor)
    return tensor


def _load(path: Path, key: str | None) -> np.ndarray:
    loaded = np.load(path, allow_pickle=False)
    if isinstance(loaded, np.ndarray):
        return loaded
    with loaded:
        names = list(loaded.files)
        if key is None and len(names) == 1:
            key = names[0]
        elif key is None:
            key = "arr_0"
        if key not in names:
            raise unknown_name("array", key, names, where=str(path))
        array: np.ndarray = loaded[key]
        return array


def _check_finite(called: str, tensor: Tensor) -> None:
    if tensor.dtype == torch.uint8 or bool(torch.isfinite(tensor).all()):
        return
    place = (~torch.isfinite(tensor)).nonzero()[0].tolist()
    value = float(tensor[tuple(place)])
    raise InputError(
        f"{called}, row {place[0] + 1}, column {', '.join(str(p + 1) for p in place[1:])}: {value:g} is not "
        "a finite number; repair the features or leave the sample out"
    )
