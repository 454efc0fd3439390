"""Runs on the stand-in device, in a process of its own; prints what each part has found as JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import ecbm
import kit
import networks_kit
import standin_device
from ecbm.curvature import capture
from ecbm.progress import silence

HERE = standin_device.NAME
# The stand-in's tensors have no memory that a second tensor could be put on; a copy serves as well.
capture._Tap.forward = staticmethod(lambda ctx, anchor, source: source.clone())  # type: ignore[method-assign]
torch.set_num_threads(1)
silence()

DATA = kit.pictures(80)
FIELDS = {"backbone": "convnet", "epochs": 2, "batch_size": 16}
TRAIN = DATA.split("train").ids
EDIT = ecbm.Edit(
    correct_concepts=[(name, DATA.concept_names[0], 1.0) for name in TRAIN[:20]], remove_samples=TRAIN[30:32]
)


def close(first: ecbm.ConceptBottleneck, second: ecbm.ConceptBottleneck) -> float:
    test = DATA.split("test")
    return float((first.concept_probabilities(test) - second.concept_probabilities(test)).abs().max())


def ran() -> int:
    """Operations on the device since the last call."""
    count = sum(standin_device.used.values())
    standin_device.used.clear()
    return count


def on_cpu(model: ecbm.ConceptBottleneck) -> bool:
    return all(value.device.type == "cpu" for value in model.state_dict().values())


def refusal() -> dict[str, Any]:
    there = torch.ones(3, device=HERE)
    found: dict[str, Any] = {"type": there.device.type}
    for name, attempt in {"mixed": lambda: there + torch.ones(3), "numpy": lambda: there.numpy()}.items():
        try:
            attempt()
            found[name] = False
        except (RuntimeError, TypeError):
            found[name] = True
    return found


def training(**fields: Any) -> dict[str, Any]:
    ran()
    there = ecbm.train(DATA, device=HERE, **FIELDS | fields)
    count = ran()
    here = ecbm.train(DATA, **FIELDS | fields)
    return {"operations": count, "on_cpu": on_cpu(there), "difference": close(there, here), "beside": ran()}


def resumed() -> dict[str, Any]:
    from ecbm.train import loop

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.safetensors"
        save = loop.Checkpoint.save

        def stop(self: Any, *rest: Any) -> None:
            save(self, *rest)
            raise KeyboardInterrupt

        loop.Checkpoint.save = stop  # type: ignore[method-assign]
        with contextlib.suppress(KeyboardInterrupt):
            ecbm.train(DATA, device=HERE, checkpoint=path, **FIELDS)
        loop.Checkpoint.save = save  # type: ignore[method-assign]
        ran()
        there = ecbm.train(DATA, device=HERE, checkpoint=path, **FIELDS)
    return {"operations": ran(), "difference": close(there, ecbm.train(DATA, device=HERE, **FIELDS))}


def extraction(**fields: Any) -> dict[str, Any]:
    ran()
    there = ecbm.train(DATA, networks_kit.own(epochs=2, **fields), device=HERE)
    count = ran()
    here = ecbm.train(DATA, networks_kit.own(epochs=2, **fields))
    return {"operations": count, "on_cpu": on_cpu(there), "difference": close(there, here)}


MODEL = ecbm.train(DATA, **FIELDS)


def edit(method: str, model: ecbm.ConceptBottleneck = MODEL, **options: Any) -> dict[str, Any]:
    ran()
    editor = ecbm.Editor(model, DATA, device=HERE)
    there = editor.apply(EDIT, method, **options)
    count = ran()
    following = editor.follow(there).apply(ecbm.Edit(remove_samples=[TRAIN[40]]), method, **options)
    here = ecbm.Editor(model, DATA).apply(EDIT, method, **options)
    return {
        "operations": count,
        "on_cpu": on_cpu(there.model) and on_cpu(following.model),
        "untouched": on_cpu(model),
        "difference": close(there.model, here.model),
        "moved": close(here.model, model),
    }


def climbed() -> dict[str, Any]:
    """``auto`` where it moves the backbone, whatever it thinks of that."""
    from ecbm.edit.methods.auto import ladder

    before = ladder.CLIMB_FROM
    ladder.CLIMB_FROM = 0.0
    try:
        return edit("auto", budget=1.0)
    finally:
        ladder.CLIMB_FROM = before


def curvature() -> dict[str, Any]:
    from ecbm.curvature import EKFAC, ConceptLoss
    from ecbm.edit.gradients import concept_part

    part, x = concept_part(MODEL), DATA.split("train").x
    loss = ConceptLoss(DATA.split("train").concepts)
    here = EKFAC.fit(part, x, loss, l2=0.01)
    ran()
    there = EKFAC.fit(part.to(HERE), x, loss, l2=0.01)
    vector = {name: torch.ones_like(p) for name, p in part.named_parameters()}
    solved = there.solve(vector, damping=1.0)
    expected = here.solve({name: value.cpu() for name, value in vector.items()}, damping=1.0)
    worst = max(float((solved[name].cpu() - value).norm() / value.norm()) for name, value in expected.items())
    return {"operations": ran(), "difference": worst, "type": next(iter(solved.values())).device.type}


def kept() -> dict[str, Any]:
    """Workspace: training, editing, looking, saving, loading, export."""
    with tempfile.TemporaryDirectory() as folder:
        ran()
        made = ecbm.Workspace.create(Path(folder) / "w", DATA, ecbm.Recipe(**FIELDS), device=HERE)
        made.train()
        operations = [ran()]
        ecbm.Workspace(Path(folder) / "w", device=HERE).edit(EDIT, "ekfac")
        operations.append(ran())
        again = ecbm.Workspace(Path(folder) / "w")
        replayed = [one["same"] for one in again.check()["problems"]]
        model = again.model()
        ecbm.save(model, Path(folder) / "m")
        loaded = ecbm.load(Path(folder) / "m")
    return {"operations": min(operations), "problems": replayed, "same": loaded.fingerprint == model.fingerprint}


def moved() -> dict[str, Any]:
    """A model whose network the user puts on the device predicts there."""
    import copy

    model = copy.deepcopy(MODEL)
    model.backbone.to(HERE)
    ran()
    difference = close(model, MODEL)
    with tempfile.TemporaryDirectory() as folder:
        ecbm.save(model, Path(folder) / "m")
        same = ecbm.load(Path(folder) / "m").fingerprint == MODEL.fingerprint
    return {"operations": ran(), "difference": difference, "same": same}


PARTS: dict[str, Callable[[], dict[str, Any]]] = {
    "refusal": refusal,
    "training": training,
    "training joint": lambda: training(regime="joint"),
    "training resnet18": lambda: training(backbone="resnet18", epochs=1),
    "training mlp": lambda: training(backbone="mlp"),
    "training resumed": resumed,
    "extraction": extraction,
    "extraction until": lambda: extraction(frozen="until:first"),
    "extraction none": lambda: extraction(frozen=False),
    "curvature": curvature,
    "edit exact": lambda: edit("exact"),
    "edit ekfac": lambda: edit("ekfac", damping=1.0),
    "edit ekfac joint": lambda: edit("ekfac", ecbm.train(DATA, **FIELDS | {"regime": "joint"}), damping=1.0),
    "edit hessian": lambda: edit("hessian", damping=1.0),
    "edit auto": climbed,
    "edit retrain": lambda: edit("retrain"),
    "edit frozen": lambda: edit("auto", ecbm.train(DATA, networks_kit.own())),
    "workspace": kept,
    "moved": moved,
}


def main() -> None:
    wanted = sys.argv[1:] or list(PARTS)
    found = {}
    for name in wanted:
        try:
            found[name] = PARTS[name]()
        except Exception:
            found[name] = {"error": traceback.format_exc()}
    print(json.dumps(found))


if __name__ == "__main__":
    main()
