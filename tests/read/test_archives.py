"""CelebA and OAI: miniature archives in the official layouts are read as documented."""

from __future__ import annotations

import os
import pickle
import shutil

import numpy as np
import pytest
import torch

from ecbm.errors import InputError
from ecbm.read.celeba import celeba
from ecbm.read.oai import OAI_CONCEPTS, oai
from ecbm.read.tables import read_dataset
from ecbm.read.write import write_dataset

NAMES = [f"Attribute_{number:02d}" for number in range(40)]


def test_celeba_has_eight_labels_and_thirty_two_concepts_with_nothing_in_common(celeba_archive):
    data = celeba(celeba_archive())
    assert len(data) == 12
    assert data.split_sizes == {"train": 8, "val": 2, "test": 2}
    assert len(data.concept_names) == 32
    used = {part for name in data.class_names for part in name.split("+")} - {"none"}
    assert not used & set(data.concept_names)
    assert data.ids[0] == "000001.jpg"
    assert data.x.shape == (12, 3, 64, 64)


def test_celeba_takes_the_most_balanced_attributes_of_the_training_split(celeba_archive):
    values = np.zeros((12, 40), int)
    values[:4, [3, 30]] = 1  # half of the eight training faces
    values[8:, :] = 0
    values[8:, 7] = 1  # balanced only over all faces
    data = celeba(celeba_archive(values), labels=2)
    assert data.class_names == ("none", "Attribute_03+Attribute_30")
    assert "Attribute_07" in data.concept_names


def test_celeba_choices_are_adjustable(celeba_archive):
    root = celeba_archive()
    data = celeba(root, labels=["Attribute_05"], concepts=["Attribute_01", "Attribute_02"], image_size=(4, 6))
    assert data.class_names == ("not Attribute_05", "Attribute_05")
    values = np.random.default_rng(5).integers(0, 2, (12, 40))
    values[8:] = values[:4]
    assert data.labels.tolist() == values[:, 5].tolist()
    assert data.concepts.tolist() == values[:, [1, 2]].tolist()
    assert data.inputs.shape == (3, 4, 6)
    with pytest.raises(InputError, match="'Attribute_05' is a label, so it cannot be a concept"):
        celeba(root, labels=["Attribute_05"], concepts=["Attribute_05"])
    with pytest.raises(InputError, match="did you mean 'Attribute_05'"):
        celeba(root, labels=["Atribute_05"])


def test_celeba_leaves_out_held_out_faces_of_a_combination_never_trained_on(celeba_archive):
    values = np.zeros((12, 40), int)
    values[0, 0] = values[9, 1] = 1
    with pytest.warns(UserWarning, match="left out 1 pictures"):
        data = celeba(celeba_archive(values), labels=NAMES[:2])
    assert len(data) == 11
    assert "000010.jpg" not in data.ids


def test_celeba_pictures_may_stay_in_the_official_zip(celeba_archive):
    root = celeba_archive()
    expected = celeba(root).fingerprint
    shutil.make_archive(str(root / "img_align_celeba"), "zip", root, "img_align_celeba")
    shutil.rmtree(root / "img_align_celeba")
    (root / "Anno").mkdir()
    (root / "list_attr_celeba.txt").rename(root / "Anno" / "list_attr_celeba.txt")
    assert celeba(root).fingerprint == expected


@pytest.mark.parametrize(
    ("file", "old", "new", "message"),
    [
        ("list_attr_celeba.txt", "12\n", "13\n", "line 1: says 13 pictures but 12 follow"),
        ("list_attr_celeba.txt", "12\n", "x\n", "line 1: .* is not the number of pictures"),
        ("list_attr_celeba.txt", "000003.jpg ", "000003.jpg 1 ", "line 5: .* does not hold 40 whole numbers"),
        (
            "list_attr_celeba.txt",
            "000003.jpg -1",
            "000003.jpg  0",
            "line 5, column 'Attribute_00': 0 is not 1 or -1",
        ),
        ("list_attr_celeba.txt", "Attribute_01 ", "Attribute_00 ", "line 2: attribute names"),
        ("list_eval_partition.txt", "000003.jpg 0", "000003.jpg 3", "line 3: 3 is not 0"),
        ("list_eval_partition.txt", "000003.jpg 0\n", "", "no line for picture '000003.jpg'"),
        ("list_eval_partition.txt", "000003.jpg 0", "000003.jpg zero", "line 3"),
    ],
)
def test_celeba_names_the_broken_line(celeba_archive, file, old, new, message):
    values = np.random.default_rng(5).integers(0, 2, (12, 40))
    values[2, 0] = 0
    root = celeba_archive(values)
    text = (root / file).read_text()
    assert old in text
    (root / file).write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=message):
        celeba(root)


def test_celeba_without_its_files(tmp_path, celeba_archive):
    with pytest.raises(InputError, match=r"no list_attr_celeba.txt in"):
        celeba(tmp_path)
    root = celeba_archive()
    (root / "img_align_celeba" / "000002.jpg").unlink()
    with pytest.raises(InputError, match=r"'000002.jpg' \(.*list_attr_celeba.txt, line 4\): no such picture"):
        celeba(root)
    assert celeba(root, features=np.zeros((12, 5))).x.shape == (12, 5)


@pytest.mark.parametrize("subfolder", ["", "show_both_knees_True"])
def test_oai_in_kohs_layout(oai_archive, subfolder):
    data = oai(oai_archive(subfolder=subfolder))
    assert data.split_sizes == {"train": 3, "val": 3, "test": 3}
    assert data.ids[:4] == ("016607900000*1", "016607900001*1", "016607900002*1", "016607910000*1")
    assert data.class_names == ("KLG 0-1", "KLG 2", "KLG 3", "KLG 4")
    assert data.labels.tolist() == [0, 1, 3] * 3
    assert list(data.concept_names) == list(OAI_CONCEPTS)
    assert torch.allclose(data.concepts[0, :4], torch.tensor([0, 1, 2, 3]) / 3)
    assert data.concepts[0, 9] == pytest.approx(1 / 3)  # 1.6 is cut to 1
    assert data.concepts[2, 9].isnan()
    expected = torch.from_numpy(np.random.default_rng(1).normal(size=(8, 6)).astype(np.float32))
    assert torch.equal(data.x[4], expected.repeat(3, 1, 1))


def test_oai_grades_as_one_hot_or_thresholds(oai_archive):
    root = oai_archive()
    onehot = oai(root, encoding="onehot", merge_grades=False, concepts=["xrjsm", "xrsctl"], image_size=4)
    assert onehot.groups["xrjsm"] == ("xrjsm=0", "xrjsm=1", "xrjsm=2", "xrjsm=3")
    assert onehot.concepts[0].tolist() == [0, 0, 1, 0, 0, 1, 0, 0]
    assert onehot.concepts[2, 4:].isnan().all()
    assert onehot.class_names[-1] == "KLG 4"
    assert onehot.labels[:3].tolist() == [0, 2, 4]
    assert onehot.x.shape == (9, 3, 4, 4)
    ordered = oai(root, encoding="atleast", concepts=["xrjsm"])
    assert ordered.groups == {"xrjsm": ("xrjsm::>=1", "xrjsm::>=2", "xrjsm::>=3")}
    assert ordered.concepts[0].tolist() == [1, 1, 0]
    assert ordered.concept_types["xrjsm::>=1"] == "binary"
    graded = oai(root, encoding="ordinal", concepts=["xrjsm"])
    assert graded.concept_types == {"xrjsm": "ordinal"}
    assert graded[graded.ids[0]].values == {"xrjsm": 2.0}


def test_oai_pictures_round_trip_without_being_pictures(oai_archive, tmp_path):
    data = oai(oai_archive())
    assert read_dataset(write_dataset(data, tmp_path / "copy")) == data


class Malicious:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_oai_never_runs_what_a_pickle_asks_for(oai_archive, tmp_path):
    trap = tmp_path / "trap"
    for protocol in range(6):
        root = oai_archive(codes=pickle.dumps([Malicious(trap)], protocol))
        with pytest.raises(InputError, match=r"image_codes.pkl: refused, .*mkdir"):
            oai(root)
        shutil.rmtree(root)
    for text in (
        b"cbuiltins\neval\n(V1\ntR.",
        b"cnumpy\nload\n(Vx\ntR.",
        b"c_codecs\ndecode\n(Vx\ntR.",
        b"Pid\n.",
    ):
        root = oai_archive(codes=text)
        with pytest.raises(InputError, match="refused"):
            oai(root)
        shutil.rmtree(root)
    assert not trap.exists()


@pytest.mark.parametrize("protocol", range(5))
def test_oai_codes_may_be_numpy_text(oai_archive, protocol):
    root = oai_archive()
    for path in root.glob("*/*/image_codes.pkl"):
        codes = pickle.loads(path.read_bytes())
        path.write_bytes(pickle.dumps(np.array(codes), protocol))
    assert oai(root).ids[0] == "016607900000*1"


def test_oai_names_what_is_wrong(oai_archive):
    root = oai_archive()
    table = root / "val" / "show_both_knees_True" / "non_image_data.csv"
    text = table.read_text()
    for old, new, message in [
        ("2.0,1.0", "7.0,1.0", "line 3, column 'xrkl': grade 7 is not in 0..4"),
        ("a b,2.0", "a b,", "line 3, column 'xrkl': empty"),
        ("16607910001", "16607910009", "line 3, column 'barcdbu': '016607910009.1' but image 1"),
        ("xrosfl", "xrosfx", "unknown column 'xrosfl'"),
    ]:
        assert old in text
        table.write_text(text.replace(old, new, 1))
        with pytest.raises(InputError, match=message):
            oai(root)
    table.write_text("\n".join(text.split("\n")[:3]) + "\n")
    with pytest.raises(InputError, match=r"3 image codes but .* has 2 rows"):
        oai(root)
    table.write_text(text)
    (table.parent / "image_1.npz").unlink()
    with pytest.raises(InputError, match=r"image_1.npz: no such picture"):
        oai(root)
    (table.parent / "image_codes.pkl").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(InputError, match="not a list of image codes"):
        oai(root)
    with pytest.raises(InputError, match=r"no non_image_data.csv"):
        oai(root / "train")
