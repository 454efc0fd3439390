"""Running experiments: models first, then pieces, each kept when it is finished; then tables and a report."""

from __future__ import annotations

import dataclasses
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from ecbm.errors import InputError
from ecbm.files import refusing_places
from ecbm.keep.environment import environment
from ecbm.progress import progress, silence
from ecbm.show.reproduce.case import Asked, Case, open_case
from ecbm.show.reproduce.figures import require_matplotlib
from ecbm.show.reproduce.findings import Findings
from ecbm.show.reproduce.pieces import Piece, experiment_module, models_of, piece_name, telling_module
from ecbm.show.reproduce.settings import NAMES, WORDS, check_name
from ecbm.show.reproduce.writing import write_findings
from ecbm.words import counted

__all__ = ["Shard", "reproduce", "run_experiments"]

_POLL_SECONDS = 0.5


@dataclasses.dataclass(frozen=True)
class Shard:
    """The repetitions that one of several processes computes: those whose number leaves ``index`` over ``count``.

    ``together`` says that the others run at the same time (``torchrun``), so that one may wait for them.
    """

    index: int = 0
    count: int = 1
    together: bool = False

    @classmethod
    def of(cls, text: str | None) -> Shard:
        """From ``i/n``, or from what ``torchrun`` says.

        Examples
        --------
        >>> Shard.of("2/3")
        Shard(index=1, count=3, together=False)
        """
        if text is None:
            # Every process trains models of its own: training must not take the others for helpers.
            count = int(os.environ.pop("WORLD_SIZE", "1"))
            return cls(int(os.environ.get("RANK", "0")) if count > 1 else 0, count, count > 1)
        found = re.fullmatch(r"(\d+)/(\d+)", text)
        if not found or not 1 <= int(found[1]) <= int(found[2]):
            raise InputError(f"--shard {text}: expected i/n with 1 ≤ i ≤ n, such as 1/4")
        return cls(int(found[1]) - 1, int(found[2]))

    def has(self, piece: Piece) -> bool:
        """Whether a piece belongs to it."""
        return piece.repetition % self.count == self.index


# -- several processes -----------------------------------------------------------------------------------------


def _start_worker() -> None:
    torch.set_num_threads(1)
    silence()


def _train(asked: Asked, name: str, place: int, model: int) -> None:
    case = open_case(asked, name)
    case.model(*models_of(case, experiment_module(name).pieces(case)[place])[model])


def _compute(asked: Asked, name: str, place: int) -> None:
    case = open_case(asked, name)
    module = experiment_module(name)
    piece = module.pieces(case)[place]
    case.store.finish_piece(piece_name(case, piece), module.compute(case, piece))


Work = tuple[Callable[..., None], tuple[Any, ...]]


class _Crew:
    """Does work in this process, or in several of one thread each: edits and retraining are timed alike."""

    def __init__(self, pool: ProcessPoolExecutor | None) -> None:
        self.pool = pool

    def do(self, title: str, work: Sequence[Work]) -> None:
        if not work:
            return
        with progress(title, len(work)) as bar:
            if self.pool is None:
                for function, arguments in work:
                    function(*arguments)
                    bar.advance()
                return
            futures = [self.pool.submit(function, *arguments) for function, arguments in work]
            try:
                for future in as_completed(futures):
                    future.result()
                    bar.advance()
            except BaseException:
                # What has begun is finished or lost with its process; what has not is not begun.
                self.pool.shutdown(wait=False, cancel_futures=True)
                raise


@contextmanager
def _crew(processes: int) -> Iterator[_Crew]:
    if processes <= 1:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            yield _Crew(None)
        finally:
            torch.set_num_threads(threads)
        return
    # Before a worker starts: NumPy's and SciPy's BLAS read these when they are loaded.
    os.environ |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with ProcessPoolExecutor(processes, get_context("spawn"), _start_worker) as pool:
        yield _Crew(pool)


# -- one experiment ------------------------------------------------------------------------------------------


def _models(case: Case, asked: Asked, todo: Sequence[tuple[int, Piece]]) -> list[Work]:
    """The models that pieces need and that are not there, each once."""
    found: dict[str, Work] = {}
    for place, piece in todo:
        for number, (data, seed) in enumerate(models_of(case, piece)):
            missing = case.store.missing(data, case.recipe.replace(seed=seed))
            if missing is not None:
                found.setdefault(missing, (_train, (asked, case.experiment, place, number)))
    return list(found.values())


def _run(asked: Asked, name: str, shard: Shard, crew: _Crew) -> tuple[Case, list[Piece], list[str]]:
    """Compute what is missing; returns the pieces and the names of those that other shards still owe."""
    case = open_case(asked, name)
    pieces: list[Piece] = experiment_module(name).pieces(case)
    names = [piece_name(case, piece) for piece in pieces]
    todo = [
        (place, piece) for place, piece in enumerate(pieces)
        if shard.has(piece) and not case.store.has_piece(names[place])
    ]  # fmt: skip
    crew.do(f"{name}: models", _models(case, asked, todo))
    crew.do(f"{name}: edits", [(_compute, (asked, name, place)) for place, _ in todo])
    if shard.together and shard.index == 0:
        while not all(case.store.has_piece(one) for one in names):
            time.sleep(_POLL_SECONDS)
    return case, pieces, [one for one in names if not case.store.has_piece(one)]


def _about(case: Case, asked: Asked, pieces: Sequence[Piece]) -> dict[str, Any]:
    """What the figures were made with."""
    machine = environment()
    machine = {key: machine[key] for key in ("ecbm", "torch", "numpy", "scipy", "python", "machine", "processor")}
    counts = {split: case.data.splits.count(split) for split in ("train", "val", "test")}
    setting = (
        f"{case.data_name}: {counts['train']:,} training and {counts['test']:,} test samples, "
        f"{len(case.data.concept_names)} concepts, {len(case.data.class_names)} classes; backbone "
        f"{case.recipe.backbone}"
        + ("" if case.linear else f", {case.recipe.epochs} epochs")
        + ("; the short form (--quick)" if asked.quick else "")
    )
    repetitions = counted(len({piece.repetition for piece in pieces}), "repetition")
    return {
        "words": f"{setting}; {repetitions}. Seconds are the processor's, one thread.",
        "setting": setting,
        "repetitions": repetitions,
        "command": command_of(case, asked),
        "data": {"name": case.data_name, "fingerprint": case.data.fingerprint, **counts},
        "recipe": case.recipe.to_dict(),
        "settings": {key: value for key, value in case.settings.items() if key not in WORDS},
        "environment": machine | {"cores": os.cpu_count()},
    }


def command_of(case: Case, asked: Asked) -> str:
    """The command that gives these figures again; a dataset by its name, wherever it lies."""
    options = {
        "--data": case.data_name, "--seeds": asked.repetitions, "--backbone": asked.backbone,
        "--epochs": asked.epochs, "--image-size": asked.image_size,
        "--settings": asked.settings and asked.settings.name,
    }  # fmt: skip
    given = "".join(f" {name} {value}" for name, value in options.items() if value is not None)
    return f"ecbm reproduce {case.experiment}{given}{' --quick' if asked.quick else ''}"


def run_experiments(
    asked: Asked, names: Sequence[str], *, shard: Shard | None = None, processes: int = 1
) -> dict[str, Any]:
    """Run experiments and write what they found; what was finished before is not computed again.

    Parameters
    ----------
    asked
        Data, folder and options.
    names
        Names of experiments.
    shard
        Which repetitions are computed here. Findings are written by whoever finds all of them finished.
    processes
        Processes of one thread each.

    Returns
    -------
    dict
        ``findings`` by experiment with the files that were written, and ``missing``: pieces that others owe.
    """
    shard = shard or Shard()
    require_matplotlib()
    with refusing_places(asked.out):
        asked.out.mkdir(parents=True, exist_ok=True)
    written: dict[str, dict[str, Any]] = {}
    missing: dict[str, int] = {}
    told: list[tuple[Findings, dict[str, Any]]] = []
    for name in names:
        open_case(asked, name)  # bad input is said before anything starts
    with _crew(processes) as crew:
        for name in names:
            case, pieces, owed = _run(asked, name, shard, crew)
            if shard.together and shard.index:
                continue
            if owed:
                missing[name] = len(owed)
                continue
            values = [(piece, case.store.piece(piece_name(case, piece)) or {}) for piece in pieces]
            found: Findings = telling_module(name).tell(case, values)
            about = _about(case, asked, pieces)
            paths = write_findings(found, asked.out, about)
            told.append((found, about))
            files = [str(path) for path in paths]
            written[name] = {"summary": found.summary, "sentences": found.sentences, "files": files}
    result: dict[str, Any] = {"findings": written, "missing": missing}
    if told:
        from ecbm.show.reproduce.report import write_report

        page = "index" if len(names) > 1 else names[0]
        result["report"] = str(write_report(told, asked.out / f"{page}.html"))
    return result


def default_folder(data: str, quick: bool) -> Path:
    """Where results go unless a folder is given."""
    name = Path(data).stem if Path(data).is_file() else Path(data).name or "data"
    return Path("results") / "reproduce" / f"{name}{'-quick' if quick else ''}"


def reproduce(
    name: str = "all",
    data: str | Path = "birds",
    *,
    seeds: int | None = None,
    quick: bool = False,
    out: str | Path | None = None,
    backbone: str | None = None,
    epochs: int | None = None,
    image_size: int | None = None,
    settings: str | Path | None = None,
    shard: str | None = None,
    processes: int = 1,
) -> dict[str, Any]:
    """Run the paper's experiments with the controls it lacks; what is finished is kept, and the next call goes on.

    Parameters
    ----------
    name
        ``"table1"``, ``"ratios"``, ``"concept-importance"``, ``"harmful"``, ``"periodic"``, ``"membership"``,
        ``"visual"``, ``"bounds"`` or ``"all"``.
    data
        ``"birds"`` or ``"breast_cancer"``, a dataset folder or table of samples, or the folder of CUB, CelebA or
        OAI in its official layout.
    seeds
        Repetitions, each with an edit and a seed of its own; ``None``: those of the settings.
    quick
        The short form: less data, fewer seeds.
    out
        Folder for tables, figures and the report; by default ``results/reproduce/DATA``.
    backbone, epochs, image_size
        Of the recipe and of pictures, instead of those of the settings.
    settings
        A settings file of one's own, over the package's ``settings.toml``.
    shard
        ``"i/n"``: only every n-th repetition, beginning with the i-th.
    processes
        Processes of one thread each.

    Returns
    -------
    dict
        ``findings`` by experiment: ``summary``, ``sentences`` and ``files``; ``missing`` pieces of other
        shards; ``report``, the page.
    """
    check_name(name)
    folder = Path(out) if out is not None else default_folder(str(data), quick)
    own = Path(settings) if settings is not None else None
    asked = Asked(str(data), folder, quick, seeds, backbone, epochs, image_size, own)
    chosen = Shard.of(shard)
    names = NAMES if name == "all" else (name,)
    return run_experiments(asked, names, shard=chosen, processes=1 if chosen.together else processes)
