"""Several processes under torchrun train what one process trains."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from kit import python, torchrun

# One run of the fixture for all tests here, also where tests are spread over processes.
pytestmark = pytest.mark.xdist_group("processes")

SCRIPT = """
import json, sys
import torch
torch.set_num_threads(1)
import ecbm
from ecbm import parallel
from ecbm.progress import silence
import networks_kit
from kit import pictures, tabular
from torch import nn

silence()
target, several = sys.argv[1], sys.argv[2] == "several"
class Half(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 8)
        self.norm = nn.BatchNorm1d(8)
    def forward(self, x):
        return self.norm(self.layer(x)).half()

torch.manual_seed(0)
CASES = {
    "linear": (tabular(211, missing=0.1), ecbm.Recipe(backbone="linear")),
    "one concept": (tabular(61, concepts=["striped"]), ecbm.Recipe(backbone="linear", bottleneck="probabilities")),
    "fewer samples than a batch": (tabular(33), ecbm.Recipe(backbone="mlp", hidden=(8,), epochs=2)),
    # 67 of 111 train; the last batch of 64 would leave one process a single row for its BatchNorm.
    "half precision": (tabular(111), ecbm.Recipe(backbone=Half(), epochs=2)),
    "mlp": (tabular(601, seed=1), ecbm.Recipe(backbone="mlp", hidden=(32,), epochs=6)),
    "joint": (tabular(301, seed=1), ecbm.Recipe(backbone="linear", regime="joint", epochs=3)),
    "convnet": (pictures(161), ecbm.Recipe(backbone="convnet", epochs=3)),
    "frozen": (pictures(161), networks_kit.own()),
    # Slowly: at the usual rate Adam makes of rounding what no test can tell from other statistics.
    "each its own": (pictures(161), ecbm.Recipe(backbone="convnet", epochs=3, learning_rate=1e-3)),
    "synchronised": (
        pictures(161), ecbm.Recipe(backbone="convnet", epochs=3, learning_rate=1e-3, sync_batchnorm=True)
    ),
    "augmented": (
        pictures(161),
        ecbm.Recipe(
            backbone="mlp", hidden=(16,), epochs=3, batch_size=16, accumulate=2, class_balanced=True,
            augment="flip,crop,zoom,colour",
        ),
    ),
}
for name, (data, recipe) in CASES.items():
    model = ecbm.train(data, recipe, checkpoint=f"{target}/{name}.state")
    assert parallel.world_size() == (2 if several else 1)
    mine = torch.tensor(list(bytes.fromhex(model.fingerprint)))
    first = mine.clone()
    parallel.broadcast(first)
    assert torch.equal(mine, first), f"{name}: the processes hold different models"
    if parallel.rank() == 0:
        figures = {k: v for k, v in ecbm.evaluate(model, data.split("test")).items() if k != "per_concept"}
        chances = model.concept_probabilities(data.split("test").inputs).tolist()
        heads = {part: getattr(model, part).weight.tolist() for part in ("concept_head", "label_head")}
        with open(f"{target}/{name}.json", "w") as file:
            json.dump({"figures": figures, "heads": heads, "chances": chances}, file)
"""


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Every case trained by one process and by two."""
    folder = tmp_path_factory.mktemp("processes")
    script = folder / "script.py"
    script.write_text(f"import sys; sys.path[:0] = {[p for p in sys.path if p]!r}\n" + SCRIPT)
    for name, start in (("one", []), ("several", torchrun(2))):
        (folder / name).mkdir()
        done = python(*start, script, folder / name, name)
        assert done.returncode == 0, done.stderr[-3000:]
    assert not list(folder.glob("*/*.state")), "finished trainings leave no checkpoint"
    return {
        file.stem: tuple(json.loads((folder / side / file.name).read_text()) for side in ("one", "several"))
        for file in (folder / "one").glob("*.json")
    }


@pytest.mark.parametrize("case", ["linear", "one concept", "frozen"])
def test_convex_heads_are_the_same_to_1e_6(results, case):
    one, several = results[case]
    for part in ("concept_head", "label_head"):
        a, b = torch.tensor(one["heads"][part]), torch.tensor(several["heads"][part])
        assert (a - b).abs().max() < 1e-6
    assert one["figures"]["class_accuracy"] == several["figures"]["class_accuracy"]


@pytest.mark.parametrize("case", ["mlp", "joint", "convnet", "half precision", "fewer samples than a batch"])
def test_deep_models_have_the_same_metrics_within_noise(results, case):
    one, several = (side["figures"] for side in results[case])
    for metric in ("class_accuracy", "concept_accuracy", "concept_auc"):
        # Two standard deviations of a difference of shares over the test samples (and a little for tiny ones).
        noise = 2 * (0.5 / one["count"]) ** 0.5
        assert abs(one[metric] - several[metric]) < noise, (metric, one[metric], several[metric])


def distance(results, case):
    """The largest difference between the concept probabilities of one process's model and of two's."""
    one, several = (torch.tensor(side["chances"]) for side in results[case])
    return float((one - several).abs().max())


def test_synchronised_batchnorm_gives_the_model_of_one_process(results):
    alone, unsynchronised = results["synchronised"][0], results["each its own"][0]
    assert alone["chances"] == unsynchronised["chances"], "alone it changes nothing"
    assert distance(results, "synchronised") < 1e-3
    assert distance(results, "each its own") > 20 * distance(results, "synchronised")


def test_augmentation_balance_and_accumulation_are_the_same_in_every_process(results):
    assert distance(results, "augmented") < 1e-3
