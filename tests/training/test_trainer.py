"""Trainer on one device: Keras's own results, accumulation, 16 bits, and what it refuses."""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.compat import compile_arguments
from zoo.errors import UserError
from zoo.training.losses import SmoothedCrossEntropy
from zoo.training.optimizers import WarmupInverseSquareRoot
from zoo.training.trainer import Trainer

VOCABULARY, ROWS, LENGTH = 9, 6, 5


def data(count, seed=0):
    """`count` batches of tokens with padding: (inputs, labels, weights)."""
    random = np.random.default_rng(seed)
    shape = (count, ROWS, LENGTH)
    inputs, labels = random.integers(0, VOCABULARY, (2, *shape)).astype("int32")
    real = np.arange(LENGTH) < random.integers(1, LENGTH + 1, (count, ROWS, 1))
    return inputs, labels, real.astype("float32")


def dataset(arrays):
    return tf.data.Dataset.from_tensor_slices(arrays).repeat()


def language_model(dtype=None, embedding=keras.layers.Embedding):
    """Guesses a token from another; its embedding is not shared, so its gradient is of rows."""
    keras.utils.set_random_seed(0)
    layers = [embedding(VOCABULARY, 4, dtype=dtype), keras.layers.Dense(VOCABULARY, dtype=dtype)]
    return keras.Sequential([keras.Input((None,), dtype="int32"), *layers])


def paper_adam(clip_norm=None):
    """As in the translation recipe."""
    rate = WarmupInverseSquareRoot(4, 4, 0.2)
    return keras.optimizers.Adam(rate, 0.9, 0.98, epsilon=1e-9, global_clipnorm=clip_norm)


REDUCTIONS = ("sum", "sum_over_batch_size", "mean_with_sample_weight")


def compiled(optimizer=None, model=None, reduction=REDUCTIONS[-1], **settings):
    trainer = Trainer(model or language_model())
    trainer.compile(
        optimizer or paper_adam(),
        SmoothedCrossEntropy(0.1, reduction),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        **settings,
    )
    return trainer


class OneHotEmbedding(keras.layers.Embedding):
    """An embedding whose gradient is a matrix.

    Keras squares the rows of its `IndexedSlices` one by one: a token that occurs twice counts with
    the sum of squares instead of the square of the sum.
    """

    def call(self, inputs):
        return keras.ops.one_hot(inputs, VOCABULARY) @ self.embeddings


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_on_one_device_it_is_fit_of_keras(reduction):
    """In weights and in the reported loss and accuracy, of training and validation.

    Keras reports the mean over the rows of weighted means, which here is over the weights.
    """
    weights_of_steps = np.float32([1, 2, 0.5, 1, 1, 3, 1, 1])[:, None, None]
    inputs, labels, weights = data(8)
    batches = dataset((inputs, labels, weights * weights_of_steps))
    trainer = compiled(paper_adam(clip_norm=0.05), reduction=reduction)
    model = language_model(embedding=OneHotEmbedding)
    model.compile(
        paper_adam(clip_norm=0.05),
        SmoothedCrossEntropy(0.1, reduction),
        weighted_metrics=[keras.metrics.SparseCategoricalAccuracy(name="accuracy")],
        jit_compile=False,  # XLA compiles for seconds
    )
    histories = [
        one.fit(
            batches,
            validation_data=tf.data.Dataset.from_tensor_slices(data(3, seed=1)),
            epochs=2,
            steps_per_epoch=4,
            verbose=0,
            **more,
        ).history
        for one, more in ((trainer, {}), (model, {"shuffle": False}))
    ]
    assert histories[0].keys() == histories[1].keys() > {"loss", "val_accuracy"}
    for name, values in histories[0].items():
        if not name.endswith("loss") or reduction != "mean_with_sample_weight":
            np.testing.assert_allclose(values, histories[1][name], rtol=1e-6, err_msg=name)
    for mine, theirs in zip(trainer.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-7)


def test_the_reported_loss_of_weighted_means_is_the_mean_over_all_items():
    trainer = compiled(keras.optimizers.SGD(0.0))
    inputs, labels, weights = arrays = data(3)
    found = trainer.evaluate(tf.data.Dataset.from_tensor_slices(arrays), verbose=0)[0]
    logits = trainer.model(inputs.reshape(-1, LENGTH))
    each = SmoothedCrossEntropy(0.1, "none")(labels.reshape(-1, LENGTH), logits)
    expected = np.average(each, weights=weights.reshape(-1, LENGTH))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_parts_of_a_batch_are_the_whole(reduction):
    """Four parts of six rows, of which two are repeated; clipped is the sum of their gradients.

    Each part has a part of the regularization.
    """
    validation = tf.data.Dataset.from_tensor_slices(data(3, seed=1))
    trainers, losses = [], []
    for accumulation in (1, 4):
        model = language_model()
        model.layers[-1].kernel_regularizer = keras.regularizers.L2(0.5)
        trainer = compiled(paper_adam(clip_norm=0.05), model, reduction)
        start = trainer.get_weights()
        history = trainer.fit(
            dataset(data(4)),
            validation_data=validation,
            steps_per_epoch=1,
            epochs=4,
            verbose=0,
            accumulation=accumulation,
        )
        losses.append(list(history.history.values()))
        trainers.append(trainer)
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-6)
    for mine, theirs, first in zip(*(t.get_weights() for t in trainers), start, strict=True):
        # weights move by about 0.1; what is left is the order of additions in float32
        np.testing.assert_allclose(mine, theirs, atol=2e-6)
        assert abs(theirs - first).max() > 0.05
    assert [int(t.optimizer.iterations) for t in trainers] == [4, 4]


def test_a_mean_over_what_a_mask_selects_cannot_be_split():
    """Not even into parts; the error is raised before the first step."""
    layers = [keras.layers.Embedding(VOCABULARY, 4, mask_zero=True), keras.layers.Dense(VOCABULARY)]
    model = keras.Sequential([keras.Input((None,), dtype="int32"), *layers])
    batch = data(1)
    before = model.get_weights()
    trainer = compiled(keras.optimizers.SGD(0.1), model, "sum_over_batch_size")
    with pytest.raises(UserError, match="has a mask, so .* between 2 devices or parts"):
        trainer.fit(dataset(batch), steps_per_epoch=1, verbose=0, accumulation=2)
    for mine, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, other)
    trainer.fit(dataset(batch), steps_per_epoch=1, verbose=0)


def sequences(*layers, **settings):
    """A model of sequences of numbers, with layers of its own, and batches."""
    keras.utils.set_random_seed(0)
    given = keras.Input((3,))
    x = given
    for layer in layers:
        x = layer(x)
    outputs = {name: keras.layers.Dense(2, "sigmoid", name=name)(x) for name in ("a", "b")}
    model = keras.Model(given, outputs)
    model.compile(keras.optimizers.SGD(0.1), {"a": "mse", "b": "mse"}, **settings)
    trainer = Trainer(model)
    trainer.compile(**compile_arguments(model), jit_compile=False)
    random = np.random.default_rng(0)
    inputs, labels = random.normal(size=(7, 3)), random.uniform(size=(7, 2))
    batch = (inputs.astype("float32"), {"a": labels, "b": 1 - labels}, None)
    return trainer, tf.data.Dataset.from_tensors(batch).repeat()


def test_the_losses_of_outputs_are_those_of_the_whole_batch():
    settings = {"metrics": {"a": "mae"}, "loss_weights": {"a": 1.0, "b": 3.0}}
    histories = []
    for accumulation in (1, 2):
        trainer, batches = sequences(**settings)
        history = trainer.fit(
            batches, epochs=2, steps_per_epoch=2, verbose=0, accumulation=accumulation
        )
        histories.append(history.history)
    assert histories[0].keys() == histories[1].keys() > {"a_loss", "b_loss", "a_mae"}
    for name, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][name], rtol=1e-5, err_msg=name)
    found = histories[0]
    np.testing.assert_allclose(
        found["loss"], np.add(found["a_loss"], np.multiply(3, found["b_loss"])), rtol=1e-5
    )


@pytest.mark.parametrize("activation", ["softmax", "linear"])
def test_metrics_of_parts_see_masks_and_logits(activation):
    """As those of the whole batch: what Keras attaches to outputs is not lost."""
    histories = []
    for accumulation in (1, 4):
        keras.utils.set_random_seed(0)
        sure = keras.initializers.RandomNormal(stddev=100.0)  # of probabilities that are 0 or 1
        layers = [keras.layers.Embedding(VOCABULARY, 4, "normal", mask_zero=True)]
        layers.append(keras.layers.Dense(VOCABULARY, activation, kernel_initializer=sure))
        trainer = Trainer(keras.Sequential([keras.Input((None,), dtype="int32"), *layers]))
        loss = keras.losses.SparseCategoricalCrossentropy(reduction="sum")
        metrics = ["accuracy", "sparse_categorical_crossentropy"]
        trainer.compile(keras.optimizers.SGD(0.0), loss, metrics=metrics)
        history = trainer.fit(
            dataset(data(1)), steps_per_epoch=1, verbose=0, accumulation=accumulation
        )
        histories.append(history.history)
    for name, values in histories[0].items():
        np.testing.assert_allclose(values, histories[1][name], rtol=1e-5, err_msg=name)


class Measuring(keras.layers.Layer):
    """A layer with a metric of what it is called on."""

    def __init__(self):
        super().__init__()
        self.measured = keras.metrics.Mean(name="measured")

    def call(self, x):
        self.measured.update_state(x)
        return x


def one_number(labels, outputs):
    return keras.ops.mean(outputs)


OF_BATCHES = {
    "add_loss in activity": ([keras.layers.ActivityRegularization(0.1, name="activity")], {}),
    "the metric measured": ([Measuring()], {}),
    "the metric one_number": ([], {"metrics": {"b": ["mae", one_number]}}),
    "the metric mine": (
        [],
        {"weighted_metrics": {"a": [keras.metrics.MeanMetricWrapper(one_number, name="mine")]}},
    ),
    "the metric mean_squared_error": ([], {"metrics": {"a": [keras.losses.MeanSquaredError()]}}),
}


@pytest.mark.parametrize("name", OF_BATCHES)
def test_what_is_computed_of_a_whole_batch_cannot_be_split(name):
    """The error is raised before the first step; whole batches train."""
    layers, settings = OF_BATCHES[name]
    trainer, batches = sequences(*layers, **settings)
    before = trainer.get_weights()
    with pytest.raises(UserError, match=rf"whole batch \({name}\) cannot be split between 2 dev"):
        trainer.fit(batches, steps_per_epoch=1, verbose=0, accumulation=2)
    for mine, other in zip(trainer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, other)
    trainer, batches = sequences(*layers, **settings)
    trainer.fit(batches, steps_per_epoch=1, verbose=0)


@pytest.mark.parametrize("scales", [True, False])
def test_the_loss_is_scaled_if_the_model_is_compiled_so(scales):
    model = language_model(dtype="mixed_float16")
    model.dtype_policy = "mixed_float16"
    model.compile("sgd", SmoothedCrossEntropy(reduction="sum"), auto_scale_loss=scales)
    trainer = Trainer(model)
    trainer.compile(**compile_arguments(model))
    assert isinstance(trainer.optimizer, keras.optimizers.LossScaleOptimizer) == scales


def test_compiled_by_xla_it_learns_the_same():
    trainers = [compiled(jit_compile=value) for value in (False, True)]
    for trainer in trainers:
        trainer.fit(dataset(data(4)), steps_per_epoch=4, verbose=0)
    for mine, theirs in zip(*(t.get_weights() for t in trainers), strict=True):
        np.testing.assert_allclose(mine, theirs, atol=1e-5)


@pytest.mark.parametrize("length", [LENGTH, None])
def test_gpus_compile_steps_of_one_shape(monkeypatch, length):
    gpu = SimpleNamespace(device_type="GPU", name="/device:GPU:0")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: [gpu])
    arrays = data(2)
    specs = tuple(tf.TensorSpec((None, length), array.dtype) for array in arrays)
    batches = tf.data.Dataset.from_generator(lambda: zip(*arrays), output_signature=specs)
    trainer = compiled()
    trainer.fit(batches, steps_per_epoch=2, verbose=0)
    assert trainer.jit_compile == (length is not None)
    step = trainer.train_function
    trainer.fit(batches, steps_per_epoch=1, verbose=0)
    assert trainer.train_function is step


def test_an_overflow_of_16_bits_skips_the_step():
    model = language_model(dtype="mixed_float16")
    model.dtype_policy = "mixed_float16"
    trainer = Trainer(model)
    trainer.compile(keras.optimizers.SGD(0.1), SmoothedCrossEntropy(reduction="sum"))
    assert isinstance(trainer.optimizer, keras.optimizers.LossScaleOptimizer)
    inputs, labels, weights = data(1)
    before = trainer.get_weights()
    scale = float(trainer.optimizer.dynamic_scale)
    trainer.fit(dataset((inputs, labels, 1e30 * weights)), steps_per_epoch=1, verbose=0)
    for mine, other in zip(trainer.get_weights(), before, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert float(trainer.optimizer.dynamic_scale) == scale / 2
    trainer.fit(dataset((inputs, labels, weights)), steps_per_epoch=1, verbose=0)
    changed = [(a != b).any() for a, b in zip(trainer.get_weights(), before, strict=True)]
    assert all(changed) and int(trainer.optimizer.iterations) == 1


def test_what_cannot_be_right_is_refused(monkeypatch):
    trainer = Trainer(language_model())
    with pytest.raises(ValueError, match="pass accumulation"):
        trainer.compile(keras.optimizers.SGD(gradient_accumulation_steps=2), SmoothedCrossEntropy())
    scaled = keras.optimizers.LossScaleOptimizer(
        keras.optimizers.SGD(gradient_accumulation_steps=2)
    )
    with pytest.raises(ValueError, match="pass accumulation"):
        trainer.compile(scaled, SmoothedCrossEntropy())
    overwriting = keras.optimizers.SGD(use_ema=True, ema_overwrite_frequency=2)
    trainer.compile(overwriting, SmoothedCrossEntropy())
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_num_replicas", 2)
        for optimizer in (overwriting, keras.optimizers.LossScaleOptimizer(overwriting)):
            with pytest.raises(UserError, match="ema_overwrite_frequency is not"):
                trainer.compile(optimizer, SmoothedCrossEntropy())
    trainer.compile(keras.optimizers.SGD(), SmoothedCrossEntropy())
    with pytest.raises(ValueError, match="must be built"):
        Trainer(keras.Sequential([keras.layers.Dense(1)]))
    with tf.distribute.OneDeviceStrategy("CPU:0").scope():
        other = language_model()
    with pytest.raises(ValueError, match="the same strategy"):
        Trainer(other)
