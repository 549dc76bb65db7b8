"""Batches in parts, which take less memory, and the number of parts that fits."""

import errno
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
import zoo.training
from tests.test_recipes import recipe
from zoo.data.image_batches import training_batches
from zoo.data.images import Images
from zoo.errors import UserError
from zoo.training.accumulation import lacks_memory, parts_that_fit
from zoo.training.augmentation import Augmentation
from zoo.training.run import _less_memory
from zoo.training.trainer import Trainer

ROWS = 7
RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.normal(size=(2 * ROWS, 8, 8, 1)).astype("float32")
LABELS = RANDOM.integers(0, 3, 2 * ROWS)


def batches():
    return tf.data.Dataset.from_tensor_slices((IMAGES, LABELS, None)).batch(ROWS).repeat()


class Bounded(keras.layers.Layer):
    """A layer for which there is memory for a number of rows only."""

    def __init__(self, largest):
        super().__init__()
        self.largest = largest
        self.tried = []

    def call(self, x):
        def check(rows):
            self.tried.append(int(rows))
            if rows > self.largest:
                raise MemoryError  # TensorFlow makes ResourceExhaustedError of it
            return rows

        rows = tf.numpy_function(check, [tf.shape(x)[0]], tf.int32)
        with tf.control_dependencies([rows]):
            return tf.identity(x)


def trainer(largest=None, dropout=0.0):
    """A small network, as each number of parts is another graph, which takes long to trace."""
    keras.utils.set_random_seed(0)
    inputs = keras.Input((8, 8, 1))
    x = inputs
    if largest is not None:
        x = Bounded(largest)(x)
    x = keras.layers.Dense(8, "gelu")(keras.layers.Flatten()(x))
    x = keras.layers.Dropout(dropout)(keras.layers.LayerNormalization()(x))
    result = Trainer(keras.Model(inputs, keras.layers.Dense(3)(x)))
    result.compile(
        keras.optimizers.Adam(0.01, global_clipnorm=0.1, use_ema=True),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        weighted_metrics=[keras.metrics.SparseCategoricalCrossentropy(from_logits=True)],
        jit_compile=False,
    )
    return result


@pytest.mark.parametrize("parts", [2, 9])  # which do not divide 7, or are more than it
def test_parts_give_the_step_of_the_whole_batch(parts):
    histories = []
    weights = []
    for accumulation in (1, parts):
        one = trainer()
        history = one.fit(
            batches(), epochs=2, steps_per_epoch=2, verbose=0, accumulation=accumulation
        )
        histories.append(history.history)
        weights.append(one.get_weights())
    for name, values in histories[0].items():
        np.testing.assert_allclose(histories[1][name], values, rtol=1e-5, err_msg=name)
    for mine, theirs in zip(*weights, strict=True):  # what is left is the order of additions
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("largest, parts", [(ROWS, 1), (4, 2), (1, 8)])
def test_the_smallest_number_of_parts_that_fits(largest, parts):
    one = trainer(largest, dropout=0.1)
    before = [*one.get_weights(), *(v.numpy() for v in one.optimizer.variables)]
    assert parts_that_fit(one, batches()) == parts
    after = [*one.get_weights(), *(v.numpy() for v in one.optimizer.variables)]
    for mine, theirs in zip(after, before, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_row_that_does_not_fit_is_an_error():
    with pytest.raises(UserError, match="A batch of 7 rows does not fit .*, not even row by row"):
        parts_that_fit(trainer(0), batches())


def run(folder, monkeypatch, has_gpu, **settings):
    """Trains by `Run.train`; returns the weights and the numbers of rows that were computed."""
    list_devices = tf.config.list_logical_devices

    def with_gpu(kind=None):
        return ["GPU"] if has_gpu and kind == "GPU" else list_devices(kind)

    monkeypatch.setattr(tf.config, "list_logical_devices", with_gpu)
    started = zoo.training.Run(out=str(folder), jit_compile=False, **settings)
    with started.scope():
        keras.utils.set_random_seed(0)
        bounded = Bounded(2)
        inputs = keras.Input((8, 8, 1))
        x = keras.layers.Flatten()(bounded(inputs))
        model = keras.Model(inputs, keras.layers.Dense(3)(keras.layers.Dropout(0.3)(x)))
        model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    started.train(
        model,
        lambda step: batches().skip(step),
        epochs=2,
        steps_per_epoch=2,
        finish=lambda folder, model: None,
    )
    return model.get_weights(), bounded.tried


def test_a_run_finds_the_parts_before_the_first_step(tmp_path, monkeypatch, capsys):
    found, tried = run(tmp_path / "auto", monkeypatch, True, accumulation="auto")
    # 7 rows, twice 4, then parts of 2: once tried, then four updates
    assert tried[:2] == [7, 4] and tried[2:] == [2] * (5 * 4)
    assert "Accumulation: 4, the fewest parts" in capsys.readouterr().out
    expected, _ = run(tmp_path / "given", monkeypatch, True, accumulation=4)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_step_without_enough_memory_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(UserError, match="more memory than there is.*--accumulation 2"):
        run(tmp_path / "auto", monkeypatch, False, accumulation="auto")


@pytest.mark.parametrize(
    "name, flags, others",
    [
        ("vit_cifar10", ("--accumulation 4", "--remat"), ("--overwrite",)),
        ("cnn_cifar10", ("--accumulation 4", "--overwrite"), ("--remat",)),
    ],
)
def test_advice_on_memory_can_be_followed(name, flags, others):
    """Batch normalization depends on the number of parts, which a run cannot change then."""
    config = recipe(name).Config(accumulation=2)
    model = keras.Sequential()
    if name == "vit_cifar10":
        model = zoo.vit("Ti/16")
    advice = _less_memory(config, model, 2)
    assert all(flag in advice for flag in flags)
    assert not any(flag in advice for flag in others)


@pytest.mark.parametrize("accumulation, jit_compile", [(1, False), (2, False), (1, True)])
def test_the_device_may_augment_before_the_batch_is_divided(accumulation, jit_compile):
    """Also if XLA compiles the step, which cannot compile the augmentation; then within 1e-5."""
    pixels = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), "uint8")
    images = Images(np.arange(40), None, str, decoded=(pixels, np.arange(40, dtype="int32") % 3))
    trained = []
    for on_device in (False, True):
        keras.utils.set_random_seed(0)
        inputs = keras.Input((8, 8, 1))
        outputs = keras.layers.Dense(3)(keras.layers.Flatten()(inputs))
        one = Trainer(keras.Model(inputs, outputs), lambda images: tf.cast(images, "float32"))
        loss = keras.losses.CategoricalCrossentropy(from_logits=True)
        one.compile(keras.optimizers.Adam(0.01), loss, jit_compile=jit_compile)
        batches = training_batches(images, 3, 32, Augmentation(), on_device=on_device)
        one.fit(batches, steps_per_epoch=3, verbose=0, accumulation=accumulation)
        trained.append(one.get_weights())
    for mine, theirs in zip(*trained, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5 if jit_compile else 0)


def test_validation_is_computed_in_the_same_parts():
    data = tf.data.Dataset.from_tensor_slices((IMAGES, LABELS, None)).batch(ROWS)
    one = trainer(4)
    one.fit(batches(), steps_per_epoch=1, verbose=0, accumulation=2)
    found = one.evaluate(data, verbose=0, return_dict=True)
    one.fit(batches(), steps_per_epoch=1, verbose=0, accumulation=5)  # evaluates in other parts
    again = one.evaluate(data, verbose=0, return_dict=True)
    whole = trainer()
    whole.fit(batches(), steps_per_epoch=1, verbose=0)
    expected = whole.evaluate(data, verbose=0, return_dict=True)
    whole.fit(batches(), steps_per_epoch=1, verbose=0)
    for mine, theirs in (
        (found, expected),
        (again, whole.evaluate(data, verbose=0, return_dict=True)),
    ):
        for name, value in theirs.items():
            np.testing.assert_allclose(mine[name], value, rtol=1e-5, err_msg=name)


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EMFILE])
def test_a_full_disk_is_no_lack_of_memory(code):
    full = tf.errors.ResourceExhaustedError(None, None, f"checkpoint; {os.strerror(code)}")
    assert not lacks_memory(full)
    assert lacks_memory(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor"))


def test_a_replica_that_lacks_memory_may_cancel_the_others(monkeypatch):
    one = trainer()
    fit = one.fit

    def cancelled(*args, accumulation, **kwargs):
        if accumulation < 4:
            raise tf.errors.CancelledError(None, None, "Function was cancelled")
        fit(*args, accumulation=accumulation, **kwargs)

    monkeypatch.setattr(one, "fit", cancelled)
    assert parts_that_fit(one, batches()) == 4
