"""What decides the bytes of a computation besides its inputs: libraries, kind of machine, threads.

It is kept with every version, so that ``ecbm check --replay`` knows whether the same bytes can be expected. It
holds no name of a user, a host or a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
from collections.abc import Iterator, Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from ecbm import parallel
from ecbm._version import __version__
from ecbm.keep.ledger import Detail
from ecbm.keep.plain import plain

__all__ = ["as_in", "computed", "digest_of_file", "environment", "obstacles", "suspects"]

# Switches of the libraries below torch that change their arithmetic.
_SWITCHES = ("MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA", "OPENBLAS_CORETYPE")
# Code that computes: other files may change without changing a bit of a model.
_COMPUTING = ("read", "train", "curvature", "edit", "matrices.py", "parallel.py")

# Where one of these differs, other bytes are to be expected.
_DECISIVE = {
    "ecbm": "ecbm",
    "torch": "torch",
    "numpy": "NumPy",
    "scipy": "SciPy",
    "machine": "a machine of type",
    "capability": "the instructions",
    "mkl": "MKL",
    "mkldnn": "oneDNN",
    "matmul_precision": "float32 products of precision",
    "deterministic": "deterministic algorithms",
    "switches": "the switches",
    "processes": "processes:",
}
# Where one of these differs, bytes may still be the same; it is worth trying.
_DOUBTFUL = {
    "code": "code of ecbm with the digest",
    "python": "Python",
    "processor": "a processor",
    "blas": "BLAS",
}


def environment() -> dict[str, Any]:
    """The facts of this process, as plain values.

    Returns
    -------
    dict
        Versions (``ecbm``, ``torch``, ``numpy``, ``scipy``, ``python``), ``code`` (a digest of the code that
        computes), ``machine``, ``capability`` (of the processor, as torch uses it), ``processor``, ``threads``,
        ``processes``, ``mkl`` and ``mkldnn`` (whether torch uses them), ``blas`` (NumPy's and SciPy's),
        ``matmul_precision``, ``deterministic``, ``switches``.
    """
    return {
        **_constant(),
        "threads": torch.get_num_threads(),
        "processes": parallel.world_size(),
        "mkldnn": bool(torch.backends.mkldnn.is_available() and torch.backends.mkldnn.enabled),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "blas": _blas(),
        "switches": {name: os.environ[name] for name in _SWITCHES if name in os.environ},
    }


def computed(options: Mapping[str, Any], weights: str | os.PathLike[str] | None = None) -> list[Detail]:
    """The ledger details that say how a version was computed.

    Parameters
    ----------
    options
        What the computation was given: a recipe, or method and options of an edit.
    weights
        The file of initial weights that it started from, if any; its digest is kept, as it lies outside.
    """
    details = [Detail("environment", environment()), Detail("options", plain(dict(options)))]
    return details if weights is None else [*details, Detail("weights", digest_of_file(weights))]


def digest_of_file(path: str | os.PathLike[str]) -> str | None:
    """A digest of a file's content; ``None`` where it cannot be read."""
    try:
        with Path(path).open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return None


@cache
def _constant() -> dict[str, Any]:
    return {
        "ecbm": __version__,
        "code": _code_digest(),
        **{name: metadata.version(name) for name in ("torch", "numpy", "scipy")},
        "python": platform.python_version(),
        "machine": f"{platform.system()} {platform.machine()}",
        "capability": torch.backends.cpu.get_cpu_capability(),
        "processor": _processor(),
        "mkl": bool(torch.backends.mkl.is_available()),
    }


def _code_digest() -> str | None:
    total = hashlib.blake2b(digest_size=16)
    root = Path(__file__).parents[1]
    try:
        for name in _COMPUTING:
            for path in sorted([root / name] if name.endswith(".py") else (root / name).rglob("*.py")):
                total.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    except OSError:  # not installed as files
        return None
    return total.hexdigest()


def _processor() -> str:
    """The processor's model: libraries choose their kernels by it."""
    wanted = ("vendor_id", "model name", "cpu family", "model", "stepping", "CPU implementer", "CPU part")
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor()
    found = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return " ".join(found[name] for name in wanted if found.get(name)) or platform.processor()


def _blas() -> dict[str, Any] | None:
    """NumPy's linear algebra, which SciPy's is built as: kind, kernels, and on how many threads it runs."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return None
    libraries = [item for item in threadpool_info() if item["user_api"] == "blas"]
    first = next((item for item in libraries if "numpy" in item["filepath"]), None)
    if first is None:
        return None
    return {
        "library": first["internal_api"],
        "kernels": first.get("architecture"),
        "threads": first["num_threads"],
    }


def obstacles(recorded: Mapping[str, Any]) -> list[str]:
    """Why the bytes of a computation in that environment cannot be expected here; empty where they can."""
    return _differences(recorded, _DECISIVE)


def suspects(recorded: Mapping[str, Any]) -> list[str]:
    """What may be the reason if other bytes come out here than in that environment."""
    return _differences(recorded, _DOUBTFUL)


def _differences(recorded: Mapping[str, Any], names: Mapping[str, str]) -> list[str]:
    present = environment()
    return [
        f"made with {words} {recorded.get(name)}, here it is {present[name]}"
        for name, words in names.items()
        if recorded.get(name) != present[name]
    ]


@contextlib.contextmanager
def as_in(recorded: Mapping[str, Any]) -> Iterator[None]:
    """Compute on as many threads as there were; afterwards on as many as before."""
    before = torch.get_num_threads()
    with contextlib.ExitStack() as stack:
        if recorded["threads"] != before:
            torch.set_num_threads(recorded["threads"])
            stack.callback(torch.set_num_threads, before)
        blas = recorded.get("blas")
        if blas is not None:
            with contextlib.suppress(ImportError):
                from threadpoolctl import threadpool_limits

                stack.enter_context(threadpool_limits(blas["threads"], "blas"))
        yield
