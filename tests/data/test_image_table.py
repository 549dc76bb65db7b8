"""Tables of images and labels: what is read, what is held out, and errors that name the line."""

import unicodedata

import numpy as np
import pytest

from tests.data.test_images import write
from zoo.data.image_batches import evaluation_batches, training_batches
from zoo.data.image_table import image_table
from zoo.errors import DataError
from zoo.training.augmentation import Augmentation

NAMES = ("a.png", "sub/b.png", "sub/café, 2.png", "d.png")


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Four images, and forty in the folder `many`."""
    folder = tmp_path_factory.mktemp("photos")
    for name in (*NAMES, *(f"many/{number}.png" for number in range(40))):
        write(folder / name, np.zeros((8, 8, 3), np.uint8))
    return folder


@pytest.fixture
def table(tmp_path):
    def written(text, name="labels.csv"):
        (tmp_path / name).write_bytes(text.encode())
        return str(tmp_path / name)

    return written


def labels_of(folder, path, problem="single_label"):
    """{name of an image: its label or list of labels}."""
    data = image_table(folder, path, problem, seed=None)
    names = [data.train.name(number).removeprefix(f"{folder}/") for number in data.train.numbers]
    if problem == "single_label":
        assert data.train.labels.dtype == np.int32
        return dict(zip(names, [data.class_names[label] for label in data.train.labels]))
    assert data.train.labels.dtype == np.float32
    rows = [[data.class_names[k] for k in np.flatnonzero(row)] for row in data.train.labels]
    return dict(zip(names, rows))


@pytest.mark.parametrize(
    "text",
    [
        'image,label\na.png,cat\n\n sub/b.png , dog \r\n"sub/café, 2.png",cat\n./d.png,dog\n',
        'a.png, "cat"\nsub/b.png, dog\n"sub/café, 2.png",cat,\nd.png,dog',
        '\ufefffile;class\na.png;cat\nsub/b.png;dog\n"sub/café, 2.png";cat\nd.png;dog\n',
        "a.png\tcat\nsub/../sub/b.png\tdog\nsub/café, 2.png\tcat\nd.png\tdog\n",
        'image,label\na.png,cat\nsub\\b.png,dog\n"sub\\café, 2.png",cat\n.\\d.png,dog\n',
        unicodedata.normalize(
            "NFD", 'a.png,cat\nsub/b.png,dog\n"sub/café, 2.png",cat\nd.png,dog\n'
        ),
    ],
    ids=["header", "plain", "semicolons", "tabs", "Windows", "macOS"],
)
def test_one_label(photos, table, text):
    for name in ("labels.csv", "labels.txt"):
        found = labels_of(photos, table(text, name))
        assert found == dict(zip(NAMES, ["cat", "dog", "cat", "dog"]))


@pytest.mark.parametrize(
    "text",
    [
        "image,labels\na.png,sea|sky\nsub/b.png, sky | \nd.png,\n",
        "a.png,sea,sky\nsub/b.png,sky\nd.png\n",
        "image,label_1,label_2\na.png,sky,sea\nsub/b.png,,sky\nd.png,,\n",
        "image\tlabels\na.png\tsky|sea|sky\nsub/b.png\tsky\nd.png\t\n",
    ],
    ids=["one column", "ragged", "columns", "tabs"],
)
def test_several_labels(photos, table, text):
    found = labels_of(photos, table(text), "multi_label")
    assert found == {"a.png": ["sea", "sky"], "sub/b.png": ["sky"], "d.png": []}


@pytest.mark.parametrize(
    "text, problem, message",
    [
        ("a.png,cat\nsub/c.png,dog", "single_label", "line 2: there is no image .*sub/c.png"),
        ("A.png,cat\na.png,dog", "single_label", "line 1: there is no image .*A.png"),
        ("image,label\n\nb.png,dog", "multi_label", "line 3: there is no image .*b.png"),
        ("a.png,cat\nd.png,", "single_label", "line 2: d.png has 0 labels instead of one"),
        ("a.png,cat\nd.png, ", "single_label", "line 2: d.png has 0 labels"),
        ("a.png,cat\nd.png", "single_label", "line 2: d.png has 0 labels"),
        ("a.png,cat\nd.png,x,y", "single_label", 'line 2: d.png has 2 .* problem "multi_label"'),
        ("a.png,x|y\nd.png,y", "single_label", 'line 1: a.png has 2 .* problem "multi_label"'),
        ("a.png,x\nd.png,y\n./a.png,x", "single_label", "line 3: the image ./a.png is also in li"),
        ("image,label,split\na.png,x,test", "single_label", "line 1: the columns label, split are"),
        ("image,sea,sky\na.png,1,0", "multi_label", "line 1: the columns sea, sky are not known"),
        ("a.png,1,0\nd.png,0,0", "multi_label", "must have the names .*: \\['0', '1'\\]"),
        ("image,l_1,l_2\na.png,True,False", "multi_label", "must have the names .*'True'"),
        ("a.png;1.0;0.0\nd.png;0.0;0.0", "multi_label", "must have the names .*'1.0'"),
        ("a.png\t-1\t1\nd.png\t1\t-1", "multi_label", "must have the names .*'-1'"),
        ("image,label\n", "single_label", "must have at least 2 labels. Received: \\[\\]"),
        ("", "multi_label", "must have at least 1 labels. Received: \\[\\]"),
        ("a.png,cat\nd.png,cat", "single_label", "at least 2 labels. Received: .'cat'"),
        ("a.png,cat\nd.png,dog", "single_label", "one image of each class"),
        ("a.png,cat\nd.png,", "multi_label", "one image of each class"),
        ('a.png,"cat\nd.png,dog', "single_label", "line 2, is not valid CSV"),
    ],
)
def test_errors_name_the_line(photos, table, text, problem, message):
    path = table(text)
    with pytest.raises(DataError, match=f"(?s){path}.*{message}|{message}.* Testing needs"):
        image_table(photos, path, problem)


def test_a_folder_or_table_that_is_missing(photos, table, tmp_path):
    with pytest.raises(DataError, match="The file .*nowhere.csv cannot be read"):
        image_table(photos, str(tmp_path / "nowhere.csv"))
    with pytest.raises(DataError, match="line 1: there is no image nowhere/a.png"):
        image_table("nowhere/", table("a.png,cat"))


def test_notes(photos, table):
    lines = [f"many/{number}.png,{'ab'[number % 2]}" for number in range(40)]
    path = table("image,label\n" + "\n".join(lines))
    data = image_table(f"{photos}/", path)
    assert (len(data.train), len(data.test), data.seed) == (36, 4, 0)
    assert sorted(data.test.labels) == [0, 0, 1, 1]
    assert data.notes == (
        f"Tested on 4 images of {path}, held out.",
        f"Line 1 of {path} is a header: image, label.",
        "Not used: 3 (sub, a.png, d.png).",
    )


@pytest.mark.parametrize("separator", ["|", ";", ", ", " "])
def test_a_wrong_separator_is_noted(photos, table, separator):
    """The labels of an image would be one label."""
    lines = [f'many/{n}.png,"{separator.join(("a", "bc"[n % 2]))}"\n' for n in range(40)]
    data = image_table(photos, table("image,labels\n" + "".join(lines)), "multi_label")
    is_wrong = separator != "|"
    assert len(data.class_names) == (2 if is_wrong else 3)
    assert ("has several labels" in " ".join(data.notes)) == is_wrong


def random_labels(random):
    """Of 40 images: from common to rare, one that occurs once, one that is always with others."""
    labels = random.random((40, 6)) < [0.6, 0.3, 0.1, 0.05, 0.0, 0.0]
    labels[random.choice(40, 2, replace=False), 3] = True
    labels[random.integers(40), 4] = True
    labels[:, 5] = labels[:, 2] | labels[:, 3]
    return labels


def test_each_label_stays_in_training(photos, table):
    """When test images, and then validation images or a part of the images are drawn."""
    random = np.random.default_rng(0)
    for seed in range(20):
        labels = random_labels(random)
        rows = ["|".join(np.array([*"abcdef"])[row]) for row in labels]
        path = table("".join(f"many/{number}.png,{row}\n" for number, row in enumerate(rows)))
        data = image_table(photos, path, "multi_label", seed)
        assert data.class_names == [name for name, any_ in zip("abcdef", labels.any(0)) if any_]
        assert 3 <= len(data.test) <= 8 and len(data.train) + len(data.test) == 40
        again = image_table(photos, path, "multi_label", seed)
        assert again.test.numbers.tolist() == data.test.numbers.tolist()
        part = data.held_out(0.3, seed)
        assert len(part.valid) >= 8
        parts = [data.train, part.train]
        if seed < 3:  # images are decoded
            few = data.loaded((8, 8), train_examples=12, seed=seed)
            assert len(few.train) == 12 and few.train.pixels.shape == (12, 8, 8, 3)
            parts.append(few.train)
        assert all((images.labels.sum(axis=0) > 0).all() for images in parts)
        numbers = [*part.train.numbers, *part.valid.numbers, *part.test.numbers]
        assert sorted(numbers) == [*range(40)]
    with pytest.raises(DataError, match="must be from [4-9], the number of classes, to 3.*: 1"):
        data.loaded((8, 8), train_examples=1)


@pytest.mark.parametrize("streamed", [False, True])
def test_batches_of_several_labels(photos, table, streamed):
    """Mixup and smoothing are those of any labels: smoothing moves each towards 0.5."""
    lines = [f"many/{n}.png,{'|'.join(str(k) for k in range(3) if n >> k & 1)}" for n in range(40)]
    data = image_table(photos, table("\n".join(lines)), "multi_label")
    data = data.loaded((8, 8), streamed=streamed)
    expected = {tuple(row) for row in data.train.labels}
    assert len(expected) == 8

    def first(batches):
        return next(iter(batches.whole()))

    for smoothing in (0.0, 0.2):
        pixels, labels, weights = first(
            training_batches(data.train, 3, 32, label_smoothing=smoothing)
        )
        found = {tuple(row) for row in (labels.numpy() * 2 - 1) / (1 - smoothing)}
        np.testing.assert_allclose(
            sorted(found), sorted(tuple(2 * np.array(row) - 1) for row in expected), atol=1e-6
        )
        assert pixels.shape == (32, 8, 8, 3) and (weights.numpy() == 1).all()
    mixes = Augmentation(0, 0.0, 0, erase_probability=0.0)
    _, labels, _ = first(training_batches(data.train, 3, 32, augment=mixes))
    assert labels.numpy().min() >= 0 and labels.numpy().max() <= 1
    assert ((labels.numpy() > 0.01) & (labels.numpy() < 0.99)).any()
    _, labels, _ = first(evaluation_batches(data.test, 3, len(data.test)))
    np.testing.assert_array_equal(labels, data.test.labels)
