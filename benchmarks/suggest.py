"""Which labels are wrong? Suggestions beside cleanlab and other rankings, on labels that were spoilt in known ways.

    python benchmarks/suggest.py [--json FILE] [--markdown FILE] [--development] [--only TEXT] [--draws N]
                                 [--no-questions] [--quick] [--work FOLDER]

For each setting (``suggest_data.py``) and scenario (``suggest_scenarios.py``), as a mean over fresh draws:

precision  the share of wrong labels among as many suggestions as there are wrong labels. All rankings see the same
           out-of-fold predictions: heads solved exactly without the sample's fold. "cleanlab, best scorer" is the
           best of its scorers *by the truth*, which is more than a user could choose.
expected   the estimated number of wrong labels, divided by the true one.
looks      how many labels a person has to look at until four fifths of the errors are found: by the ranking as it
           is, and when the ranking learns from the answers after every round of questions. The least possible
           number stands beside.

Constants of the method were chosen on the settings of ``--development`` with draws 0 and 1; reported are other
settings with draws 10, 11 and 12. A ``convnet`` is trained for each case (its features must have learnt the errors)
and kept in ``--work``, as are finished cases; a run that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import argparse
import dataclasses
import hashlib
import json
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

import ecbm
from ecbm.progress import progress, silence
from ecbm.read.dataset import concept_groups
from ecbm.verify.suggest.answers import learn
from ecbm.verify.suggest.asking import next_questions
from ecbm.verify.suggest.checks import without_the_class
from ecbm.verify.suggest.evidence import Records, second_level
from ecbm.verify.suggest.finding import Findings, find_wrong
from suggest_data import DEVELOPMENT, REPORTED, Case, available, case
from suggest_scenarios import SCENARIOS
from suggest_tables import markdown, show

DRAWS = {True: (0, 1), False: (10, 11, 12)}
FOUND = 0.8


def records_of(spoilt: Case) -> Records:
    labels = torch.from_numpy(spoilt.labels)
    held = torch.from_numpy(spoilt.held)
    folds = torch.from_numpy(np.random.default_rng(0).permutation(len(labels)) % 5)
    return Records(
        torch.from_numpy(np.asarray(spoilt.features)),
        labels,
        torch.ones_like(labels),
        torch.from_numpy(spoilt.classes),
        int(spoilt.classes.max()) + 1,
        folds,
        held if bool(held.any()) else torch.ones_like(held),
        torch.full_like(labels, math.nan),
    )


def groups_of(spoilt: Case) -> Tensor:
    number = {name: index for index, names in enumerate(concept_groups(spoilt.names).values()) for name in names}
    return torch.tensor([number[name] for name in spoilt.names])


def precision(scores: NDArray[np.float64], errors: NDArray[np.bool_]) -> float | None:
    """Share of errors among the highest scores, as many as there are errors."""
    count = int(errors.sum())
    if not count:
        return None
    first = np.argsort(-scores.reshape(-1), kind="stable")[:count]
    return float(errors.reshape(-1)[first].mean())


# -- other rankings ------------------------------------------------------------------------------------------


def cleanlab_scores(labels: Tensor, p: Tensor, **options: Any) -> NDArray[np.float64]:
    """cleanlab's label quality, concept by concept, turned round: high is suspicious."""
    from cleanlab.rank import get_label_quality_scores

    columns = []
    for given, chance in zip(labels.T.numpy().astype(int), p.T.numpy(), strict=True):
        both = len(np.unique(given)) == 2
        probabilities = np.stack([1 - chance, chance], 1)
        columns.append(
            1 - get_label_quality_scores(given, probabilities, **options) if both else np.zeros(len(given))
        )
    return np.stack(columns, 1)


def gaussian_scores(records: Records, directions: Tensor) -> NDArray[np.float64]:
    """A detector in feature space: a Gaussian for each value of a concept, one covariance for both, out of fold."""
    scores = torch.zeros_like(records.labels)
    for fold in range(int(records.folds.max()) + 1):
        out, kept = records.folds == fold, records.folds != fold
        x = directions[kept]
        for concept in range(records.labels.shape[1]):
            present = records.labels[kept, concept] > 0.5
            if int(present.sum()) < 2 or int((~present).sum()) < 2:
                continue
            means = torch.stack([x[~present].mean(0), x[present].mean(0)])
            centred = x - means[present.long()]
            covariance = centred.T @ centred / len(x)
            covariance.diagonal().add_(0.1 * float(covariance.diagonal().mean()))
            weights = torch.linalg.solve(covariance, (means[1] - means[0])[:, None])[:, 0]
            odds = (directions[out] - means.mean(0)) @ weights
            odds = odds + math.log(float(present.double().mean()) / float((~present).double().mean()))
            scores[out, concept] = torch.where(records.labels[out, concept] > 0.5, -odds, odds)
    return scores.numpy()


def rankings(records: Records, found: Findings) -> dict[str, NDArray[np.float64]]:
    evidence, labels = found.evidence, records.labels
    p = evidence.head.probabilities.clamp(1e-6, 1 - 1e-6)
    alone = second_level(records, evidence, labels, labels).probabilities
    scorers = ("self_confidence", "normalized_margin", "confidence_weighted_entropy")
    return {
        **{f"cleanlab, {name}": cleanlab_scores(labels, p, method=name) for name in scorers},
        "confident learning": cleanlab_scores(labels, p, method="self_confidence", adjust_pred_probs=True),
        "15 nearest neighbours": (labels - evidence.neighbours).abs().numpy(),
        "Gaussian in feature space": gaussian_scores(records, evidence.directions),
        "second level alone": (labels - alone).abs().numpy(),
        "ours": found.wrong.numpy(),
    }


# -- a person answers ----------------------------------------------------------------------------------------


def looks_until(scores: NDArray[np.float64], errors: NDArray[np.bool_]) -> int:
    """Looks that a fixed ranking needs."""
    found = np.cumsum(errors.reshape(-1)[np.argsort(-scores.reshape(-1), kind="stable")])
    return int(np.searchsorted(found, math.ceil(FOUND * errors.sum()))) + 1


def loop(spoilt: Case, records: Records, found: Findings, most: int) -> dict[str, int]:
    """Ask, learn, ask again; until enough errors are found or ``most`` looks were taken."""
    errors = torch.from_numpy(spoilt.labels != spoilt.truth)
    mine, truth = torch.from_numpy(~spoilt.held), torch.from_numpy(spoilt.truth)
    allowed = mine[:, None].expand_as(errors)
    needed, got, looks, checks, rounds = math.ceil(FOUND * int(errors[mine].sum())), 0, 0, 0, 0
    opinion = without_the_class(records, found.evidence, records.best)
    while got < needed and looks < most:
        chances = learn(records, found.wrong, allowed)
        asked, spot = next_questions(records, found.wrong, chances, opinion, allowed)
        answers = records.truth.clone()
        for row, concept in asked:
            answers[row, concept] = truth[row, concept]
            looks, got = looks + 1, got + int(errors[row, concept])
            if got == needed:
                break
        checks, rounds = checks + spot, rounds + 1
        records = dataclasses.replace(records, truth=answers)
    return {"looks": looks, "checks": checks, "rounds": rounds}


# -- the run -------------------------------------------------------------------------------------------------


def run_case(setting: str, scenario: str, draw: int, work: Path, ask: bool) -> dict[str, Any]:
    spoilt = case(setting, scenario, draw, work)
    records, mine = records_of(spoilt), ~spoilt.held
    start, wall = time.process_time(), time.monotonic()
    found = find_wrong(records, groups_of(spoilt))
    seconds = {"cpu": time.process_time() - start, "wall": time.monotonic() - wall}
    errors, wrong = spoilt.errors, found.wrong.numpy()[mine]
    ranked = {name: precision(scores[mine], errors) for name, scores in rankings(records, found).items()}
    scored = {name: ranked.pop(name) for name in list(ranked) if name.startswith("cleanlab, ")}
    best = max((value for value in scored.values() if value is not None), default=None)
    looks = None
    if ask and errors.any():
        static = looks_until(wrong, errors)
        learnt = loop(spoilt, records, found, 2 * static)
        looks = {"least": math.ceil(FOUND * int(errors.sum())), "ranking": static, **learnt}
    patterns = found.patterns
    return {
        "setting": setting,
        "scenario": scenario,
        "draw": draw,
        "samples": int(mine.sum()),
        "labels": int(errors.size),
        "errors": int(errors.sum()),
        "expected": float(wrong.sum()),
        "suggested": int((wrong >= 0.5).sum()),
        "right_of_suggested": int(errors[wrong >= 0.5].sum()),
        "precision": {"cleanlab, best scorer": best, **ranked},
        "cleanlab": scored,
        "looks": looks,
        "patterns": [
            *({"kind": "annotator", "concepts": p.concepts.tolist()} for p in patterns.careless),
            *({"kind": "swap", "concepts": s.concepts.tolist()} for s in patterns.swaps),
            *({"kind": "one concept", "concepts": [p.concept]} for p in patterns.plateaus),
        ],
        "spoilt": np.flatnonzero(errors.any(0)).tolist(),
        "seconds": seconds,
    }  # fmt: skip


def _digest() -> str:
    """Of the code that decides the figures: what turns findings into words and lists does not."""
    here, package = Path(__file__).parent, Path(ecbm.__file__).parent / "verify" / "suggest"
    words = {
        "words.py", "lists.py", "suggest.py", "suggestions.py", "named.py", "read_answers.py", "effects.py",
        "items.py", "inspection.py", "numbers.py", "values.py", "classes.py",
    }  # fmt: skip
    files = [f for f in sorted(package.glob("*.py")) if f.name not in words] + [
        here / "suggest.py", here / "suggest_data.py", here / "suggest_scenarios.py",
    ]  # fmt: skip
    return hashlib.blake2b(b"".join(f.read_bytes() for f in files), digest_size=8).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="keep every case")
    parser.add_argument("--markdown", type=Path, help="write the tables")
    parser.add_argument("--development", action="store_true", help="the settings that constants were chosen on")
    parser.add_argument("--only", default="", help="cases whose setting/scenario contains this text")
    parser.add_argument("--draws", type=int, default=2, help="how many draws of each case")
    parser.add_argument("--no-questions", action="store_true", help="leave out how many looks are needed")
    parser.add_argument("--quick", action="store_true", help="tables only, one draw, no questions")
    parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "ecbm-suggest")
    options = parser.parse_args()
    torch.set_num_threads(1)
    options.work.mkdir(parents=True, exist_ok=True)
    settings = [s for s in (DEVELOPMENT if options.development else REPORTED) if available(s)]
    draws = DRAWS[options.development][: options.draws]
    if options.quick:
        settings, draws = (
            [s for s in settings if s not in ("WBCAtt", "birds", "CUB", "CUB, other concepts")],
            draws[:1],
        )
    wanted = [
        (setting, scenario, draw)
        for setting in settings
        for scenario in SCENARIOS
        for draw in draws
        if options.only in f"{setting}/{scenario}"
    ]
    store = options.work / f"cases-{_digest()}.jsonl"
    known = [json.loads(line) for line in store.read_text().splitlines()] if store.is_file() else []
    done = {(c["setting"], c["scenario"], c["draw"]): c for c in known}
    ask = not options.quick and not options.no_questions
    with progress("cases", len(wanted), sum(key in done for key in wanted)) as bar:
        silence()
        for key in wanted:
            known_looks = key in done and (done[key]["looks"] is not None or not done[key]["errors"])
            if key in done and (known_looks or not ask):
                continue
            bar.advance(int(key not in done))
            done[key] = run_case(*key, options.work, ask)
            with store.open("a") as file:
                file.write(json.dumps(done[key]) + "\n")
    cases = [done[key] for key in wanted]
    if options.json:
        options.json.write_text(json.dumps({"cases": cases, "draws": list(draws)}, indent=1) + "\n")
    if options.markdown:
        options.markdown.write_text(markdown(cases))
    show(cases)
    slowest = [c["seconds"]["cpu"] for c in cases if c["setting"] in ("WBCAtt", "birds")]
    if slowest:
        print(f"processor time for one ranking of pictures' labels: {statistics.median(slowest):.1f} s (median)")


if __name__ == "__main__":
    main()
