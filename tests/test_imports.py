"""Every module of the package can be imported by its path, in every form and order, beside ``ecbm.train(...)``."""

from __future__ import annotations

import inspect
import json
import pkgutil
import pydoc

import pytest

import ecbm
import ecbm.train.train
from kit import python, tabular

MODULES = sorted(found.name for found in pkgutil.walk_packages(ecbm.__path__, "ecbm."))

# Forked from a process that has loaded the libraries and nothing of the package: each child starts afresh, at once.
CHILDREN = """
import importlib, json, os, sys, traceback
import torch, scipy.optimize, sklearn.metrics, pyarrow.csv, pyarrow.parquet, rich.console, typer

MODULES = json.loads(sys.argv[1])
VERB = "import ecbm; assert callable(ecbm.train); ecbm.train.__doc__"
FORMS = [
    "import {name} as found",
    "import {name}; found = eval('{name}')",
    "from {parent} import {last} as found",
    "found = importlib.import_module('{name}')",
]

def take(name, forms):
    parent, _, last = name.rpartition(".")
    for form in forms:
        names = {"importlib": importlib}
        exec(form.format(name=name, parent=parent, last=last), names)
        assert names["found"] is sys.modules[name], form

def child(label, work):
    if not os.fork():
        try:
            assert "ecbm" not in sys.modules
            work()
            import ecbm
            assert callable(ecbm.train) and ecbm.train is sys.modules["ecbm.train"]
        except BaseException:
            print(label, traceback.format_exc(limit=-2), flush=True)
            os._exit(1)
        os._exit(0)
    failed.append(os.wait()[1] != 0)

failed = []
# In the folder that is a verb too, each module is the first that a process imports, in one form after the other.
for place, name in enumerate(name for name in MODULES if name.startswith("ecbm.train")):
    first = place % len(FORMS)
    child(name, lambda: take(name, FORMS[first:] + FORMS[:first]))
for order in (MODULES, MODULES[::-1]):
    for before in ("pass", VERB):
        child(f"{order[0]} first, {before}", lambda: [exec(before), *(take(name, FORMS) for name in order)])
print(json.dumps({"children": len(failed), "failed": sum(failed)}))
"""


def test_every_module_can_be_imported_by_its_path_in_any_form_and_order() -> None:
    done = python("-c", CHILDREN, json.dumps(MODULES))
    assert done.returncode == 0, done.stderr[-2000:]
    counts = json.loads(done.stdout.splitlines()[-1])
    assert counts["failed"] == 0, done.stdout[:3000]
    assert counts["children"] == sum(name.startswith("ecbm.train") for name in MODULES) + 4


def test_importing_the_package_does_not_wait_for_torch() -> None:
    script = "import sys, ecbm, ecbm.train; dir(ecbm); print([n for n in ('torch', 'numpy') if n in sys.modules])"
    done = python("-c", script)
    assert done.stdout.strip() == "[]", done.stderr


def test_train_is_called_like_the_function() -> None:
    data, recipe = tabular(60), ecbm.Recipe(backbone="linear")
    assert ecbm.train(data, recipe).fingerprint == ecbm.train.train.train(data, recipe).fingerprint
    assert inspect.signature(ecbm.train) == inspect.signature(ecbm.train.train.train)


def test_help_says_how_to_train() -> None:
    text = pydoc.plain(pydoc.render_doc(ecbm.train))
    assert "train(data: 'Dataset', recipe: 'Recipe | None' = None" in text
    assert "A dataset with splits." in text
    assert "backbones" in text, "the folder's modules are listed too"


def test_an_unknown_name_is_no_attribute() -> None:
    with pytest.raises(AttributeError, match="module 'ecbm' has no attribute 'trian'"):
        ecbm.trian  # noqa: B018
