"""Distillation: the losses of DeiT, and students of recipes.

Tolerance of losses: 1e-6, for sums of float32.
"""

import dataclasses
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from tests import interrupted
from tests.test_recipes import recipe
from tests.test_resume import launched
from zoo.data.class_names import matched_classes
from zoo.data.preprocessing import ImagePreprocessing
from zoo.data.worker_batches import split_batches
from zoo.errors import DataError, UserError
from zoo.tasks.classifier import ImageClassifier
from zoo.training import distillation, image_run
from zoo.training.image_run import loss_and_accuracy
from zoo.training.settings import ImageSettings

vit_cifar10 = recipe("vit_cifar10")
LABELS = np.array([[0.0, 1.0, 0.0], [0.5, 0.0, 0.5]], "float32")
TEACHER = np.array([[2.0, 1.0, -1.0], [0.0, 0.5, 3.0]], "float32")
STUDENT = np.array([[0.2, -0.4, 1.0], [1.5, 0.0, -0.5]], "float32")
OTHER = np.array([[-1.0, 0.3, 0.6], [0.1, 2.0, 0.4]], "float32")


def softmax(x):
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def cross_entropy(labels, logits):
    return -(labels * np.log(softmax(logits))).sum(axis=-1)


def loss(**arguments):
    base = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum_over_batch_size")
    return distillation.DistillationLoss(base, **arguments)


def test_hard_distillation():
    """DeiT, equation 3: (1 - α) CE(labels) + α CE(class of the teacher), here α = 0.3."""
    classes = np.eye(3)[[0, 2]]
    expected = 0.7 * cross_entropy(LABELS, STUDENT) + 0.3 * cross_entropy(classes, STUDENT)
    found = loss(weight=0.3)(np.stack([LABELS, TEACHER], axis=1), STUDENT)
    np.testing.assert_allclose(found, expected.mean(), rtol=1e-6)


def test_the_loss_is_saved_whole():
    own = loss(kind="soft", temperature=3.0, weight=0.7)
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(own))
    labels = np.stack([LABELS, TEACHER], axis=1)
    np.testing.assert_array_equal(copy(labels, STUDENT), own(labels, STUDENT))
    assert copy.reduction == own.reduction == "sum_over_batch_size"


def test_soft_distillation_of_two_heads():
    """DeiT's code: KL of both distributions, summed, times τ² and divided by all elements."""
    teacher, student = softmax(TEACHER / 2), softmax(OTHER / 2)
    divergence = (teacher * (np.log(teacher) - np.log(student))).sum() * 2**2 / TEACHER.size
    expected = 0.5 * cross_entropy(LABELS, STUDENT).mean() + 0.5 * divergence
    heads = np.stack([STUDENT, OTHER], axis=1)
    found = loss(kind="soft", temperature=2.0)(np.stack([LABELS, TEACHER], axis=1), heads)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_without_a_teacher_it_is_the_loss_of_labels():
    np.testing.assert_allclose(
        loss()(LABELS, STUDENT), cross_entropy(LABELS, STUDENT).mean(), rtol=1e-6
    )


def test_accuracy_is_that_of_the_mean_of_both_heads_on_the_labels():
    """Neither head alone predicts the label, of the first image 1 and of the second 0."""
    heads = np.array([[[3, 2, 0], [0, 2, 3]], [[2, 3, 0], [2, 0, 3]]], "float32")  # [B, 2, K]
    metric = distillation.student_accuracy()
    metric.update_state(np.stack([LABELS, TEACHER], axis=1), heads)
    assert metric.result() == 1.0


def classifier(names, size, channels=3, seed=0):
    keras.utils.set_random_seed(seed)
    model = zoo.vit(
        input_shape=(size, size, channels),
        num_classes=len(names),
        patch_size=4,
        embed_dim=8,
        num_heads=2,
        num_layers=1,
    )
    for variable in model.trainable_variables:
        variable.assign(np.random.default_rng(seed).normal(0, 0.5, variable.shape))
    mean = (0.2, 0.3, 0.4)[:channels]
    images = ImagePreprocessing((size, size), channels, mean, (0.5,) * channels)
    return ImageClassifier(model, images, names)


def test_the_teacher_sees_images_in_its_own_size_normalization_and_order_of_classes():
    teacher = classifier(["cat", "dog", "bird"], size=8)
    images = np.random.default_rng(0).integers(0, 256, (2, 8, 8, 3)).astype("uint8")
    expected = teacher.model(teacher.preprocessing.normalize(images)).numpy()
    classes, notes = matched_classes(["bird", "Cat"], teacher.class_names)
    assert notes == ()
    found = distillation.teacher_function(teacher, classes)(tf.constant(images))
    np.testing.assert_array_equal(found, expected[:, [2, 0]])


def teacher_of_pixels(size, interpolation):
    """Its logits are the normalized pixels that it sees: from -1 to 1."""
    pixels = keras.Sequential([keras.Input((*size, 3)), keras.layers.Flatten()])
    images = ImagePreprocessing(size, 3, (0.5,) * 3, (0.5,) * 3, interpolation=interpolation)
    classes = range(size[0] * size[1] * 3)
    return ImageClassifier(pixels, images, [str(number) for number in classes])


@pytest.mark.parametrize("size", [5, 21])
@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
def test_the_teacher_sees_images_of_another_size_as_it_reads_them(interpolation, size):
    """Reading rounds pixels to integers: logits from -1 to 1 may differ by one value, 2 / 255."""
    teacher = teacher_of_pixels((8, 8), interpolation)
    others = np.random.default_rng(0).integers(50, 200, (2, size, size, 3)).astype("uint8")
    logits = distillation.teacher_function(teacher, range(8 * 8 * 3))
    # XLA refuses operations of TensorFlow that only CPUs have, such as its bicubic resizing.
    found = tf.function(logits, jit_compile=True)(tf.constant(others))
    expected = teacher.model(teacher.preprocess(others))
    np.testing.assert_allclose(found, expected, rtol=0, atol=2 / 255)


def black_and_white_rows_for_the_teacher():
    teacher = teacher_of_pixels((12, 20), "bicubic")
    image = np.zeros((1, 6, 4, 3), "uint8")  # 2 times as high for the teacher, 5 times as wide
    image[:, 3:] = 255
    found = distillation.teacher_function(teacher, range(12 * 20 * 3))(tf.constant(image))
    return found.numpy().reshape(12, 20, 3)


def test_bicubic_resizing_for_the_teacher_stays_in_the_range_of_pixels():
    """Bicubic interpolation goes beyond the ends of a step, here from black to white rows."""
    found = black_and_white_rows_for_the_teacher()
    assert found.min() == -1.0 and found.max() == 1.0


def test_resizing_for_the_teacher_does_not_exchange_height_and_width():
    found = black_and_white_rows_for_the_teacher()
    np.testing.assert_allclose(found, np.broadcast_to(found[:, :1, :1], found.shape), atol=1e-6)
    assert (found[:6] < 0).all() and (found[6:] > 0).all()


def test_the_teacher_sees_augmented_images():
    images = tf.zeros([4, 2, 2, 1])
    whole = tf.data.Dataset.from_tensors((images, tf.one_hot([0, 1, 0, 1], 2), tf.ones(4)))
    batches = split_batches(whole)._replace(on_device=lambda x, labels: (x + 1.0, labels))

    def teacher(images):
        return tf.reduce_sum(images, axis=[1, 2]) * [1.0, 2.0]

    [(inputs, labels, _)] = distillation.with_teacher(batches, teacher).whole()
    assert (inputs == 1.0).numpy().all()
    np.testing.assert_array_equal(labels[:, 1], [[4.0, 8.0]] * 4)
    np.testing.assert_array_equal(labels[:, 0], tf.one_hot([0, 1, 0, 1], 2))


def test_both_heads_in_training_only():
    model = zoo.vit(
        input_shape=(8, 8, 3),
        num_classes=3,
        patch_size=4,
        embed_dim=8,
        num_heads=2,
        num_layers=1,
        num_class_tokens=2,
    )
    images = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    mean = model(images, training=True)
    model.separate_heads = True
    both = model(images, training=True)
    assert both.shape == (2, 2, 3)
    np.testing.assert_allclose(np.mean(both, axis=1), mean, atol=1e-6)
    pooled = model.pooled(model.encode(images, only_class_tokens=True))
    np.testing.assert_allclose(both[:, 0], model.head(pooled[:, 0]), atol=1e-6)
    np.testing.assert_allclose(both[:, 1], model.distillation_head(pooled[:, 1]), atol=1e-6)
    np.testing.assert_allclose(model(images), mean, atol=1e-6)


@pytest.fixture(scope="module")
def teacher_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("teacher")
    classifier([str(digit) for digit in range(10)], size=12, channels=1).save(folder)
    return folder


def flags_of(teacher, *others):
    return ["--teacher", str(teacher), "--pool", "cls", "--distillation-token", *others]


@pytest.mark.ci
def test_the_recipe(teacher_folder, tmp_path, capsys):
    config = dataclasses.replace(
        vit_cifar10.DIGITS,
        num_layers=1,
        epochs=1,
        teacher=str(teacher_folder),
        distillation_token=True,
        distillation_weight=1.0,
        out=str(tmp_path / "run"),
    )
    vit_cifar10.main(config)
    assert "test accuracy" in capsys.readouterr().out
    model = zoo.load(tmp_path / "run").model
    assert model.num_class_tokens == 2
    assert not model.head.bias.numpy().any()  # the teacher teaches the other head alone
    assert model.distillation_head.bias.numpy().any()
    other = tmp_path / "other"
    teacher = classifier([str(digit) for digit in range(10)], size=12, channels=1, seed=1)
    teacher.settings = {"seed": 1, "dataset": "mnist"}  # which held out other digits
    teacher.save(other)
    vit_cifar10.main(dataclasses.replace(config, teacher=str(other), out=str(tmp_path / "second")))
    assert "its run had another --seed and --dataset." in capsys.readouterr().out
    [note] = json.loads((tmp_path / "second" / "metrics.json").read_text())["notes"]
    assert note.startswith(f"--teacher {other} may have been trained on data that are held out")
    taught_by_other = zoo.load(tmp_path / "second").model
    assert np.abs(model.weights[0] - taught_by_other.weights[0]).max() > 1e-3


@pytest.mark.slow
def test_a_student_on_one_device_on_two_and_on_two_workers(teacher_folder, tmp_path):
    """Equal within the rounding of sums in another order over some updates of Adam."""
    nothing_drawn = ["--dropout", "0", "--stochastic-depth", "0", "--patch-dropout", "0"]
    flags = flags_of(teacher_folder, *nothing_drawn, "--initialization", "glorot")
    flags += ["--optimizer", "adamw"]
    one, _, _ = interrupted.completed("digits", tmp_path / "one", *flags, "--accumulation", "2")
    two, _, _ = interrupted.completed("mirrored", tmp_path / "two", *flags)
    status, log = launched(tmp_path / "workers", 2, flags)
    assert status == 0, log
    workers, _, _ = interrupted.outcome(tmp_path / "workers")
    for path, weights in one.items():
        np.testing.assert_allclose(two[path], weights, atol=1e-3)
        np.testing.assert_allclose(workers[path], weights, atol=1e-3)


@pytest.mark.slow
def test_a_student_that_is_killed_is_resumed_bit_for_bit(teacher_folder, tmp_path):
    flags = flags_of(teacher_folder, "--distillation", "soft", "--temperature", "3")
    expected = interrupted.completed("digits", tmp_path / "whole", *flags)
    interrupted.killed("digits", tmp_path / "run", "writing", *flags)
    other = tmp_path / "other"
    classifier([str(digit) for digit in range(10)], size=12, channels=1, seed=1).save(other)
    with_other = [str(other) if flag == str(teacher_folder) else flag for flag in flags]
    process = interrupted.start("digits", tmp_path / "run", "--resume", *with_other)
    assert interrupted.finish(process) != 0
    assert "model of teacher" in interrupted.log_of(tmp_path / "run")
    interrupted.assert_same(interrupted.resumed("digits", tmp_path / "run", *flags), expected)


def test_flags():
    flags = {"distillation": "soft", "temperature": 3.0, "distillation_weight": 0.7}
    config = dataclasses.replace(vit_cifar10.DIGITS, teacher="x", **flags)
    found, _ = loss_and_accuracy(config, data=None)
    assert (found.kind, found.temperature, found.weight) == ("soft", 3.0, 0.7)
    config.check_flags(flags)
    with pytest.raises(UserError, match="--distillation has no effect without --teacher"):
        dataclasses.replace(config, teacher=None).check_flags({"distillation"})
    with pytest.raises(UserError, match="--temperature has no effect without"):
        dataclasses.replace(config, distillation="hard").check_flags({"temperature"})


def test_refused(teacher_folder, tmp_path):
    other = tmp_path / "other"
    classifier(["a", "b"], size=8, channels=1).save(other)
    config = dataclasses.replace(vit_cifar10.DIGITS, teacher=str(other), out=str(tmp_path / "run"))
    with pytest.raises(
        UserError, match="--teacher .*other: The model lacks 10 of the 10 .* Pass --teacher a"
    ):
        vit_cifar10.main(config)
    image_run.check_distinct(["a", "b", "c"], [2, 0, 1])
    with pytest.raises(DataError, match="one class for 2 classes of the data: a, c. It cannot"):
        image_run.check_distinct(["a", "b", "c"], [1, 0, 1])
    with pytest.raises(UserError, match="with 1 channels, and the images of the data have 3"):
        distillation.load_teacher(teacher_folder, channels=3)
    broken = classifier(["a", "b"], size=8, channels=1)
    broken.model.head.bias.assign([0.0, np.nan])
    broken.save(tmp_path / "broken")
    with pytest.raises(UserError, match="--teacher .*broken has weights that are not finite: .*bi"):
        distillation.load_teacher(tmp_path / "broken", channels=1)
    with pytest.raises(UserError, match="--teacher: There is no file"):
        distillation.load_teacher(tmp_path / "none", channels=1)
    with pytest.raises(ValueError, match="kind must be one of"):
        loss(kind="Soft")
    for numbers in ({"temperature": 0.0}, {"weight": 1.1}):
        with pytest.raises(ValueError, match="above 0, and weight from 0 to 1. Received: temp"):
            loss(**numbers)
    with pytest.raises(UserError, match="--distillation-token needs --teacher"):
        dataclasses.replace(vit_cifar10.DIGITS, distillation_token=True)
    with pytest.raises(UserError, match="--teacher needs one label per image"):
        ImageSettings(problem="multi_label", labels="x", data_dir="x", teacher="x")
