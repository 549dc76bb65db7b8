"""The public methods of `keras.Model` and `keras.layers.Layer` work on each layer and each model.

A layer is tested within a functional model, and by its own methods.
"""

import copy
import gc
import pickle

import keras
import numpy as np
import pytest

from tests import contracts
from tests.contracts import numpy
from tests.layers.test_contracts import CASES as LAYERS
from tests.models.test_contracts import CASES as MODELS
from tests.models.test_contracts import shallow

# Of trainable weights. The cases of models have one block of each kind.
NUM_WEIGHTS = {
    "MultiHeadSelfAttention": 2,
    "MultiHeadAttention": 3,
    "FeedForward": 2,
    "TransformerEncoder": 8,
    "TransformerDecoder": 13,
    "TransformerDecoder, no memory": 8,
    "TokenEmbedding": 4,
    "SSRU": 3,
    "Dropout": 0,
    "LayerNormalization": 2,
    "RMSNormalization": 1,
    "LayerScale": 1,
    "AttentionPool": 12,
    "RelativePositions": 1,
    "RelativePositionTable": 1,
    "RotaryPositions": 0,
    "RotaryGridPositions": 0,
    "SinusoidalGridPositions": 0,
    "SinusoidalPositions": 0,
    "LearnedPositions": 1,
    "PatchExtract": 0,
    "PatchEmbed": 2,
    "PatchDropout": 0,
    "SqueezeExcite": 4,
    "ConvBlockAttention": 6,
    "ClassToken": 1,
    "RegisterTokens": 1,
    "MultiHeadSelfAttention, linear": 2,
    "TransformerEncoder, linear": 8,
    "TransformerDecoder, linear": 13,
    "TransformerDecoder, ssru": 14,
    "vit": 21,
    "vit, rotary positions": 21,
    "vit, rotation": 21,
    "vit, class token": 25,
    "vit, learned positions": 22,
    "vit, no head": 19,
    "transformer": 27,
    "transformer, rotary positions": 24,
    "causal_lm": 12,
    "text_classifier": 15,
    "text_classifier, first token": 21,
    "text_classifier, no head": 13,
}


CASES = {**LAYERS, **{name: shallow(case, remat=False) for name, case in MODELS.items()}}
ONE_OF_EACH = [name for name in MODELS if "," not in name]
each_case = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.ci) if "," in name else name for name in CASES]
)


def assert_same(found, expected):
    np.testing.assert_allclose(
        numpy(found), numpy(expected), atol=contracts.TOLERANCE, rtol=contracts.TOLERANCE
    )


@each_case
def test_numbers_of_weights(name):
    model, _ = contracts.model_of(CASES[name])
    assert len(model.trainable_weights) == NUM_WEIGHTS[name]
    assert model.count_params() == sum(int(np.prod(weight.shape)) for weight in model.weights)
    lines = []
    model.summary(print_fn=lambda line, **_: lines.append(line), expand_nested=True)
    assert f"Total params: {model.count_params():,}" in "\n".join(lines)
    model.trainable = False
    assert model.trainable_weights == []


@each_case
def test_copies_of_a_model(name, tmp_path):
    """By each way that Keras and Python have."""
    model, inputs = contracts.model_of(CASES[name])
    expected = model(inputs)
    model.save(tmp_path / "model.keras")
    model.save_weights(tmp_path / "model.weights.h5")
    with_weights = [
        keras.saving.load_model(tmp_path / "model.keras"),
        pickle.loads(pickle.dumps(model)),
        copy.deepcopy(model),
    ]
    for twin in with_weights:
        assert_same(twin(inputs), expected)
    without_weights = [
        type(model).from_config(model.get_config()),
        keras.models.clone_model(model),
        keras.models.model_from_json(model.to_json()),
    ]
    for twin in without_weights:
        twin(inputs)
        twin.load_weights(tmp_path / "model.weights.h5")
        assert_same(twin(inputs), expected)
    twin.set_weights([np.zeros_like(weight) for weight in model.get_weights()])
    model.compile("sgd", "mse")
    twin.compile("sgd", "mse")
    twin.set_state_tree(model.get_state_tree())
    assert_same(twin(inputs), expected)


@pytest.mark.parametrize("name", LAYERS)
def test_copies_of_a_layer(name):
    case = LAYERS[name]
    layer = case.make()
    expected = contracts.call(case, layer)
    for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
        assert_same(contracts.call(case, twin), expected)
    twin = type(layer).from_config(layer.get_config())
    twin.build_from_config(layer.get_build_config())
    twin.set_weights(layer.get_weights())
    assert_same(contracts.call(case, twin), expected)


@each_case
def test_stateless_call(name):
    model, inputs = contracts.model_of(CASES[name])
    trainable = [variable.value for variable in model.trainable_variables]
    others = [variable.value for variable in model.non_trainable_variables]
    outputs, _ = model.stateless_call(trainable, others, inputs, training=False)
    assert_same(outputs, model(inputs))


@each_case
@pytest.mark.filterwarnings("ignore:The model does not have any trainable weights")
def test_training_and_prediction(name):
    model, inputs = contracts.model_of(CASES[name])
    outputs = numpy(model(inputs))
    targets = np.zeros((len(outputs), *[1] * (outputs.ndim - 1)))  # the same for all positions
    optimizer = keras.optimizers.SGD(1e-3)
    model.compile(optimizer, "mse", metrics=["mae"], run_eagerly=contracts.EAGERLY)
    assert_same(model.predict(inputs, verbose=0), outputs)
    assert_same(model.predict_on_batch(inputs), outputs)
    expected = [np.mean(np.square(outputs)), np.mean(np.abs(outputs))]
    found = model.evaluate(inputs, targets, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    np.testing.assert_allclose(model.test_on_batch(inputs, targets), expected, rtol=1e-4)
    assert np.isfinite(model.train_on_batch(inputs, targets)).all()
    history = model.fit(inputs, targets, validation_data=(inputs, targets), verbose=0).history
    assert set(history) == {"loss", "mae", "val_loss", "val_mae"}
    assert np.isfinite([*history.values()]).all()


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="graphs of TensorFlow")
@pytest.mark.parametrize(
    "name",
    [name if name in ONE_OF_EACH else pytest.param(name, marks=pytest.mark.ci) for name in CASES],
)
def test_export(name, tmp_path):
    """One model of each class is exported before its first call, the others after it."""
    import tensorflow as tf

    model, inputs = contracts.model_of(CASES[name])
    exported = model
    if name in ONE_OF_EACH:
        exported = CASES[name].make()
        exported.set_weights(model.get_weights())
    exported.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "model")
    rows = keras.tree.map_structure(lambda array: tf.constant(array[:2]), inputs)
    assert_same(loaded.serve(rows), model(rows))


@pytest.mark.ci
@each_case
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_quantize(name, monkeypatch):
    monkeypatch.setattr(gc, "collect", lambda: 0)  # Keras calls it for each weight that it replaces
    model, inputs = contracts.model_of(CASES[name])
    expected = numpy(model(inputs))
    model.quantize("int8")
    assert np.abs(numpy(model(inputs)) - expected).max() <= 0.2 * np.abs(expected).max()
