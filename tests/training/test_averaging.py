"""The average of the weights of the last epochs."""

import math

import keras
import numpy as np
import pytest

from zoo.training.averaging import AverageCheckpoints


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
    seen, average, model = [], AverageCheckpoints(tmp_path, 2), small_model()
    record = keras.callbacks.LambdaCallback(
        on_epoch_end=lambda epoch, logs: seen.append(model.get_weights())
    )
    inputs = np.random.default_rng(0).normal(size=(8, 3))
    model.fit(inputs, inputs[:, :2], 4, 3, 0, [record, average])
    average.average(model)
    for weights, *last in zip(model.get_weights(), *seen[-2:]):
        np.testing.assert_allclose(weights, np.mean(last, axis=0), rtol=1e-6)
    with pytest.raises(ValueError):
        average.average(keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)]))


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
