"""ImageNet: folders and tables of photographs, the long tail by list and by counts."""

import json
from pathlib import Path

import datasets
import torch
from PIL import Image
from torchvision.transforms import v2

from experiments.errors import ConfigurationError, DataError
from tests.experiments.data.generated import WNIDS, encoded, slope
from tests.experiments.data.support import epochs, loaded, ready, refusal

COUNTS = [3, 2, 1]  # of the small ImageNet-LT
LONG_TAILED = {"long_tailed": True, "repeat_images": True}


def write_counts(home, content):
    path = home / "imagenet_lt/ImageNet_LT_train.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))
    return path


def listed(*images):
    """Lines of a published list, for the number of a class and of its image."""
    return [f"train/{WNIDS[label]}/{WNIDS[label]}_{image}.JPEG {label}" for label, image in images]


PUBLISHED = listed((0, 0), (0, 0), (0, 0), (1, 0), (1, 0), (2, 1))


def write_list(home, lines):
    path = write_counts(home, "never looked at").with_suffix(".txt")
    path.write_text("\r\n".join(lines) + "\r\n", "utf-8", newline="")
    return path


def files(examples):
    return [Path(path).name for path, _ in examples.dataset.samples]


def middle(image):
    """The middle 8 × 8 pixels of the image whose shorter side is resized to 10 pixels."""
    return v2.functional.center_crop(v2.functional.resize(v2.functional.pil_to_tensor(image), 10), 8)


def test_all_images_of_both_sides_are_loaded(photos):
    data = loaded("imagenet", photos)
    assert data.class_names == tuple(WNIDS[:3])
    assert data.train.targets.tolist() == [0, 1, 2, 2, 2]
    assert data.test.targets.tolist() == [0, 1, 2]
    assert data.facts == {"train_size": 5, "test_size": 3}
    assert data.shots is None
    inputs, targets = data.test.read(torch.tensor([2, 1]), torch.zeros(2, dtype=torch.int64))
    assert (inputs.shape, inputs.dtype, targets.tolist()) == ((2, 3, 8, 8), torch.uint8, [2, 1])
    one_side = loaded("imagenet", photos, test_folder="train")
    assert one_side.facts == {"train_size": 5, "test_size": 5}


def test_a_crop_larger_than_the_resized_image_is_refused(photos):
    said = refusal("imagenet", photos, ConfigurationError, image_size=11)
    assert said.startswith("data.image_size=11 is not allowed; it is cut from images whose shorter side has")


def test_measuring_cuts_the_middle_of_the_resized_image(photos, tmp_path):
    data = ready("imagenet", photos)
    for image in (slope(60, 20), slope(33, 21).convert("L")):
        (tmp_path / "mine.png").write_bytes(encoded(image))
        inputs, names = data.encode(tmp_path / "mine.png")
        assert torch.equal(inputs[0], middle(image.convert("RGB")))
        assert names == [""]
    file = photos / f"photos/train/{WNIDS[0]}/{WNIDS[0]}_0.JPEG"
    train = next(iter(ready("imagenet", photos, train_metrics="evaluated").val_dataloader()[0]))
    assert torch.equal(train.inputs[0], middle(Image.open(file).convert("RGB")))


def test_pixels_depend_on_seed_epoch_and_image_alone(photos):
    def pixels(epoch, **changes):
        batches = epochs(ready("imagenet", photos, **changes), epoch + 1)[epoch]
        return {int(i): image for batch in batches for i, image in zip(batch.indices, batch.inputs, strict=True)}

    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    here = pixels(3)
    assert torch.equal(torch.rand(3), expected)
    in_workers = pixels(3, batch_size=2, num_workers=2)
    assert here.keys() >= in_workers.keys()
    assert all(torch.equal(here[index], in_workers[index]) for index in in_workers)
    for other in (pixels(4), pixels(3, seed=22)):
        assert sum(not torch.equal(here[index], other[index]) for index in here) >= 4


# The long tail


def test_counts_give_exactly_that_many_images(photos):
    write_counts(photos, COUNTS)
    data, again, other = (loaded("imagenet", photos, **LONG_TAILED, tail_seed=seed) for seed in (0, 0, 1))
    assert data.train.targets.bincount().tolist() == COUNTS
    assert data.facts == {
        "train_size": 6,
        "test_size": 3,
        "train_list": "sampled by counts",
        "repeated_images": 3,
        "largest_class": 3,
        "smallest_class": 1,
        "shot_rule": "many > 100, few < 20 training examples (mine)",
        "few_classes": 3,
    }
    assert data.shots["few"].tolist() == [0, 1, 2]
    assert data.content_hash == again.content_hash != other.content_hash
    assert files(data.train)[-1] != files(other.train)[-1]


def test_the_published_list_gives_exactly_its_images(photos):
    write_list(photos, ["\ufeff" + PUBLISHED[0], *PUBLISHED[1:], ""])
    expected = {"train": 1_281_167, "test": 3}  # a folder may hold the listed images alone
    data = loaded("imagenet", photos, long_tailed=True, expected_examples=expected)
    assert files(data.train) == [line.split()[0].rpartition("/")[2] for line in PUBLISHED]
    assert data.train.targets.bincount().tolist() == COUNTS
    assert data.facts["train_list"] == "published list"


def test_images_that_a_long_tail_repeats_stay_on_one_side(photos):
    write_list(photos, listed((2, 0), (2, 0), (2, 1), (0, 0), (0, 0), (1, 0)))
    data = loaded("imagenet", photos, long_tailed=True, validation_fraction=0.34)
    assert sorted(data.train.indices.tolist()) == [0, 1, 3, 4, 5]  # the others repeat, or are alone in their class
    assert data.validation.targets.tolist() == [2]


def test_wrong_counts_and_lists_and_too_few_images_are_refused(photos):
    path = write_counts(photos, [3, 2])
    said = "2 classes of 2 to 3 images, 5 in all; ImageNet-LT has 3 classes of 1 to 3 images, 6 in all"
    assert f"{path}: {said}" in refusal("imagenet", photos, DataError, **LONG_TAILED)
    write_counts(photos, COUNTS)
    said = refusal("imagenet", photos, DataError, long_tailed=True)
    assert "class 0 has 1 examples, 3 are to be kept" in said
    assert "data.repeat_images=true" in said
    write_counts(photos, {"annotations": []})  # as BBN's file of this name
    assert f"{path}: cannot be read (no list of whole numbers)" in refusal("imagenet", photos, DataError, **LONG_TAILED)
    path = write_list(photos, [*PUBLISHED[:-1], PUBLISHED[-1].replace(" 2", " 1")])
    said = refusal("imagenet", photos, DataError, long_tailed=True)
    assert f"{path}: train/{WNIDS[2]}/{WNIDS[2]}_1.JPEG has class 1; its folder is class 2" in said
    path = write_list(photos, [*PUBLISHED[:-1], *listed((2, 77))])
    said = refusal("imagenet", photos, DataError, long_tailed=True)
    assert f"1 of the 6 images of {path} are missing, the first is 'train/{WNIDS[2]}/{WNIDS[2]}_77.JPEG'" in said


def test_the_hub_gives_images_and_takes_the_counts_from_the_data_folder(tmp_path, monkeypatch):
    labels = datasets.ClassLabel(names=["tench", "goldfish", "shark"])
    features = datasets.Features(image=datasets.Image(), label=labels)
    images = [{"bytes": encoded(slope(20 + number)), "path": None} for number in range(3)]
    sides = {
        side: datasets.Dataset.from_dict({"image": images, "label": numbers}, features=features)
        for side, numbers in {"train": [2, 1, 0], "validation": [0, 1, 2]}.items()
    }
    monkeypatch.setattr(datasets, "load_dataset", lambda name, split: sides[split])
    monkeypatch.chdir(tmp_path)
    data = loaded("imagenet")
    assert data.class_names == ("tench", "goldfish", "shark")
    assert data.facts == {"train_size": 3, "test_size": 3}
    inputs, targets = data.test.read(torch.arange(3), torch.arange(3))
    assert targets.tolist() == [0, 1, 2]
    assert all(torch.equal(image, middle(slope(20 + number))) for number, image in enumerate(inputs))
    assert "data/imagenet_lt/ImageNet_LT_train.json: cannot be read" in refusal(
        "imagenet", None, DataError, **LONG_TAILED
    )
    write_counts(tmp_path / "data", COUNTS)
    tail = loaded("imagenet", **LONG_TAILED)
    assert tail.train.targets.bincount().tolist() == COUNTS
    assert files(tail.train) == ["0", "1", "1", "2", "2", "2"]
    assert tail.content_hash != data.content_hash
