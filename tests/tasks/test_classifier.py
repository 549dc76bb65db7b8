"""A saved classifier answers as before, for files, arrays and PIL images, and from a shell."""

import json
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

import zoo
from tests.deploy.small_models import random_images, small_classifier, small_text_classifier
from zoo.__main__ import main
from zoo.data.image_files import ImageError
from zoo.data.preprocessing import ImagePreprocessing
from zoo.errors import TaskError, UserError
from zoo.tasks.classifier import ImageClassifier

PREPROCESSING = ImagePreprocessing((8, 8), 3, (0.5, 0.5, 0.5), (0.2, 0.2, 0.2))


@pytest.fixture(scope="module")
def classifier():
    model = zoo.vit(
        input_shape=(8, 8, 3), num_classes=3, patch_size=4, embed_dim=8, num_heads=2, num_layers=1
    )
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    return ImageClassifier(model, PREPROCESSING, ["ant", "bee", "cat"])


@pytest.fixture(scope="module")
def folder(classifier, tmp_path_factory):
    """A run folder and three images, one of them broken."""
    folder = tmp_path_factory.mktemp("run")
    classifier.save(folder)
    for index in range(2):
        pixels = np.random.default_rng(index).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        (folder / "images").mkdir(exist_ok=True)
        Image.fromarray(pixels).save(folder / "images" / f"{index}.png")
    (folder / "images" / "broken.jpg").write_bytes(b"no image")
    return folder


def keras_model(*last_layers):
    layers = [keras.Input((8, 8, 3)), keras.layers.Conv2D(3, 3), *last_layers]
    return keras.Sequential(layers)


NO_LOGITS = {
    "images": lambda: keras_model(),
    "softmax": lambda: keras_model(
        keras.layers.GlobalAveragePooling2D(), keras.layers.Dense(3, activation="softmax")
    ),
    "a layer of its own": lambda: keras_model(
        keras.layers.GlobalAveragePooling2D(), keras.layers.Softmax()
    ),
    "sigmoid": lambda: keras_model(
        keras.layers.GlobalAveragePooling2D(), keras.layers.Activation("sigmoid")
    ),
    "a dict": lambda: two_outputs(dict),
    "a list": lambda: two_outputs(list),
    "a tuple": lambda: two_outputs(tuple),
}


def two_outputs(kind):
    images = keras.Input((8, 8, 3))
    pooled = keras.layers.GlobalAveragePooling2D()(images)
    outputs = [("a", keras.layers.Dense(3)(pooled)), ("b", keras.layers.Dense(3)(pooled))]
    return keras.Model(images, dict(outputs) if kind is dict else kind(y for _, y in outputs))


@pytest.mark.parametrize("outputs", NO_LOGITS)
def test_keras_models_must_return_logits(outputs):
    model = NO_LOGITS[outputs]()
    with pytest.raises(TaskError, match="must return logits|returns probabilities, by its last"):
        ImageClassifier(model, PREPROCESSING, ["ant", "bee", "cat"])


def test_one_mean_for_all_channels():
    one = ImagePreprocessing((8, 8), 3, mean=0.5, std=1 / 255)
    assert one == ImagePreprocessing((8, 8), 3, mean=(0.5,), std=(1 / 255,))
    assert ImagePreprocessing.from_dict(one.to_dict()) == one
    with pytest.raises(ValueError, match="std must be one number"):
        ImagePreprocessing((8, 8), 3, std=0)


def test_preprocess_is_what_the_model_takes(classifier, folder):
    image = Image.open(folder / "images" / "0.png")
    inputs = classifier.preprocess([image, np.asarray(image), folder / "images" / "0.png"])
    assert inputs.shape == (3, 8, 8, 3) and inputs.dtype == np.float32
    np.testing.assert_array_equal(inputs[0], inputs[1])
    np.testing.assert_array_equal(inputs[0], inputs[2])
    assert classifier.preprocess([]).shape == (0, 8, 8, 3)


def test_the_command_crops_images_once(classifier, folder, tmp_path, capsys):
    images = ImagePreprocessing((8, 8), 3, (0.5,) * 3, (0.2,) * 3, resize=12)
    other = ImageClassifier(classifier.model, images, classifier.class_names)
    other.save(tmp_path)
    path = folder / "images" / "0.png"
    assert main(["classify", str(tmp_path), str(path), "--top-k", "3"]) == 0
    [answer] = other([path], top_k=3)
    words = [f"{name} {share:.1%}" for name, share in answer]
    assert capsys.readouterr().out.strip().split("\t")[1:] == words
    cropped_twice = other.probabilities([images.read(path)])
    assert np.abs(cropped_twice - other.probabilities([path])).max() > 1e-3  # it would show


def test_a_task_that_is_saved_over_another_kind_of_task(classifier, tmp_path):
    classifier.save(tmp_path)
    small_text_classifier().save(tmp_path)
    assert type(zoo.load(tmp_path)).__name__ == "TextClassifier"
    classifier.save(tmp_path)
    assert type(zoo.load(tmp_path)) is ImageClassifier


def test_class_names_may_be_numbers(classifier):
    numbers = ImageClassifier(classifier.model, PREPROCESSING, np.arange(3))
    assert numbers.class_names == ["0", "1", "2"]


def test_models_whose_outputs_are_not_classes():
    features = zoo.vit(
        input_shape=(8, 8, 3), num_classes=0, patch_size=4, embed_dim=8, num_heads=2, num_layers=1
    )
    with pytest.raises(TaskError, match="The model has 0 classes"):
        ImageClassifier(features, PREPROCESSING, ["ant", "bee"])


def test_any_keras_model_of_images_is_a_classifier(tmp_path):
    """Its classes are counted by its output."""
    keras.utils.set_random_seed(0)
    images = keras.Input((8, 8, 3))
    features = keras.layers.GlobalAveragePooling2D()(keras.layers.Conv2D(4, 3)(images))
    model = keras.Model(images, keras.layers.Dense(3)(features))
    with pytest.raises(TaskError, match="The model has 3 classes. Received 2 class names"):
        ImageClassifier(model, PREPROCESSING, ["ant", "bee"])
    larger = ImagePreprocessing((8, 9), 3)
    with pytest.raises(TaskError, match=r"images of the shape \(8, 8, 3\).* \(8, 9, 3\)"):
        ImageClassifier(model, larger, ["ant", "bee", "cat"])
    ImageClassifier(model, PREPROCESSING, ["ant", "bee", "cat"]).save(tmp_path / "run")
    loaded = zoo.load(tmp_path / "run")
    pixels = np.random.default_rng(0).integers(0, 256, (4, 8, 8, 3), dtype=np.uint8)
    logits = model.predict(PREPROCESSING.normalize(pixels), verbose=0)
    expected = keras.ops.softmax(logits)  # tolerance: float32
    np.testing.assert_allclose(loaded.probabilities(list(pixels)), expected, atol=1e-6)
    exported = tf.saved_model.load(zoo.export(loaded, tmp_path / "1"))
    found = exported.signatures["pixels"](pixels=tf.constant(pixels))["probabilities"]
    np.testing.assert_allclose(found, -np.sort(-expected), atol=1e-6)  # the best first


@pytest.fixture(scope="module", params=["images", "texts"])
def small(request):
    """(classifier, inputs)."""
    if request.param == "texts":
        return small_text_classifier(), ["The cat sat.", "¿Dónde?", "", "The", "The mat, " * 4] * 3
    classifier = small_classifier()
    return classifier, list(random_images(classifier, 15))


@pytest.fixture
def several(small):
    """(classifier of several labels, inputs)."""
    small[0].problem = "multi_label"
    yield small
    small[0].problem = "single_label"


def logits_of(classifier, inputs):
    """Those of the model, one by one."""
    images = isinstance(classifier, ImageClassifier)
    prepared = classifier.preprocess(inputs) if images else classifier.encode(inputs)
    return np.concatenate([classifier.model(np.asarray([one])) for one in prepared])


def test_answers_are_sorted_probabilities(small):
    classifier, inputs = small
    shares, logits = classifier.probabilities(inputs), logits_of(classifier, inputs)
    expected = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    # the same float32 sums in another order
    np.testing.assert_allclose(shares, expected, atol=1e-5)
    answers, names = classifier(inputs, top_k=99), np.array(classifier.class_names)
    for row, answer in zip(shares, answers, strict=True):
        order = np.argsort(-row, kind="stable")
        assert answer == [*zip(names[order], row[order].tolist())]
    assert [answer[:1] for answer in answers] == classifier(inputs)
    assert [answer[:2] for answer in answers] == classifier(inputs, top_k=2)
    assert len({tuple(answer) for answer in answers}) >= 5
    assert classifier([]) == [] and classifier.probabilities([]).shape == (0, len(names))


def test_several_labels(several, tmp_path):
    """Probabilities are sigmoids; the classes of at least a threshold are returned."""
    classifier, inputs = several
    shares, logits = classifier.probabilities(inputs), logits_of(classifier, inputs)
    np.testing.assert_allclose(shares, 1 / (1 + np.exp(-logits)), atol=1e-5)

    names = np.array(classifier.class_names)
    each = np.linspace(0.3, 0.6, len(names))
    exact = float(np.median(shares))
    for options, least in (({}, 0.5), *(({"threshold": t}, t) for t in (0, 1, exact, each))):
        answers, chosen = classifier(inputs, **options), shares >= np.float32(least)
        for row, taken, answer in zip(shares, chosen, answers, strict=True):
            order = [index for index in np.argsort(-row) if taken[index]]
            assert answer == [(names[index], float(row[index])) for index in order]
        if options:
            assert classifier(inputs, top_k=1, **options) == [answer[:1] for answer in answers]
    assert len({*map(len, classifier(inputs))}) > 1
    assert [*map(len, classifier(inputs, top_k=2))] == [2] * len(inputs)
    assert classifier([]) == classifier([], threshold=0.2) == []

    classifier.save(tmp_path)
    loaded = zoo.load(tmp_path)
    assert loaded.problem == "multi_label" and loaded(inputs) == classifier(inputs)
    path = tmp_path / classifier.description_file
    description = json.loads(path.read_text())
    assert description.pop("problem") == "multi_label"
    path.write_text(json.dumps(description))
    earlier = zoo.load(tmp_path)
    assert earlier.problem == "single_label"
    np.testing.assert_allclose(earlier.probabilities(inputs).sum(axis=1), 1, atol=1e-5)
    assert all(share >= 0.6 for answer in earlier(inputs, threshold=0.6) for _, share in answer)


@pytest.mark.parametrize(
    "threshold, message",
    [
        (-0.1, "threshold must be a finite number from 0 to 1. Received: threshold=-0.1"),
        (1.1, "threshold=1.1"),
        (np.nan, "threshold=nan"),
        ("0.5", "threshold='0.5'"),
        (True, "threshold=True"),
        ([0.5, 0.5], r"one for each of the \d classes. Received: 2 numbers"),
        ([], "Received: 0 numbers"),
        (np.full(9, 0.5), "Received: 9 numbers"),
    ],
)
def test_bad_thresholds(several, threshold, message):
    classifier, inputs = several
    with pytest.raises(TaskError, match=message):
        classifier(inputs[:1], threshold=threshold)


@pytest.mark.parametrize("problem", ["regression", None, ["multi_label"]])
def test_bad_problems(classifier, problem):
    with pytest.raises(TaskError, match="problem must be one of .'single_label', 'multi_label'.*"):
        ImageClassifier(classifier.model, PREPROCESSING, classifier.class_names, problem)
    with pytest.raises(TaskError, match="problem must be one of"):
        classifier.problem = problem
    assert classifier.problem == "single_label"


def test_bad_calls(classifier, folder, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.png"):
        classifier(["nowhere.png"])
    with pytest.raises(FileNotFoundError, match="'iVBORw0KGg.{,30}'. It looks like Base64: pass a"):
        classifier(["iVBORw0KGgo" * 1000])
    with pytest.raises(FileNotFoundError, match="It is a URL, and nothing is downloaded: pass"):
        classifier(["https://zoo.example/cat.png"])
    with pytest.raises(ImageError, match="broken.jpg"):
        classifier([folder / "images" / "broken.jpg"])
    with pytest.raises(TaskError, match="must be a list"):
        classifier("cat.jpg")
    for shape in ((20, 30, 3), (20, 30, 1)):
        with pytest.raises(TaskError, match=r"must be a list, or an array .*Pass \[image\]"):
            classifier(np.zeros(shape, np.uint8))
    with pytest.raises(TaskError, match="top_k=0"):
        classifier([], top_k=0)
    with pytest.raises(TaskError, match="3 classes. Received 2 class names"):
        ImageClassifier(classifier.model, PREPROCESSING, ["ant", "bee"])
    with pytest.raises(FileNotFoundError, match="no file or folder"):
        zoo.load(tmp_path / "elsewhere")
    with pytest.raises(FileNotFoundError, match="no finished run.*model.keras.*same command again"):
        zoo.load(tmp_path)


def test_a_damaged_run_is_named(folder, tmp_path):
    run = shutil.copytree(folder, tmp_path / "run")
    path, model = run / "classifier.json", run / "model.keras"
    good, weights = path.read_text(), model.read_bytes()

    def is_named(message):
        with pytest.raises(UserError, match=f"run cannot be loaded: {message}"):
            zoo.load(run)

    for content in ("{}", '{"preprocessing": 1, "class_names": []}'):
        path.write_text(content)
        is_named("the metadata cannot be used, or a file is damaged")
    for content, message in (
        ("[]", "does not contain a JSON object"),
        ("null", "does not contain a JSON object"),
        ("{", "is not JSON"),
    ):
        path.write_text(content)
        with pytest.raises(UserError, match=f"run/classifier.json {message}"):
            zoo.load(run)
    path.write_text(json.dumps({**json.loads(good), "class_names": ["ant", "bee"]}))
    is_named("The model has 3 classes")
    path.write_text(good)
    for content in (b"", b"PK", weights[:500]):
        model.write_bytes(content)
        with pytest.raises(UserError, match=r"run/model\.keras is damaged.* Copy it again"):
            zoo.load(run)


def test_classifying_a_folder_continues_after_a_broken_image(classifier, folder, capsys):
    """And hidden files are not read."""
    hidden = folder / "images" / ".ipynb_checkpoints"
    hidden.mkdir(exist_ok=True)
    for copy in (hidden / "0.png", folder / "images" / "._0.png"):
        shutil.copy(folder / "images" / "0.png", copy)
    assert main(["classify", str(folder), str(folder / "images"), "--top-k", "2"]) == 1
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert [line.split("\t")[0].rsplit("/")[-1] for line in lines] == ["0.png", "1.png"]
    [[(name, share), _]] = classifier([folder / "images" / "0.png"], top_k=2)
    assert lines[0].split("\t")[1] == f"{name} {share:.1%}"
    assert "broken.jpg cannot be read" in err and "1 of 3 images" in err
    assert main(["classify", str(folder), *[str(folder / "images" / "1.png")] * 2]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert (
        main(["classify", str(folder), str(folder / "images" / "0.png"), "--threshold", "0"]) == 0
    )
    assert len(capsys.readouterr().out.split("\t")) == 1 + 3


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["classify", "RUN", "nowhere.png"], "nowhere.png"),
        (["classify", "elsewhere", "IMAGES/0.png"], "no file or folder elsewhere"),
        (["classify", "RUN", "IMAGES", "--top-k", "0"], "top_k must be an integer of at least 1"),
        (["classify", "RUN", "IMAGES/broken.jpg"], "broken.jpg"),
        (["classify", "RUN"], "Pass image files"),
        (["classify", "RUN", "IMAGES", "--threshold", "nan"], "threshold must be a finite number"),
    ],
)
def test_a_command_that_can_do_nothing_ends_with_status_2(folder, capsys, arguments, message):
    places = {"RUN": str(folder), "IMAGES": str(folder / "images")}
    for name, place in places.items():
        arguments = [argument.replace(name, place) for argument in arguments]
    assert main(arguments) == 2
    assert message in capsys.readouterr().err


def test_images_are_read_in_batches(classifier, monkeypatch):
    """The memory of a call does not grow with its images, and a bit of a result does not differ."""
    images = [np.full((8, 8, 3), number, np.uint8) for number in range(150)]
    images += [f"missing {number}.jpg" for number in range(3)]
    expected = classifier.outputs(classifier.preprocess(images[:150]))
    sizes = []
    outputs = classifier.outputs

    def counted(inputs):
        sizes.append(len(inputs))
        return outputs(inputs)

    monkeypatch.setattr(classifier, "outputs", counted)
    for given in (images[:150], np.stack(images[:150]), iter(images[:150])):
        np.testing.assert_array_equal(classifier.probabilities(given), expected)
    assert sizes == [64, 64, 22] * 3
    assert classifier([]) == [] and classifier.probabilities([]).shape == (0, 3)
    with pytest.raises(FileNotFoundError, match="missing 0.jpg"):
        classifier(images)
