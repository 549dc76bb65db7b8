"""Loss, learning rate, optimizer, averaged weights, early stopping and pictures of translation.

Axes: B batch, T tokens, V vocabulary.
"""

import csv
import json
import math
import os

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.models import Transformer
from zoo.training.averaging import AverageCheckpoints
from zoo.training.callbacks import (
    EarlyStopping,
    EpochFigures,
    HistoryFiles,
    standard_callbacks,
)
from zoo.training.losses import SmoothedCrossEntropy, TokenAccuracy, smoothed_cross_entropy
from zoo.training.optimizers import (
    WarmupInverseSquareRoot,
    transformer_adam,
    transformer_muon,
)

RANDOM = np.random.default_rng(0)
VOCABULARY = 7


def tokens(batch=3, length=5):
    labels = RANDOM.integers(0, VOCABULARY, (batch, length)).astype("int32")
    return labels, RANDOM.normal(size=(batch, length, VOCABULARY)).astype("float32") * 3


def value_and_gradient(loss, labels, logits, weights=None):
    @tf.function
    def run(labels, logits, weights):
        with tf.GradientTape() as tape:
            tape.watch(logits)
            value = loss(labels, logits, weights)
        return value, tape.gradient(value, logits)

    value, gradient = run(tf.constant(labels), tf.constant(logits), weights)
    return value.numpy(), gradient.numpy()


# --- loss ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1, 0.6])
@pytest.mark.parametrize("shape", [(3, 5), (1, 1)])
def test_the_loss_is_that_of_keras_on_one_hot_labels(label_smoothing, shape):
    labels, logits = tokens(*shape)
    weights = RANDOM.uniform(size=shape).astype("float32")
    theirs = keras.losses.CategoricalCrossentropy(
        from_logits=True, label_smoothing=label_smoothing, reduction="sum"
    )
    one_hot = np.eye(VOCABULARY, dtype="float32")[labels]
    expected = value_and_gradient(theirs, one_hot, logits, weights)
    found = value_and_gradient(SmoothedCrossEntropy(label_smoothing), labels, logits, weights)
    # float32, sums of up to 15 terms below 20
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    each = SmoothedCrossEntropy(label_smoothing, reduction="none")(labels, logits)
    assert each.shape == shape


def test_padding_changes_nothing():
    labels, logits = tokens()
    weights = np.full(labels.shape, 1 / labels.size, "float32")
    loss = SmoothedCrossEntropy(0.1)
    value, gradient = value_and_gradient(loss, labels, logits, weights)
    unweighted = np.mean(SmoothedCrossEntropy(0.1, reduction="none")(labels, logits))
    np.testing.assert_allclose(value, unweighted, rtol=1e-6)
    more_labels, more_logits = tokens(5, 9)
    more_weights = np.zeros(more_labels.shape, "float32")
    part = (slice(3), slice(5))
    more_labels[part], more_logits[part], more_weights[part] = labels, logits, weights
    padded = value_and_gradient(loss, more_labels, more_logits, more_weights)
    np.testing.assert_allclose(padded[0], value, rtol=1e-6)
    np.testing.assert_array_equal(padded[1][part], gradient)
    padded[1][part] = 0.0
    assert not padded[1].any()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_a_batch_may_be_empty(shape):
    labels, logits = tokens(*shape)
    assert SmoothedCrossEntropy(0.1)(labels, logits) == 0.0
    value, gradient = value_and_gradient(SmoothedCrossEntropy(0.1), labels, logits)
    assert value == 0.0 and gradient.shape == logits.shape


def test_second_derivatives_are_those_of_the_formula():
    labels, logits = tokens()
    direction = tf.constant(RANDOM.normal(size=logits.shape))

    def formula(labels, logits):
        total = tf.reduce_logsumexp(logits, axis=-1)
        label = tf.gather(logits, labels, batch_dims=2)
        return total - 0.9 * label - 0.1 * tf.reduce_mean(logits, axis=-1)

    def product(losses):
        """Of the second derivatives of the summed losses and the direction."""
        x = tf.constant(logits, "float64")
        with tf.GradientTape() as outer:
            outer.watch(x)
            with tf.GradientTape() as inner:
                inner.watch(x)
                value = tf.reduce_sum(losses(labels, x) ** 2)
            slope = tf.reduce_sum(inner.gradient(value, x) * direction)
        return outer.gradient(slope, x)

    found = product(lambda *given: smoothed_cross_entropy(*given, 0.1))
    np.testing.assert_allclose(found, product(formula), atol=1e-6)  # 0.1 is rounded to float32


def test_the_loss_stays_finite_and_in_32_bits():
    logits = np.array([[[1e4, -1e4, 0.0]]], "float32")
    value, gradient = value_and_gradient(SmoothedCrossEntropy(0.1), [[1]], logits)
    # (1 - 0.1) * 2e4 for the label, 0.1 of the mean distance 1e4
    np.testing.assert_allclose(value, 19_000.0, rtol=1e-6)
    np.testing.assert_allclose(gradient[0, 0], [1 - 0.1 / 3, -0.9 - 0.1 / 3, -0.1 / 3], rtol=1e-5)
    keras.config.set_floatx("bfloat16")
    try:
        loss = SmoothedCrossEntropy(reduction="none")
        logits = np.zeros((1, 1, 4097), "float32")
        logits[0, 0, 4095] = 9.0  # bfloat16 would round the label to 4096
        value = loss(np.array([[4095]]), logits)
    finally:
        keras.config.set_floatx("float32")
    assert keras.backend.standardize_dtype(value.dtype) == "float32"
    np.testing.assert_allclose(value, [[np.log1p(4096 * np.exp(-9.0))]], rtol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_accuracy_is_that_of_keras(dtype):
    found, expected = TokenAccuracy(), keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    for batch in (3, 50):
        labels, logits = tokens(batch)
        logits = np.round(logits) + 0.25  # many are equal: the first one counts
        weights = RANDOM.uniform(size=labels.shape).astype("float32")
        for metric in (found, expected):
            metric.update_state(labels, tf.cast(logits, dtype), weights)
            metric.update_state(labels[:, :1], logits[:, 0])  # Keras takes labels [B, 1], too
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(found))
    assert copy.get_config() == found.get_config() and type(copy) is TokenAccuracy
    assert found.name == expected.name and 0.05 < expected.result() < 0.95
    np.testing.assert_array_equal(found.result(), expected.result())


def test_the_loss_is_saved_whole():
    loss = SmoothedCrossEntropy(0.2, reduction="none", name="mine")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    assert (
        copy.get_config()
        == loss.get_config()
        == {
            "label_smoothing": 0.2,
            "reduction": "none",
            "name": "mine",
        }
    )
    labels, logits = tokens()
    np.testing.assert_array_equal(copy(labels, logits), loss(labels, logits))
    for value in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match=f"label_smoothing.*{value}"):
            SmoothedCrossEntropy(value)


# --- learning rate and optimizer -----------------------------------------------------------------


def test_the_learning_rate_is_that_of_the_paper():
    schedule = WarmupInverseSquareRoot(512, warmup_steps=40, scale=2.0)
    update = np.arange(1, 200)
    expected = 2.0 * 512**-0.5 * np.minimum(update**-0.5, update * 40**-1.5)
    found = [float(schedule(step)) for step in range(199)]
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert int(np.argmax(found)) + 1 == 40
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(schedule))
    assert copy.get_config() == schedule.get_config()
    assert float(copy(50)) == float(schedule(50))
    with pytest.raises(ValueError, match="warmup_steps=0"):
        WarmupInverseSquareRoot(512, warmup_steps=0)


def language_model(clip_norm=None, warmup_steps=4, dropout=0.0):
    """Guesses a token from another; its embedding is not shared, so its gradient is of rows."""
    keras.utils.set_random_seed(0)
    model = keras.Sequential(
        [
            keras.Input((None,), dtype="int32"),
            keras.layers.Embedding(VOCABULARY, 4),
            keras.layers.Dropout(dropout, seed=1),
            keras.layers.Dense(VOCABULARY),
        ]
    )
    optimizer = transformer_adam(4, warmup_steps, scale=0.2, clip_norm=clip_norm)
    model.compile(optimizer, SmoothedCrossEntropy(0.1), weighted_metrics=["accuracy"])
    return model


def batches(count, rows, accumulation):
    """Batches with padding, whose weights sum to one in each group of `accumulation`."""
    random = np.random.default_rng(3)
    source = random.integers(0, VOCABULARY, (count, rows, 6)).astype("int32")
    target = random.integers(0, VOCABULARY, (count, rows, 6)).astype("int32")
    real = (np.arange(6) < random.integers(1, 7, (count, rows, 1))).astype("float32")
    groups = real.reshape(-1, accumulation, rows, 6)
    weights = groups / groups.sum(axis=(1, 2, 3), keepdims=True)
    return source, target, weights.reshape(real.shape)


def test_muon_updates_the_matrices_of_both_stacks_and_nothing_else():
    model = Transformer(20, 20, 8, 2, 1, shared="all")
    model.build()
    optimizer = transformer_muon(model, 10, 2.0, clip_norm=1.5)
    optimizer.build(model.trainable_variables)
    found = {
        variable.path
        for variable, velocity in zip(model.trainable_variables, optimizer.adam_velocities)
        if velocity is None
    }
    blocks = (*model.encoder_blocks, *model.decoder_blocks)
    kernels = {w.path for b in blocks for w in b.trainable_variables if w.name == "kernel"}
    assert found == kernels and len(found) == 4 + 7
    assert optimizer.weight_decay is None and optimizer.global_clipnorm == 1.5
    adam = transformer_adam(8, 10, 2.0)
    assert optimizer._learning_rate.get_config() == adam._learning_rate.get_config()


def test_the_optimizer_is_that_of_the_paper():
    optimizer = transformer_adam(512, clip_norm=1.5)
    assert isinstance(optimizer, keras.optimizers.Adam)
    found = [getattr(optimizer, name) for name in ("beta_1", "beta_2", "epsilon")]
    assert found == [0.9, 0.98, 1e-9]
    assert optimizer.global_clipnorm == 1.5
    copy = keras.saving.deserialize_keras_object(
        keras.saving.serialize_keras_object(transformer_adam(512, 100, 2.0))
    )
    assert type(copy) is keras.optimizers.Adam
    assert copy._learning_rate.get_config() == {
        "embed_dim": 512,
        "warmup_steps": 100,
        "scale": 2.0,
    }


# --- figures ------------------------------------------------------------------------------------


def test_figures_are_named_after_what_is_counted(tmp_path):
    callbacks = standard_callbacks(tmp_path, tokens_per_epoch=100)
    assert not any(isinstance(c, keras.callbacks.SwapEMAWeights) for c in callbacks)
    [figures] = [c for c in callbacks if isinstance(c, EpochFigures)]
    model = language_model()
    source, target, weights = (a[:4].reshape(8, 6) for a in batches(12, 2, 1))
    model.fit(source, target, 2, 2, 0, callbacks, sample_weight=weights)
    with open(tmp_path / "history.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    names = {"epoch", "loss", "accuracy", "learning_rate"}
    names |= {"tokens_per_second", "tokens_per_second_per_device"}
    assert len(rows) == 2 and names <= set(rows[0])
    rates = [float(row["learning_rate"]) for row in rows]
    np.testing.assert_allclose(rates, 0.1 * np.array([5**-0.5, 9**-0.5]), rtol=1e-6)
    assert any((tmp_path / "tensorboard").rglob("events*"))
    assert figures.per_epoch == {"tokens": 100}


# --- averaged weights ----------------------------------------------------------------------------


def small_model():
    keras.utils.set_random_seed(0)
    layers = [keras.layers.Dense(2), keras.layers.BatchNormalization()]
    model = keras.Sequential([keras.Input((3,)), *layers])
    model.compile("adam", "mse")
    return model


def keep(average, model, epoch, value):
    """Ends an epoch with weights that all are `value`."""
    model.set_weights([np.full(w.shape, value, "float32") for w in model.get_weights()])
    average.set_model(model)
    average.on_epoch_end(epoch)


def test_the_last_epochs_are_averaged_across_interruptions(tmp_path):
    model = small_model()
    (tmp_path / "history.csv").write_text("a file of somebody else")
    for epoch, value in enumerate([100.0, 1.0, 2.0, 70.0]):
        keep(AverageCheckpoints(tmp_path, 3), model, epoch, value)
    # killed before epoch 3 counted as done: it is run again, and then another one
    keep(AverageCheckpoints(tmp_path, 3), model, 3, 6.0)
    assert len(list((tmp_path / "last_epochs").iterdir())) == 3
    fresh = small_model()
    fresh.optimizer.build(fresh.trainable_variables)
    state = [v.numpy() for v in fresh.optimizer.variables]
    average = AverageCheckpoints(tmp_path, 3)
    average.average(fresh)
    for weights in fresh.get_weights():
        np.testing.assert_array_equal(weights, np.full(weights.shape, 3.0))  # (1 + 2 + 6) / 3
    for mine, variable in zip(state, fresh.optimizer.variables):
        np.testing.assert_array_equal(variable.numpy(), mine)
    keep(average, model, 1, 9.0)  # gone on from an older checkpoint: later epochs are no more
    average.average(fresh)
    np.testing.assert_array_equal(fresh.get_weights()[0], np.full((3, 2), 9.0))
    average.remove()
    assert [path.name for path in tmp_path.iterdir()] == ["history.csv"]
    with pytest.raises(FileNotFoundError, match="no epoch weights"):
        average.average(fresh)
    with pytest.raises(ValueError, match="count"):
        AverageCheckpoints(tmp_path, 0)


@pytest.mark.parametrize(
    "losses, averaged",
    [
        ([3.0, 2.0, 1.0, 1.5, 1.2], [1, 2]),
        ([3.0, 2.0, 1.0, 1.5, 1.2, 0.9], [4, 5]),
        ([1.0, 2.0, 3.0], [0]),
        ([math.nan, 2.0, 2.0], [0, 1]),
        ([None, 2.0, None, 3.0, None], [0, 1]),  # validated every other epoch
        ([None, None, None], [1, 2]),
        ([math.inf, math.inf], [0, 1]),
    ],
)
def test_no_epoch_after_the_best_one_is_averaged(tmp_path, losses, averaged):
    model = small_model()
    for epoch, loss in enumerate(losses):
        average = AverageCheckpoints(tmp_path, 2)  # as after an interruption
        model.set_weights([np.full(w.shape, 2.0**epoch, "float32") for w in model.get_weights()])
        average.set_model(model)
        average.on_epoch_end(epoch, {} if loss is None else {"val_loss": loss})
    average.average(model)
    expected = np.mean([2.0**epoch for epoch in averaged])
    np.testing.assert_array_equal(model.get_weights()[0], np.full((3, 2), expected))


def test_the_average_is_of_what_training_had(tmp_path):
    seen, average = [], AverageCheckpoints(tmp_path, 2)
    record = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights())
    )
    model = language_model()
    source, target, weights = (a.reshape(-1, 6) for a in batches(12, 2, 1))
    model.fit(source, target, 8, 3, 0, [record, average], sample_weight=weights)
    average.average(model)
    for found, *last in zip(model.get_weights(), *seen[-2:]):
        np.testing.assert_allclose(found, np.mean(last, axis=0), rtol=1e-6)
    with pytest.raises(ValueError):
        average.average(small_model())


def test_weights_in_16_bits_and_counts(tmp_path):
    class Counted(keras.layers.Dense):
        def build(self, input_shape):
            self.seen = self.add_weight(shape=(), dtype="int32", trainable=False, name="seen")
            super().build(input_shape)

    model = keras.Sequential([keras.Input((3,)), Counted(2, dtype="bfloat16")])
    counter = model.layers[0].seen
    average = AverageCheckpoints(tmp_path, 2)
    for epoch in range(2):
        keep(average, model, epoch, 1.0 + epoch)
        counter.assign(7 + epoch)
        average.on_epoch_end(epoch)
    average.average(model)
    kernel = model.layers[0].kernel
    assert kernel.dtype == "bfloat16"
    np.testing.assert_array_equal(np.asarray(kernel.numpy(), "float32"), np.full((3, 2), 1.5))
    assert int(counter) == 8


def test_kept_weights_are_written_whole(tmp_path, monkeypatch):
    average, model = AverageCheckpoints(tmp_path, 2), small_model()
    keep(average, model, 0, 1.0)

    def killed(*paths):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(os, "replace", killed)
        keep(average, model, 1, 2.0)
    average.average(model)
    np.testing.assert_array_equal(model.get_weights()[0], np.full((3, 2), 1.0))


# --- early stopping ------------------------------------------------------------------------------


def run_epochs(folder, values, patience, monitor, first=0, last=None):
    """What `fit` asks of its callbacks in epochs of these values; returns the epochs done."""
    stopping = EarlyStopping(folder, patience, monitor)
    if stopping.has_stopped(first):
        return first
    model = keras.Model()
    callbacks = keras.callbacks.CallbackList([HistoryFiles(folder), stopping], model=model)
    model.stop_training = False
    callbacks.on_train_begin()
    for epoch in range(first, len(values) if last is None else last):
        callbacks.on_epoch_begin(epoch)
        callbacks.on_epoch_end(epoch, {monitor: values[epoch]})
        if model.stop_training:
            break
    callbacks.on_train_end()
    return epoch + 1


LOSSES = [5.0, 4.0, 4.5, 4.2, 3.9, 4.0, 4.1, 4.05, 3.0, 2.0]


@pytest.mark.parametrize("patience,expected", [(0, 3), (1, 3), (2, 4), (3, 8), (4, 10)])
@pytest.mark.parametrize("monitor,sign", [("val_loss", 1.0), ("val_bleu", -1.0)])
def test_a_resumed_run_stops_where_an_uninterrupted_one_does(
    tmp_path, patience, expected, monitor, sign
):
    values = [sign * v for v in LOSSES]
    for cut in range(expected + 1):
        folder = tmp_path / str(cut)
        folder.mkdir()
        if cut:
            assert run_epochs(folder, values, patience, monitor, last=cut) == cut
        if cut < len(values):
            assert run_epochs(folder, values, patience, monitor, first=cut) == expected


def test_keras_stops_a_resumed_fit(tmp_path):
    """The weights do not learn: from the second epoch on, nothing gets better."""
    for epochs, first in ((2, 0), (9, 2)):
        stopping = EarlyStopping(tmp_path, 3)
        model = small_model()
        model.trainable = False
        model.compile("sgd", "mse")
        history = model.fit(
            np.zeros((1, 3)),
            np.ones((1, 2)),
            validation_data=(np.zeros((1, 3)), np.ones((1, 2))),
            epochs=epochs,
            initial_epoch=first,
            callbacks=[*standard_callbacks(tmp_path), stopping],
            verbose=0,
        )
    assert history.epoch == [2, 3]
    assert stopping.has_stopped(4) and not stopping.has_stopped(3)


def history_of(folder, *losses):
    rows = [{"epoch": n} if x == "none" else {"epoch": n, "val_loss": x} for n, x in losses]
    (folder / "history.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_epochs_that_do_not_count_as_done(tmp_path):
    """The history of an interrupted run may have one more."""
    history_of(tmp_path, (0, 5.0), (1, 4.0), (2, 0.1))
    assert run_epochs(tmp_path, [5.0, 4.0, 3.0, 2.0], 1, "val_loss", first=2) == 4


def test_epochs_without_validation_do_not_count(tmp_path):
    """Those with a loss that is not finite, written as null, do."""
    history_of(tmp_path, (0, 5.0), (1, "none"), (2, None), (3, "none"), (4, 5.2))
    stopping = EarlyStopping(tmp_path, 2)
    assert stopping.has_stopped(5) and not stopping.has_stopped(4)
    history_of(tmp_path, (0, "none"))
    assert not stopping.has_stopped(1)
