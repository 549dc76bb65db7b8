"""The loss and the accuracy of tokens.

Axes: B batch, T tokens, V vocabulary.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from sklearn.utils.class_weight import compute_class_weight

from zoo.data.worker_batches import ShareWeights
from zoo.errors import UserError
from zoo.training.losses import (
    ClassWeighted,
    SmoothedCrossEntropy,
    balanced_class_weights,
    token_accuracy,
)
from zoo.training.share_losses import ShareLoss, common_reduction, loss_weights

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


@pytest.mark.parametrize("label_smoothing, shape", [(0.0, (3, 5)), (0.1, (3, 5)), (0.6, (1, 1))])
def test_the_loss_is_that_of_keras_on_one_hot_labels(label_smoothing, shape):
    labels, logits = tokens(*shape)
    weights = RANDOM.uniform(size=shape).astype("float32")
    theirs = keras.losses.CategoricalCrossentropy(
        from_logits=True,
        label_smoothing=label_smoothing,
        reduction="mean_with_sample_weight",
    )
    one_hot = np.eye(VOCABULARY, dtype="float32")[labels]
    expected = value_and_gradient(theirs, one_hot, logits, weights)
    found = value_and_gradient(SmoothedCrossEntropy(label_smoothing), labels, logits, weights)
    # float32, means of up to 15 terms below 20
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)
    each = SmoothedCrossEntropy(label_smoothing, reduction="none")(labels, logits)
    assert each.shape == shape


def test_padding_changes_nothing():
    labels, logits = tokens()
    weights = np.ones(labels.shape, "float32")
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
    np.testing.assert_allclose(padded[1][part], gradient, rtol=1e-6)
    padded[1][part] = 0.0
    assert not padded[1].any()


@pytest.mark.parametrize("shape", [(0, 5), (3, 0)])
def test_a_batch_may_be_empty(shape):
    labels, logits = tokens(*shape)
    assert SmoothedCrossEntropy(0.1)(labels, logits) == 0.0
    value, gradient = value_and_gradient(SmoothedCrossEntropy(0.1), labels, logits)
    assert value == 0.0 and gradient.shape == logits.shape


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
    found, expected = token_accuracy(), keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    found = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(found))
    for batch in (3, 50):
        labels, logits = tokens(batch)
        logits = np.round(logits) + 0.25  # many are equal: the first one counts
        weights = RANDOM.uniform(size=labels.shape).astype("float32")
        for metric in (found, expected):
            metric.update_state(labels, tf.cast(logits, dtype), weights)
            metric.update_state(labels[:, :1], logits[:, 0])  # Keras takes labels [B, 1], too
    assert (found.name, token_accuracy()._direction) == (expected.name, expected._direction)
    assert 0.05 < expected.result() < 0.95
    np.testing.assert_array_equal(found.result(), expected.result())


def test_the_loss_is_saved_whole():
    loss = SmoothedCrossEntropy(0.2, reduction="none", name="mine")
    copy = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(loss))
    expected = {"label_smoothing": 0.2, "reduction": "none", "name": "mine"}
    assert copy.get_config() == loss.get_config() == expected
    labels, logits = tokens()
    np.testing.assert_array_equal(copy(labels, logits), loss(labels, logits))


def test_balanced_weights_are_those_of_scikit_learn():
    labels = np.repeat([0, 2, 3], [40, 8, 1])
    theirs = compute_class_weight("balanced", classes=np.unique(labels), y=labels)
    np.testing.assert_allclose(
        balanced_class_weights(labels, 5), [theirs[0], 0, theirs[1], theirs[2], 0]
    )


@pytest.mark.parametrize("soft", [False, True])
def test_a_loss_with_class_weights_is_that_of_keras_with_weights_of_examples(soft):
    labels, logits = (array[0] for array in tokens(1, 9))
    class_weights = RANDOM.uniform(size=VOCABULARY).astype("float32")
    weights = class_weights[labels]
    if soft:
        loss = keras.losses.CategoricalCrossentropy(from_logits=True, reduction="sum")
        labels = RANDOM.dirichlet(np.ones(VOCABULARY), 9).astype("float32")
        weights = labels @ class_weights
    else:
        loss = SmoothedCrossEntropy(0.1, reduction="sum")
    expected = value_and_gradient(loss, labels, logits, weights / 9)
    weighted = ShareLoss(ClassWeighted(loss, class_weights))
    found = value_and_gradient(weighted, labels, logits, np.full(9, 1 / 9, "float32"))
    # float32, sums of nine terms
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    np.testing.assert_allclose(found[1], expected[1], atol=1e-6)


class Ones(keras.losses.Loss):
    def call(self, y_true, y_pred):
        return ops.ones(y_true.shape[:1])


def test_class_weights_are_those_of_the_labels_before_smoothing():
    """Also of mixed labels, and of labels that are not smoothed, as in validation."""
    class_weights = np.array([0.5, 2.0, 30.0], "float32")
    plain = np.array([[1, 0, 0], [0, 0, 1], [0.25, 0.75, 0]], "float32")
    smoothed = 0.9 * plain + 0.1 / 3
    loss = ClassWeighted(Ones(), class_weights, label_smoothing=0.1)
    expected = plain @ class_weights
    np.testing.assert_allclose(loss.call(smoothed, plain), expected, rtol=1e-5)
    np.testing.assert_allclose(loss.call(plain[:2], plain[:2]), expected[:2], rtol=1e-5)
    assert loss.call(0 * plain, plain).numpy().tolist() == [0.0] * 3


# --- shares of an update -------------------------------------------------------------------------


REDUCTIONS = ("sum", "sum_over_batch_size", "mean_with_sample_weight")


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("weights_shape", [(7,), (7, 5)])
def test_the_losses_of_shares_add_up_to_that_of_keras(reduction, weights_shape):
    """Of shares of 4, 2 and 1 rows; a share repeats its last row, without weight."""
    labels, logits = tokens(7)
    weights = RANDOM.uniform(size=weights_shape).astype("float32")
    loss = SmoothedCrossEntropy(0.1, reduction)
    per_item = np.broadcast_to(weights if weights.ndim > 1 else weights[:, None], labels.shape)
    expected = loss(labels, logits, per_item)
    total = 0.0
    for rows in ([0, 1, 2, 3], [4, 5, 5, 5], [6, 6]):
        real = np.float32([row not in rows[:place] for place, row in enumerate(rows)])
        share = ShareWeights.of_batch(weights[rows], 7, weights.sum())._replace(is_real=real)
        total += ShareLoss(loss)(labels[rows], logits[rows], loss_weights(share, reduction, 1))
    np.testing.assert_allclose(total, expected, rtol=1e-5)  # float32, in another order


def test_losses_of_one_reduction_are_needed():
    mean = keras.losses.MeanSquaredError()
    assert common_reduction({"a": mean, "b": None, "c": "mse"}) == "sum_over_batch_size"
    assert common_reduction(None) == common_reduction(
        [keras.losses.MeanSquaredError(reduction="mean")]
    )
    for others in ([mean, SmoothedCrossEntropy()], keras.losses.MeanSquaredError(reduction=None)):
        with pytest.raises(UserError, match="All losses of a model must have the same reduction"):
            common_reduction(others)


def test_masks_and_single_numbers_that_would_be_wrong_are_refused():
    labels, logits = tokens(4)
    ignoring = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, ignore_class=0, reduction="mean_with_sample_weight"
    )
    with pytest.raises(UserError, match="has a mask, which is not supported with the reduction"):
        ShareLoss(ignoring)(labels, logits, np.ones(4, "float32"))
    for reduction in ("sum_over_batch_size", "mean_with_sample_weight"):
        number = keras.losses.Dice(reduction=reduction)
        expected = keras.losses.Dice()(np.eye(VOCABULARY)[labels], logits)
        is_weighted = reduction == "mean_with_sample_weight"
        weights = np.full(4, 0.25 if is_weighted else 1.0, "float32")  # of `loss_weights`
        found = ShareLoss(number)(np.eye(VOCABULARY)[labels], logits, weights)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    with pytest.raises(UserError, match="dice returns one number .* between 2 devices"):
        ShareLoss(number, 2)(np.eye(VOCABULARY)[labels], logits, np.ones(4, "float32"))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_one_number_for_a_batch_is_weighted_as_by_keras(reduction):
    labels, logits = tokens(4)
    labels, weights = np.eye(VOCABULARY)[labels], RANDOM.uniform(size=4).astype("float32")
    loss = keras.losses.Dice(reduction=reduction)
    share = ShareWeights.of_batch(weights, 4, weights.sum())
    found = ShareLoss(loss)(labels, logits, loss_weights(share, reduction, 1))
    np.testing.assert_allclose(found, loss(labels, logits, weights), rtol=1e-6)


def test_errors_name_the_loss_of_a_function():
    labels, logits = tokens(4)

    def total_error(labels, outputs):
        return keras.ops.sum(outputs)

    for function, name in (
        (total_error, "total_error"),
        (lambda y, x: total_error(y, x), "<lambda>"),
    ):
        with pytest.raises(UserError, match=f"The loss {name} returns one number"):
            ShareLoss(function, 2)(labels, logits, np.ones(4, "float32"))


def test_masks_are_refused_where_the_mean_would_be_that_of_each_share():
    labels, logits = tokens(4)
    weights = np.ones(4, "float32")
    mean, summed = (
        keras.losses.SparseCategoricalCrossentropy(
            from_logits=True, ignore_class=0, reduction=reduction
        )
        for reduction in ("sum_over_batch_size", "sum")
    )
    for loss, num_shares in ((mean, 1), (summed, 2)):
        found = ShareLoss(loss, num_shares)(labels, logits, weights)
        np.testing.assert_allclose(found, loss(labels, logits), rtol=1e-6)
    with pytest.raises(UserError, match="has a mask, so .* between 2 devices"):
        ShareLoss(mean, 2)(labels, logits, weights)


@pytest.mark.parametrize("label", [-1, -3])
def test_a_label_that_is_no_class_has_no_loss(label):
    """It would be another class, silently; the others keep their losses."""
    logits = np.float32([[1, 2, 3], [3, 2, 1]])
    loss = SmoothedCrossEntropy(reduction="none")
    losses = np.array(loss(np.array([label, 0]), logits))
    assert np.isnan(losses[0]) and losses[1] == np.array(loss(np.array([0, 0]), logits))[1]
