"""Where images come from, files, arrays, folders and TFDS, and what is said of bad ones."""

import dataclasses
import functools
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from tests.data.prepared import prepare
from zoo.data.image_batches import training_batches
from zoo.data.image_files import ImageError
from zoo.data.image_folder import image_folder
from zoo.data.images import digits, sample, unreadable_images_named
from zoo.data.preprocessing import ImagePreprocessing
from zoo.data.tfds_data import tfds_images
from zoo.errors import DataError
from zoo.training.settings import ImageSettings

RGB = ImagePreprocessing((8, 8), 3, (0.5, 0.4, 0.3), (0.2, 0.2, 0.1))


def gradient(height=16, width=16):
    """A smooth picture: resizing it well leaves its colors where they were."""
    rows, columns = np.mgrid[0:height, 0:width]
    channels = [255 * rows / height, 255 * columns / width, 0 * rows + 100]
    return np.stack(channels, axis=-1).astype(np.uint8)


def write(path, pixels=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(gradient() if pixels is None else pixels).save(path, **options)
    return path


def test_an_image_is_the_same_as_file_array_and_pil_image(tmp_path):
    path = write(tmp_path / "a.png")
    expected = RGB.read(path)
    assert expected.shape == (8, 8, 3) and expected.dtype == np.uint8
    files = (str(path), path.read_bytes(), Image.open(path))
    for image in (*files, gradient(), gradient().astype("float32")):
        np.testing.assert_array_equal(RGB.read(image), expected)
    with pytest.raises(ImageError, match="cannot be read: Is a directory"):
        RGB.read(tmp_path)
    with pytest.raises(FileNotFoundError, match="nowhere.png"):
        RGB.read("nowhere.png")


@pytest.mark.parametrize("height, width", [(8, 8), (16, 24), (33, 10), (5, 4), (1, 1), (9, 300)])
def test_the_shorter_side_is_fitted_and_the_center_cropped(height, width):
    pixels = np.zeros((height, width, 3), np.uint8)
    pixels[:, width // 2 :] = 200
    fitted = RGB.read(pixels)
    assert fitted.shape == (8, 8, 3)
    if width > 1 and width % 2 == 0:
        np.testing.assert_array_equal(fitted[:, 0], np.zeros((8, 3)))
        assert (fitted[:, -1] >= 190).all()
        np.testing.assert_array_equal(fitted, fitted[:1].repeat(8, axis=0))


def test_graph_and_eager_agree():
    """Also on an image of the size of the model that is resized to a larger one and cropped."""
    larger = dataclasses.replace(RGB, resize=10)
    for preprocessing in (RGB, larger):
        fit = tf.function(
            preprocessing.fit, input_signature=[tf.TensorSpec((None, None, 3), tf.uint8)]
        )
        for pixels in (gradient(21, 34), gradient(8, 8)):
            np.testing.assert_array_equal(fit(pixels), preprocessing.fit(tf.constant(pixels)))
    np.testing.assert_array_equal(RGB.read(gradient(8, 8)), gradient(8, 8))
    assert (larger.read(gradient(8, 8)) != gradient(8, 8)).any()


@pytest.mark.parametrize(
    "array, message",
    [
        (np.zeros(5, np.uint8), r"shape \(5,\)"),
        (np.zeros((4, 4, 2), np.uint8), r"shape \(4, 4, 2\)"),
        (np.zeros((0, 4, 3), np.uint8), "must have pixels"),
        *((np.full((4, 4, 3), value), "0..255") for value in (300, -1.0, np.nan, 0.5)),
    ],
)
def test_a_bad_array_is_refused(array, message):
    with pytest.raises(ImageError, match=message):
        RGB.read(array)


@pytest.fixture(scope="module")
def all_digits():
    return digits().loaded()


def test_digits(all_digits):
    data = all_digits
    assert (len(data.train), len(data.test)) == (1437, 360)
    assert data.input_shape == (8, 8, 1)
    assert data.class_names == [str(n) for n in range(10)]
    assert data.train.pixels.max() == 255
    assert np.bincount(data.test.labels).min() >= 34, "each digit in its share"
    train = {pixels.tobytes() for pixels in data.train.pixels}
    assert not any(pixels.tobytes() in train for pixels in data.test.pixels)
    normalized = data.preprocessing().normalize(data.train.pixels).numpy()
    np.testing.assert_allclose([normalized.mean(), normalized.std()], [0, 1], atol=1e-3)


@pytest.fixture
def folder(tmp_path):
    for name, color in (("red", 250), ("black", 5)):
        for index in range(10):
            pixels = np.zeros((12, 10, 3), np.uint8)
            pixels[..., 0] = color - index % 5
            write(tmp_path / "train" / name / f"{index}.png", pixels)
    return tmp_path


def test_a_folder_without_test_images_holds_a_tenth_out(folder):
    data = image_folder(folder).loaded((8, 8))
    assert data.class_names == ["black", "red"]
    assert (len(data.train), len(data.test)) == (18, 2)
    assert sorted(data.test.labels) == [0, 1]
    assert data.input_shape == (8, 8, 3)
    reds = data.train.pixels[data.train.labels == 1]
    assert (reds[..., 0] > 200).all() and (reds[..., 1] == 0).all()


def test_plots_of_runs_are_no_images(folder):
    """Of a run directory in the folder of the data, as with `--data-dir .`."""
    before = image_folder(folder)
    run = folder / "train" / "runs" / "vit"
    shutil.copytree(folder / "train" / "red", run)
    (run / "config.json").write_text('{"config": {}, "environment": {}}')
    after = image_folder(folder)
    assert after.class_names == before.class_names and len(after.train) == len(before.train)


def test_a_part_of_the_training_images(folder, prepared):
    """Drawn by the seed, with the share of each class; the test images stay."""
    whole, part, again, other = (
        digits().loaded(train_examples=count, seed=seed, streamed=True)
        for count, seed in ((None, 0), (100, 0), (100, 0), (100, 1))
    )
    assert len(part.train) == 100 and np.array_equal(part.test.numbers, whole.test.numbers)
    shares = np.bincount(whole.train.labels) / len(whole.train)
    np.testing.assert_allclose(np.bincount(part.train.labels), 100 * shares, atol=1)
    assert {*part.train.numbers} <= {*whole.train.numbers}
    np.testing.assert_array_equal(again.train.numbers, part.train.numbers)
    assert not np.array_equal(other.train.numbers, part.train.numbers)
    for source in (image_folder(folder), tfds_images("two_colors", prepared)):
        data = source.loaded((8, 8), train_examples=5)
        assert sorted(np.bincount(data.train.labels)) == [2, 3]
        reds = data.train.pixels[..., 0].mean(axis=(1, 2)) > 100
        np.testing.assert_array_equal(reds, data.train.labels == data.class_names.index("red"))
    for count in (1, 19):
        with pytest.raises(DataError, match=f"from 2, the .* to 18. Received: {count}"):
            image_folder(folder).loaded((8, 8), train_examples=count)


def test_images_to_choose_settings_by_are_training_images(folder, all_digits):
    """Held out by the seed, in memory and in files, with their labels; the test images are left."""
    in_files = image_folder(folder).loaded((8, 8), streamed=True)
    for data, share in ((all_digits, 0.1), (in_files, 0.25)):
        everything = rows(data.train)
        part = data.held_out(share, seed=1)
        assert len(part.valid) == round(share * len(everything))
        assert sorted(rows(part.train) + rows(part.valid)) == sorted(everything)
        assert part.test is data.test
        assert data.held_out(0.0) is data
    first, again, other = (rows(all_digits.held_out(0.1, seed).valid) for seed in (1, 1, 2))
    assert first == again != other
    assert all(part.train.name(number).endswith(".png") for number in part.train.numbers)
    with pytest.raises(DataError, match="share of 0.01 of 18 training images leaves none"):
        in_files.held_out(0.01)


@pytest.mark.parametrize("sizes, share", [((2, 2), 0.3), ((1, 20), 0.5), ((3, 1, 40), 0.8)])
def test_each_class_keeps_images_to_train_on(sizes, share, tmp_path):
    """By hand: the share of all images is held out, but a class keeps its last one."""
    for name, size in zip("abc", sizes):
        for number in range(size):
            write(tmp_path / "train" / name / f"{number}.png", gradient(4, 4 + number))
    write(tmp_path / "test" / "a" / "0.png")
    everything = image_folder(tmp_path)
    for seed in range(20):
        data = everything.held_out(share, seed)
        counts = np.bincount(data.train.labels, minlength=len(sizes))
        assert counts.min() >= 1 and counts.sum() == sum(sizes) - round(share * sum(sizes))
        np.testing.assert_allclose(counts, (1 - share) * np.array(sizes), atol=2)
        single = [name for name, size in zip("abc", sizes) if size == 1]
        assert bool(single) == data.notes[-1].endswith(f"is trained: {', '.join(single)}.")
    for seed in range(3):
        drawn = everything.loaded((8, 8), train_examples=len(sizes), seed=seed)
        assert sorted(drawn.train.labels) == [*range(len(sizes))]


def test_a_folder_holds_out_the_same_images_as_before(tmp_path):
    """Those of earlier versions, which refused a class of one image: it is trained on."""
    for name, size in (("a", 7), ("b", 24)):
        for number in range(size):
            write(tmp_path / name / f"{number:02d}.png")
    random, expected = np.random.default_rng(3), []
    for name, size in (("a", 7), ("b", 24)):
        files = sorted(map(str, (tmp_path / name).iterdir()))
        expected += [files[place] for place in random.permutation(size)[: max(1, size // 10)]]
    data = image_folder(tmp_path, seed=3)
    assert names_of(data.test) == expected and data.seed == 3
    assert sorted(names_of(data.train) + expected) == sorted(map(str, tmp_path.rglob("*.png")))
    write(tmp_path / "c" / "0.png")
    data = image_folder(tmp_path, seed=3)
    assert names_of(data.test) == expected and str(tmp_path / "c" / "0.png") in names_of(data.train)
    assert "Classes with one image, on which the model is trained: c." in data.notes
    for path in [*tmp_path.rglob("*.png")]:
        if path.name != "00.png" and path.parent.name != "c":
            path.unlink()
    with pytest.raises(DataError, match="one image of each class. Testing needs a second one"):
        image_folder(tmp_path)


def names_of(images):
    return [images.name(number) for number in images.numbers]


def rows(images):
    shown = sample(images, len(images))
    return [(image.tobytes(), int(label)) for image, label in zip(shown.pixels, shown.labels)]


def test_images_are_prepared_as_a_model_asks(folder, prepared, all_digits):
    preprocessing = ImagePreprocessing((6, 6), 3, (0.5,) * 3, (0.5,) * 3, resize=7)
    for source in (image_folder(folder), tfds_images("two_colors", prepared), digits()):
        data = source.loaded(preprocessing=preprocessing, streamed=True)
        assert data.input_shape == (6, 6, 3)
    expected = [preprocessing.read(image) for image in all_digits.test.pixels[:3]]
    found = data.test.subset(np.arange(3)).in_memory()
    np.testing.assert_array_equal(found.pixels, expected)


def test_hidden_files_are_left_out_and_unreadable_ones_are_named(folder):
    red = folder / "train" / "red"
    (red / "._0.png").write_bytes(b"of macOS")
    (red / "link.png").symlink_to(red / "missing.png")
    for streamed in (False, True):
        with pytest.raises(
            DataError, match="images cannot be read.*link.png cannot be read: .*No such file"
        ):
            image_folder(folder).loaded((8, 8), streamed=streamed).train.check()
    (red / "link.png").unlink()
    for path in folder.rglob("?.png"):
        path.write_bytes(b"oops")
    with pytest.raises(DataError, match="18 of 18 .*([0-9].png cannot be read as an image: .*){5}"):
        image_folder(folder).loaded((8, 8))


def test_many_images_are_read_when_needed(folder, prepared, monkeypatch):
    """Those of a folder and those in the record files of TFDS, in the same order."""
    for source in (image_folder(folder), tfds_images("two_colors", prepared)):
        find = functools.partial(source.loaded, (8, 8), train_examples=5)
        expected, streamed = find(), find(streamed=True)
        found, known = streamed.preprocessing(), expected.preprocessing()
        assert (found.mean, found.std) == (known.mean, known.std)
        for part, whole in zip(streamed[:2], expected[:2]):
            found = part.in_memory()
            np.testing.assert_array_equal(found.pixels, whole.pixels)
            np.testing.assert_array_equal(found.labels, whole.labels)
        monkeypatch.setattr("zoo.data.images._MEMORY_LIMIT", 1)
        assert find().test.decoded is None
        monkeypatch.undo()


def test_bad_folders(folder, tmp_path):
    with pytest.raises(DataError, match="no folder .*train"):
        image_folder(tmp_path / "elsewhere")
    (folder / "alone" / "red").mkdir(parents=True)
    write(folder / "alone" / "blue" / "0.png")
    with pytest.raises(DataError, match="one per class, at least 2. Not used: 1 .red"):
        image_folder(folder / "alone")
    write(folder / "test" / "blue" / "0.png")
    write(folder / "test" / "red" / "0.png")
    with pytest.raises(DataError, match="test has classes without training images: blue"):
        image_folder(folder)
    for path in (folder / "test").rglob("*.png"):
        path.unlink()
    with pytest.raises(DataError, match="test must contain images .*, at least 1. Not used: 2"):
        image_folder(folder)
    locked = folder / "train" / "red" / "locked"
    locked.mkdir(mode=0)
    if not os.access(locked, os.R_OK):  # the superuser reads all
        with pytest.raises(DataError, match="locked cannot be read: Permission denied"):
            image_folder(folder)


@pytest.mark.parametrize(
    "hidden", [".ipynb_checkpoints", ".git/a", "__MACOSX", "$RECYCLE.BIN", "deep/er/.thumbs"]
)
def test_copies_in_hidden_folders_are_not_read(folder, hidden):
    for name in ("red", "black"):
        shutil.copytree(folder / "train" / name, folder / "train" / name / hidden)
        (folder / "train" / name / "Thumbs.db").touch()
    write(folder / "train" / ".trash" / "0.png")
    data = image_folder(folder)
    train, test = (
        {part.name(number) for number in part.numbers} for part in (data.train, data.test)
    )
    assert (len(train), len(test)) == (18, 2) and not train & test
    assert data.notes[-1].startswith("Not used: 5 (train/.trash, train/black/")


@pytest.mark.parametrize(
    "names",
    "train/test Training/Testing train/val train/validation Training/valid train/dev".split(),
)
def test_folders_of_test_images(folder, names):
    """A class without test images is trained on, and a note names it."""
    train, test = names.split("/")
    (folder / "train").rename(folder / train)
    write(folder / test / "red" / "deeper" / "one.PNG")
    (folder / test / "black").mkdir()
    data = image_folder(str(folder))
    assert (len(data.train), len(data.test)) == (20, 1)
    assert data.class_names == ["black", "red"] and data.test.labels.tolist() == [1]
    tested = [f"Tested on the images in {folder / test}."]
    assert data.notes[:2] == (*tested, "It has no images of these classes: black.")
    assert ImageSettings(data_dir=str(folder)).is_folder


def test_unused_files_are_counted_and_named(folder):
    for name in ("test", "val"):
        write(folder / name / "red" / "one.png")
    for name in ("unlabeled/1.png", "train/2.png"):
        write(folder / name)
    for number in range(7):
        (folder / "train" / "red" / f"{number}.tif").touch()
    (folder / "train" / "none").mkdir()
    (folder / "train" / "black" / "loop").symlink_to(folder / "train")
    elsewhere = folder.parent / f"{folder.name} of others, grün"
    (folder / "train" / "linked").symlink_to(elsewhere)
    write(elsewhere / "deeper" / "3.JPEG")
    data = image_folder(folder)
    assert (len(data.train), len(data.test)) == (21, 1)
    names = "unlabeled, val, train/none, train/2.png, train/black/loop"
    tables = ", ".join(f"train/red/{n}.tif" for n in range(5))
    assert data.notes[2:] == (f"Not used: 12 ({names}, {tables}, ...).",)


def test_class_folders_without_a_folder_train(folder):
    """The same images as those of train/, unless there are test images."""
    data, alone = (image_folder(path) for path in (folder, folder / "train"))
    for part, same in ((alone.train, data.train), (alone.test, data.test)):
        assert [*map(part.name, part.numbers)] == [*map(same.name, same.numbers)]
        np.testing.assert_array_equal(part.labels, same.labels)
    assert ImageSettings(data_dir=str(folder / "train")).is_folder
    write(folder / "train" / "test" / "red" / "one.png")
    with pytest.raises(DataError, match="no folder .*train"):
        image_folder(folder / "train")


@pytest.mark.parametrize("names", ["valid invalid", "train bus", "test prod", "dev Train ops"])
def test_parts_of_the_data_are_classes_beside_other_classes(names, tmp_path):
    for name in names.split():
        for number in range(2):
            write(tmp_path / "all" / name / f"{number}.png")
    data = image_folder(tmp_path / "all")
    assert sorted(data.class_names) == sorted(names.split()) and len(data.test) == len(data.train)
    assert ImageSettings(data_dir=str(tmp_path / "all")).is_folder
    (tmp_path / "all").rename(tmp_path / "train")
    shutil.copytree(tmp_path / "train", tmp_path / "test")
    write(tmp_path / "unlabeled" / "0.png")  # beside parts of the data, it is no class
    data = image_folder(tmp_path)
    assert sorted(data.class_names) == sorted(names.split()) and len(data.test) == len(data.train)
    assert data.notes[-1] == "Not used: 1 (unlabeled)."


def test_folders_are_compared_as_they_are_read(tmp_path):
    """macOS decomposes the accent, which others do not; two names for one part are an error."""
    for name in ("train/caf\u00e9", "train/bar", "test/cafe\u0301"):
        write(tmp_path / name / "0.png")
    data = image_folder(tmp_path)
    assert data.class_names == ["bar", "caf\u00e9"] and data.test.labels == [1]
    write(tmp_path / "train" / "cafe\u0301" / "1.png")
    with pytest.raises(DataError, match="two folders of the name caf"):
        image_folder(tmp_path)
    write(tmp_path / "Train" / "bar" / "0.png")
    with pytest.raises(DataError, match="has the folders Train, train. Rename or remove one"):
        image_folder(tmp_path)


def test_images_without_a_class_and_copies_are_named(folder):
    for number in range(3):
        shutil.copy(folder / "train" / "red" / "0.png", write(folder / "test" / f"{number}.png"))
    with pytest.raises(DataError, match=r"Not used: 3 \(0.png, 1.png, "):
        image_folder(folder)
    (folder / "test" / "red").mkdir()
    (folder / "test" / "1.png").rename(folder / "test" / "red" / "copy.png")
    note = "Test images that are also training images: 1 of 1."
    assert image_folder(folder).loaded((8, 8)).notes[-1] == note


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A data set as TFDS prepares one, in two files, its images of two sizes."""

    features = {
        "image": tfds.features.Image(shape=(None, None, 3)),
        "label": tfds.features.ClassLabel(names=["black", "red"]),
    }

    def examples(count):
        for index in range(count):
            pixels = np.zeros((12 + 4 * (index % 2), 12, 3), np.uint8)
            pixels[..., 0], pixels[..., 1] = 250 * (index % 2), index
            yield {"image": pixels, "label": index % 2}

    return prepare(
        tmp_path_factory.mktemp("tfds"),
        "two_colors",
        tfds.features.FeaturesDict(features),
        {"train": examples(40), "test": examples(4)},
        files=2,
    )


def test_images_without_a_class(tmp_path):
    features = {"image": tfds.features.Image(), "label": tfds.features.Scalar(np.float32)}
    example = {"image": np.zeros((4, 4, 3), np.uint8), "label": 1}
    prepare(tmp_path, "rated", tfds.features.FeaturesDict(features), {"train": [example]})
    with pytest.raises(DataError, match="rated cannot be used: it needs the features"):
        tfds_images("rated", tmp_path)


def labeled(folder, name, **labels):
    """Prepares a data set with images of these labels in its splits."""
    features = {
        "image": tfds.features.Image(shape=(4, 4, 3)),
        "label": tfds.features.ClassLabel(names=["a", "b"]),
    }
    splits = {}
    for split, numbers in labels.items():
        pixels = [np.full((4, 4, 3), index, np.uint8) for index in range(len(numbers))]
        rows = zip(pixels, numbers)
        splits[split] = [{"image": image, "label": label} for image, label in rows]
    return prepare(folder, name, tfds.features.FeaturesDict(features), splits)


@pytest.mark.parametrize("streamed", [False, True])
def test_images_whose_label_is_minus_1_are_left_out(streamed, tmp_path):
    """And named, before training. A split without labels is not tested on."""
    half = [0, -1, 1, -1, -1, 1]
    labeled(tmp_path, "half", train=half, test=half, validation=[0])
    data = tfds_images("half", tmp_path).loaded(streamed=streamed)
    assert sorted(data.train.labels) == sorted(data.test.labels) == [0, 1, 1]
    for purpose in ("training", "test"):
        assert f"Not used, as their label is -1: 3 of 6 {purpose} images." in data.notes
    labeled(tmp_path, "hidden", train=[0, 1], test=[-1, -1], validation=[1, -1])
    data = tfds_images("hidden", tmp_path).loaded(streamed=streamed)
    assert data.test.labels == [1]
    assert data.notes[0] == "Tested on the split validation. Not used: test."
    labeled(tmp_path, "none", train=[-1, -1], test=[0, 1])
    with pytest.raises(DataError, match="None of the 2 training images has a label: all are -1"):
        tfds_images("none", tmp_path).loaded(streamed=streamed)


def test_a_label_that_is_no_class_ends_the_training(tmp_path, monkeypatch):
    """Of many images, the labels of some are read before the training."""
    labeled(tmp_path, "many", train=[1] * 100 + [-1], test=[0])
    monkeypatch.setattr("zoo.data.images._MOST_LABELS", 9)
    monkeypatch.setattr("zoo.data.images._LABELS_SEEN", 1)
    data = tfds_images("many", tmp_path).loaded(streamed=True)
    message = "label that is not from 0 to .* Remove images without"
    with pytest.raises(DataError, match=message), unreadable_images_named(data.train):
        [*training_batches(data.train, 2, 50).whole().take(4)]


def test_data_sets_without_test_images_hold_a_tenth_of_each_class_out(tmp_path):
    labels = [0] * 50 + [1] * 9 + [-1]
    labeled(tmp_path, "one_split", train=labels)
    labeled(tmp_path, "hidden", train=labels, test=[-1] * 4)
    for name in ("one_split", "hidden"):
        data, again, other = (tfds_images(name, tmp_path, seed) for seed in (0, 0, 1))
        assert np.bincount(data.test.labels).tolist() == [5, 1] and data.seed == 0
        assert np.bincount(data.train.labels).tolist() == [45, 8]
        assert not {*data.train.numbers} & {*data.test.numbers}
        assert again.test.numbers.tolist() == data.test.numbers.tolist()
        assert other.test.numbers.tolist() != data.test.numbers.tolist()
        assert data.notes[:2] == (
            "Tested on 10% of the split train, as there is no other with labels.",
            "Not used, as their label is -1: 1 of 60 training images.",
        )
    with pytest.raises(DataError, match="hidden has no labels to test on: .* test are -1"):
        tfds_images("hidden", tmp_path, to_train=False)


def test_images_of_different_sizes_need_a_size(prepared, folder):
    for source in (tfds_images("two_colors", prepared), image_folder(folder)):
        with pytest.raises(DataError, match="--image-size"):
            source.loaded()
