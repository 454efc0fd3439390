"""Frozen networks in front of the heads: features once, exact heads, the same answers everywhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import ecbm
import kit
import networks_kit
from ecbm.errors import InputError
from ecbm.train import extraction
from ecbm.train.backbones import resolve_backbone
from ecbm.train.extraction import SeenInputs, seen_through
from ecbm.train.feature_rows import MemoryRows
from ecbm.train.front import FrontSettings
from ecbm.train.networks import OFFLINE


@pytest.fixture(scope="module")
def data():
    return kit.pictures(80)


@pytest.fixture(scope="module")
def model(data):
    return ecbm.train(data, networks_kit.own())


@pytest.fixture
def passes(monkeypatch):
    return networks_kit.counted_passes(monkeypatch)


def features_by_hand(data: ecbm.Dataset) -> torch.Tensor:
    with torch.no_grad():
        return networks_kit.eye().eval()(data.x)


# -- the exact case ------------------------------------------------------------------------------------------


def test_a_frozen_network_is_the_linear_model_on_its_features(data, model):
    rows = ecbm.Dataset(
        data.ids,
        features_by_hand(data),
        data.concepts,
        data.labels,
        data.concept_names,
        data.class_names,
        data.splits,
    )
    linear = ecbm.train(rows, backbone="linear", concept_l2=model.recipe.concept_regularisation)
    difference = linear.class_probabilities(rows) - model.class_probabilities(data)
    assert float(difference.abs().max()) < 1e-4  # float32 features, computed in other batches


def test_every_picture_goes_through_the_network_once(data, passes):
    model = ecbm.train(data, networks_kit.own())
    trial = 1
    assert sum(passes) == len(data) + trial
    ecbm.evaluate(model, data.split("test"))
    train = data.split("train")
    ecbm.Editor(model, data).apply(ecbm.Edit(remove_samples=[train.ids[0]]))
    assert sum(passes) == len(data) + trial


def test_an_edit_that_adds_samples_computes_only_theirs(data, model, passes):
    other = kit.pictures(80, seed=5).select(range(12))
    names = [f"new-{name}" for name in other.ids]
    added = ecbm.Dataset(
        names, other.inputs, other.concepts, other.labels, other.concept_names, other.class_names, other.splits
    )
    result = ecbm.Editor(model, data).apply(ecbm.Edit(add_samples=added))
    assert sum(passes) == len(added)
    assert result.report["certificate"]["class_predictions_that_could_differ"] == 0


@pytest.mark.parametrize("kind", ["correct", "remove", "concept"])
def test_edits_equal_retraining_and_prove_it(data, model, kind):
    train = data.split("train")
    edit = {
        "correct": ecbm.Edit(correct_concepts=[(i, data.concept_names[0], 1.0) for i in train.ids[:5]]),
        "remove": ecbm.Edit(remove_samples=train.ids[:3]),
        "concept": ecbm.Edit(remove_concepts=[data.concept_names[2]]),
    }[kind]
    editor = ecbm.Editor(model, data)
    edited, retrained = editor.apply(edit), editor.apply(edit, "retrain")
    certificate = edited.report["certificate"]
    assert certificate["class_predictions_that_could_differ"] == 0
    assert certificate["concept_predictions_that_could_differ"] == 0
    a, b = (one.model.class_probabilities(data.split("test")) for one in (edited, retrained))
    assert float((a - b).abs().max()) < 1e-6
    assert edited.model.front is model.front is retrained.model.front
    assert edited.data.inputs.shape == data.inputs.shape


def test_predictions_of_a_dataset_and_of_its_pixels_are_the_same(data, model):
    test = data.split("test")
    assert torch.allclose(model.class_probabilities(test), model.class_probabilities(test.x), atol=1e-5)
    concepts, classes = model(test.x)
    assert torch.allclose(torch.softmax(classes, 1), model.class_probabilities(test), atol=1e-5)
    assert torch.allclose(torch.sigmoid(concepts), model.concept_probabilities(test), atol=1e-5)


def test_copies_share_the_front(model):
    import copy

    assert copy.deepcopy(model).front is model.front


def test_the_front_is_part_of_the_fingerprint(data, model):
    other = ecbm.train(data, networks_kit.own(arguments={"seed": 1}))
    assert other.fingerprint != model.fingerprint
    assert ecbm.train(data, networks_kit.own()).fingerprint == model.fingerprint


# -- layers, precision, preprocessing ------------------------------------------------------------------------


def test_features_of_an_earlier_layer(data):
    model = ecbm.train(data, networks_kit.own(layer="first"))
    with torch.no_grad():
        expected = networks_kit.eye().first(data.x).mean((2, 3))
    found = seen_through(model.front, data).inputs.take(range(len(data)))
    assert torch.allclose(found, expected, atol=1e-5)


def test_features_of_several_layers_are_joined(data):
    model = ecbm.train(data, networks_kit.own(layer=["first", "norm"]))
    assert model.recipe.layer == "first+norm"
    network = networks_kit.eye().eval()
    with torch.no_grad():
        first = network.first(data.x)
        expected = torch.cat(
            [first, network.norm(network.second(first.relu())).repeat_interleave(2, 2).repeat_interleave(2, 3)], 1
        )
    found = seen_through(model.front, data).inputs.take(range(len(data)))
    assert torch.allclose(found, expected.mean((2, 3)), atol=1e-5)


def test_half_precision_is_rounded_in_training_and_prediction_alike(data):
    model = ecbm.train(data, networks_kit.own(feature_precision="float16"))
    kept = seen_through(model.front, data).inputs.take(range(8))
    assert torch.equal(kept, kept.half().float())
    assert torch.equal(model.front(data.x[:8]), model.front(data.x[:8]).half().float())
    assert model.front.rows._values.dtype == torch.float16


def test_mixed_precision_is_part_of_the_front_and_near_the_plain_one(data):
    mixed, plain = (ecbm.train(data, networks_kit.own(mixed_precision=flag)).front for flag in (True, False))
    assert mixed.settings.identity != plain.settings.identity
    difference = (mixed(data.x) - plain(data.x)).abs().max() / plain(data.x).abs().max()
    assert 0 < float(difference) < 0.02
    assert mixed(data.x).dtype == torch.float32


def test_training_in_mixed_precision_learns_as_well(data):
    losses = [
        ecbm.train(data, backbone="convnet", epochs=3, mixed_precision=flag).provenance.training["epochs"][-1][
            "loss"
        ]
        for flag in (False, True)
    ]
    assert losses[0] != losses[1]
    assert abs(losses[0] - losses[1]) < 0.1 * losses[0]


class Loud(nn.Module):
    def forward(self, x):
        return 1e6 * x.mean((2, 3))


def test_features_too_large_for_half_precision_are_refused(data):
    with pytest.raises(InputError, match="too large for float16"):
        ecbm.train(data, backbone=Loud(), frozen=True, feature_precision="float16")


def test_the_networks_own_preprocessing_is_kept_in_the_model(data):
    networks_kit.timm()
    model = ecbm.train(data, backbone="timm:resnet18", frozen=True, preprocessing={"size": 32})
    how = model.front.settings.preprocessing
    assert (how.size, how.crop, how.interpolation) == ((32, 32), 0.95, "bicubic")
    assert FrontSettings.from_dict(model.front.settings.to_dict()) == model.front.settings
    assert model.front.settings.library.startswith("timm ")


def test_a_module_may_be_frozen_too(data):
    model = ecbm.train(data, backbone=networks_kit.eye(), frozen=True)
    assert model.front.settings.backbone == "custom"
    assert (
        ecbm.Editor(model, data).apply(ecbm.Edit(remove_samples=[data.split("train").ids[0]])).report["certificate"]
    )


# -- trained behind a layer ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frozen", "layer"),
    [
        ("until:blocks.4", "blocks.4+blocks.5+blocks.6"),
        ("until:blocks.5", "blocks.5+blocks.6"),
        ("until:bn1", None),
    ],
)
def test_pretrained_joins_the_stages_from_the_cut_on(frozen, layer):
    networks_kit.lite0()
    assert resolve_backbone(networks_kit.pretrained(frozen=frozen), (3, 64, 64)).layer == layer


def test_only_the_layers_behind_are_trained(data):
    model = ecbm.train(data, networks_kit.own(frozen="until:first", epochs=2))
    fresh = networks_kit.eye()
    assert torch.equal(model.front.weights()["first.weight"], fresh.first.weight)
    assert not torch.equal(model.backbone.second.weight, fresh.second.weight)
    assert not any(name.startswith("first") for name, _ in model.named_parameters())
    with torch.no_grad():
        assert model.front(data.x[:2]).shape == (2, 8, 16, 16)


def test_the_front_of_a_trained_tail_runs_once_for_each_picture_that_training_reads(data, monkeypatch):
    runs: list[int] = []
    conv = nn.Conv2d.forward
    monkeypatch.setattr(
        nn.Conv2d,
        "forward",
        lambda self, x: (runs.append(len(x)) if self.in_channels == 3 else None) or conv(self, x),
    )
    model = ecbm.train(data, networks_kit.own(frozen="until:first", epochs=3))
    trial, read = 1, len(data.split("train")) + len(data.split("val"))
    assert sum(runs) == read + trial
    ecbm.Editor(model, data).apply(ecbm.Edit(remove_samples=[data.split("train").ids[0]]))
    assert sum(runs) == read + trial


def test_a_network_by_name_can_be_trained_whole(data):
    model = ecbm.train(data, networks_kit.own(frozen=False, epochs=2))
    assert model.front.shape == data.inputs.shape
    assert not torch.equal(model.backbone.first.weight, networks_kit.eye().first.weight)
    assert (
        "certificate"
        in ecbm.Editor(model, data).apply(ecbm.Edit(remove_samples=[data.split("train").ids[0]]), "exact").report
    )


# -- names and refusals --------------------------------------------------------------------------------------


def test_pretrained_says_which_network_it_is(data):
    networks_kit.lite0()
    recipe = resolve_backbone(networks_kit.pretrained(), data.inputs.shape)
    assert (recipe.backbone, recipe.weights) == (OFFLINE[networks_kit.LITE0][0], networks_kit.LITE0)
    best = resolve_backbone(ecbm.Recipe(backbone="pretrained"), data.inputs.shape)
    assert best.backbone in [name for name, _ in OFFLINE.values()]
    assert best.is_frozen
    # Twice the pictures' 32 px; a network's own size where that is smaller.
    assert best.preprocessing == {"size": (64, 64)}
    assert resolve_backbone(ecbm.Recipe(backbone="pretrained"), (3, 224, 300)).preprocessing is None


def test_the_offline_network_sees_birds(data):
    networks_kit.lite0()
    model = ecbm.train(data, networks_kit.pretrained())
    assert model.front.settings.source.startswith(networks_kit.LITE0)
    assert len(model.front.settings.weights) == 40
    majority = float(data.split("train").concepts.mean(0).round().sub(data.split("test").concepts).abs().mean())
    assert ecbm.evaluate(model, data.split("test"))["concept_accuracy"] > 1 - majority


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"backbone": "tim:resnet18"}, None),
        ({"backbone": "timm:"}, "unknown backbone"),
        ({"backbone": "convnet", "frozen": True}, "frozen= is for networks"),
        ({"backbone": "linear", "layer": "x"}, "layer= is for networks"),
        ({"backbone": "timm:resnet18", "layer": "layer3"}, "is for a frozen network"),
        ({"backbone": "timm:resnet18", "frozen": "till:layer3"}, "'until:LAYER'"),
        ({"backbone": "onnx:a.onnx", "frozen": False}, "cannot be trained"),
        ({"backbone": "pretrained", "feature_precision": "float8"}, "float8"),
        ({"backbone": "pretrained", "preprocessing": {"sise": 3}}, "sise"),
        ({"backbone": "timm:resnet18", "arguments": {"a": 1}}, "package.module:factory"),
        ({"backbone": "a.b:c", "arguments": {"a": object()}}, "JSON"),
    ],
)
def test_recipes_that_cannot_be_meant_are_refused(fields, words):
    if words is None:  # an import path of somebody's own
        assert ecbm.Recipe(**fields).is_own
        return
    with pytest.raises(InputError, match=words):
        ecbm.Recipe(**fields)


def test_new_fields_at_their_default_do_not_change_a_recipes_plain_form():
    assert not {"frozen", "layer", "arguments"} & set(ecbm.Recipe().to_dict())
    recipe = networks_kit.own(preprocessing={"size": 16, "mean": (0.5, 0.5, 0.5)}, arguments={"width": 4})
    assert ecbm.Recipe.from_dict(recipe.to_dict()) == recipe


def test_feature_rows_are_no_pictures():
    with pytest.raises(InputError, match="needs pictures"):
        ecbm.train(kit.tabular(), backbone="pretrained")


def test_pictures_that_the_network_cannot_take_are_refused():
    small = ecbm.datasets.birds(n=80, seed=0, size=24)
    networks_kit.timm()
    with pytest.raises(InputError, match="cannot take a picture of shape"):
        ecbm.train(small, backbone="timm:vit_tiny_patch16_224", frozen=True, preprocessing={"size": 24})


# -- what is kept --------------------------------------------------------------------------------------------


def test_equal_pictures_are_computed_once(passes):
    some = kit.pictures(80)
    twice = ecbm.Dataset(
        [*some.ids, *(f"{name}-again" for name in some.ids)],
        torch.cat([some.inputs.tensor, some.inputs.tensor]),
        torch.cat([some.concepts, some.concepts]),
        torch.cat([some.labels, some.labels]),
        some.concept_names, some.class_names, (*some.splits, *some.splits),
    )  # fmt: skip
    model = ecbm.train(twice, networks_kit.own())
    assert sum(passes) == 80 + 1
    assert len(model.front.rows) == 80


def test_a_batch_is_decoded_while_the_one_before_it_is_computed(data, monkeypatch):
    order: list[str] = []
    take = type(data.inputs).take
    monkeypatch.setattr(extraction, "_BATCH", 16)
    monkeypatch.setattr(type(data.inputs), "take", lambda self, rows: order.append("decode") or take(self, rows))
    forward = networks_kit.Eye.forward
    monkeypatch.setattr(networks_kit.Eye, "forward", lambda self, x: order.append("compute") or forward(self, x))
    ecbm.train(data, networks_kit.own())
    computed = [place for place, what in enumerate(order) if what == "compute"]
    # The last batch was decoded before the one in front of it had been computed to its end.
    assert order.index("compute") < computed[-1]
    assert max(place for place, what in enumerate(order) if what == "decode") < computed[-1]


def test_rows_in_memory_are_found_by_digest():
    from ecbm.read.digests import RowDigests

    digests = RowDigests(np.random.default_rng(0).integers(0, 255, (50, 16), np.uint8))
    values, rows = torch.randn(50, 3, 2), MemoryRows((3, 2))
    for start in range(0, 40, 7):
        rows.add(digests[start : min(start + 7, 40)], values[start : min(start + 7, 40)])
    found, there = rows.fetch(digests)
    assert there.tolist() == [True] * 40 + [False] * 10
    assert torch.equal(found[:40], values[:40])


def test_a_dataset_seen_through_a_front_is_the_same_dataset(data, model):
    seen = seen_through(model.front, data)
    assert isinstance(seen.inputs, SeenInputs)
    assert seen.fingerprint == data.fingerprint
    assert seen.split("val").inputs.shape == model.front.shape
    assert seen_through(model.front, seen) is seen
    assert seen_through(None, data) is data
