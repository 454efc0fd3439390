"""Backbones: torchvision's names, weight files that run no code, and any module of the user's own."""

from __future__ import annotations

import os
import pickle

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import ecbm
from ecbm import InputError
from ecbm.train.backbones import build_backbone
from ecbm.train.resnet import ResNet, load_backbone_weights, resnet18
from kit import pictures, same_bytes, tabular


def torchvision_resnet18() -> dict[str, tuple[int, ...]]:
    """Names and shapes of torchvision's ResNet-18, from the rule that makes them."""

    def norm(name, width):
        shapes = dict.fromkeys(("weight", "bias", "running_mean", "running_var"), (width,))
        return {f"{name}.{part}": shape for part, shape in shapes.items()} | {f"{name}.num_batches_tracked": ()}

    names = {"conv1.weight": (64, 3, 7, 7)} | norm("bn1", 64)
    before = 64
    for stage, width in enumerate((64, 128, 256, 512), 1):
        for block in (0, 1):
            at = f"layer{stage}.{block}"
            names[f"{at}.conv1.weight"] = (width, before, 3, 3)
            names |= norm(f"{at}.bn1", width)
            names[f"{at}.conv2.weight"] = (width, width, 3, 3)
            names |= norm(f"{at}.bn2", width)
            if before != width:
                names[f"{at}.downsample.0.weight"] = (width, before, 1, 1)
                names |= norm(f"{at}.downsample.1", width)
            before = width
    return names | {"fc.weight": (1000, 512), "fc.bias": (1000,)}


def state_of_torchvision() -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(0)
    return {
        name: torch.tensor(7) if name.endswith("tracked") else 0.1 * torch.rand(shape, generator=draw)
        for name, shape in torchvision_resnet18().items()
    }


def test_resnet18_has_torchvisions_names_and_shapes_without_the_classifier():
    ours = {name: tuple(value.shape) for name, value in resnet18(small_stem=False).state_dict().items()}
    theirs = {name: shape for name, shape in torchvision_resnet18().items() if not name.startswith("fc.")}
    assert ours == theirs
    assert list(ours) == list(theirs)
    assert sum(p.numel() for p in resnet18(False).parameters()) + 512 * 1000 + 1000 == 11_689_512


def test_resnet18_computes_what_its_definition_says():
    torch.manual_seed(0)
    network = ResNet((1, 1), (4, 8), small_stem=False).eval()
    x = torch.rand(2, 3, 20, 20)
    mean, scale = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    out = (x - mean[:, None, None]) / scale[:, None, None]
    s = network.state_dict()

    def convolve(value, name, **options):
        return nn.functional.conv2d(value, s[f"{name}.weight"], **options)

    def normalise(value, name):
        part = [s[f"{name}.{key}"] for key in ("running_mean", "running_var", "weight", "bias")]
        return nn.functional.batch_norm(value, *part)

    out = normalise(convolve(out, "conv1", stride=2, padding=3), "bn1").relu()
    out = nn.functional.max_pool2d(out, 3, 2, 1)
    for stage, stride in (("layer1.0", 1), ("layer2.0", 2)):
        inner = normalise(convolve(out, f"{stage}.conv1", stride=stride, padding=1), f"{stage}.bn1").relu()
        inner = normalise(convolve(inner, f"{stage}.conv2", padding=1), f"{stage}.bn2")
        if stride == 2:
            out = normalise(convolve(out, f"{stage}.downsample.0", stride=2), f"{stage}.downsample.1")
        out = (inner + out).relu()
    torch.testing.assert_close(network(x), out.mean((2, 3)))


@pytest.mark.parametrize("counters", [True, False], ids=["with batch counters", "of older PyTorch"])
@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_torchvision_weight_files_load(tmp_path, suffix, counters):
    state = state_of_torchvision()
    if not counters:  # torchvision's published resnet18 file is of this kind
        state = {name: value for name, value in state.items() if not name.endswith("tracked")}
    path = tmp_path / f"resnet18{suffix}"
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    recipe = ecbm.Recipe(backbone="resnet18", small_stem=False, weights=path)
    backbone = build_backbone(recipe, (3, 64, 64))
    loaded = backbone.state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in state.items() if not name.startswith("fc."))


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("how", ["pickle", "torch"])
def test_a_weight_file_never_runs_code(tmp_path, how):
    path, trace = tmp_path / "resnet18.pth", tmp_path / "it ran"
    content = {"conv1.weight": Malicious(trace)}
    if how == "pickle":
        path.write_bytes(pickle.dumps(content, protocol=2))
    else:
        torch.save(content, path)
    with pytest.raises(InputError, match="not a readable weight file") as caught:
        load_backbone_weights(resnet18(), path)
    assert not trace.exists()
    assert "\n" not in str(caught.value)


def spoilt(change):
    state = state_of_torchvision()
    change(state)
    return state


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not a readable weight file"),
        (b"PK\x03\x04 not really a zip", "not a readable weight file"),
        ([1, 2], "holds no state dict"),
        ({"conv1.weight": "text"}, "holds no state dict"),
        (spoilt(lambda s: s.pop("bn1.bias")), "lacks parameter 'bn1.bias'"),
        (spoilt(lambda s: s.update(extra=torch.ones(1))), "has an extra parameter 'extra'"),
        (spoilt(lambda s: s.update({"conv1.weight": torch.ones(64, 3, 3, 3)})), "is small_stem set as in the file"),
        (spoilt(lambda s: s["bn1.bias"].fill_(torch.nan)), "'bn1.bias' contains NaN"),
    ],
)
def test_a_bad_weight_file_is_refused_in_one_line(tmp_path, content, message):
    path = tmp_path / "resnet18.pth"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(InputError, match=message) as caught:
        load_backbone_weights(resnet18(small_stem=False), path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_or_truncated_weight_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="no such weight file"):
        ecbm.train(pictures(80), ecbm.Recipe(backbone="resnet18", weights=tmp_path / "none.pth"))
    path = tmp_path / "cut.safetensors"
    save_file(state_of_torchvision(), path)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(InputError, match="not a readable weight file"):
        load_backbone_weights(resnet18(False), path)


def test_resnet18_trains_from_a_weight_file_saves_and_loads(tmp_path):
    torch.manual_seed(0)
    save_file(resnet18(small_stem=False).state_dict(), tmp_path / "start.safetensors")
    data = pictures(80)
    recipe = ecbm.Recipe(
        backbone="resnet18", small_stem=False, weights=tmp_path / "start.safetensors", epochs=1, patience=None
    )
    model = ecbm.train(data, recipe)
    ecbm.save(model, tmp_path / "model")
    (tmp_path / "start.safetensors").unlink()  # only training needs it
    again = ecbm.load(tmp_path / "model")
    assert same_bytes(model, again)
    x = data.split("test").x[:3]
    assert torch.equal(model.class_probabilities(x), again.class_probabilities(x))


class Own(nn.Module):
    """A backbone with everything that may surprise: shared weights, buffers of other types, layer norm."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.second = nn.Linear(6, 6)
        self.second.weight = self.first.weight
        self.norm = nn.LayerNorm(6)
        self.register_buffer("order", torch.arange(6).flip(0))
        self.register_buffer("scale", torch.ones((), dtype=torch.bfloat16))

    def forward(self, x):
        return self.norm(self.second(self.first(x[:, self.order]).relu())) * self.scale


def test_any_module_can_be_a_backbone_and_comes_back_from_disk(tmp_path):
    data, module = tabular(80), Own()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = ecbm.train(data, ecbm.Recipe(backbone=module, epochs=3))
    assert all(torch.equal(value, module.state_dict()[name]) for name, value in before.items())
    ecbm.save(model, tmp_path / "model")
    again = ecbm.load(tmp_path / "model", backbone=Own())
    assert torch.equal(model.class_probabilities(data.x), again.class_probabilities(data.x))
    assert again.fingerprint == model.fingerprint
    with pytest.raises(InputError, match="custom backbone; pass the module as backbone="):
        ecbm.load(tmp_path / "model")
    with pytest.raises(InputError, match=r"lacks|unexpected"):
        ecbm.load(tmp_path / "model", backbone=nn.Linear(6, 6))


def test_frozen_parts_of_a_backbone_stay_as_they_are():
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 4))
    module[0].requires_grad_(False)
    model = ecbm.train(tabular(80), ecbm.Recipe(backbone=module, epochs=2))
    assert torch.equal(model.backbone[0].weight, module[0].weight)
    assert not torch.equal(model.backbone[2].weight, module[2].weight)


def test_a_backbone_without_parameters_trains_its_heads():
    model = ecbm.train(tabular(80), ecbm.Recipe(backbone=nn.Tanh(), epochs=1))
    assert model.provenance.training["concept_gradient_norm"] <= 1e-10


@pytest.mark.parametrize("size", [32, 64])
def test_the_convnet_takes_pictures_from_32_to_64_pixels(size):
    backbone = build_backbone(ecbm.Recipe(backbone="convnet"), (3, size, size))
    assert backbone.eval()(torch.rand(2, 3, size, size)).shape == (2, 256)
