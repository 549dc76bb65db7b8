"""Dense layers and tied embeddings, in TensorFlow's graphs and in functions that XLA compiles."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import kernels
from zoo.layers.dense import Dense, ReversibleEmbedding

WIDTH, UNITS = 48, 80
MATRIX = rf"\[(?:{WIDTH},{UNITS}|{UNITS},{WIDTH})\]"


def make(kind, dtype):
    """(layer, function of its inputs), with "int8" quantized from float32."""
    policy = "float32" if dtype == "int8" else dtype
    if kind == "dense":
        settings = {"bias_initializer": "random_normal", "activation": "tanh"}
        layer = call = Dense(UNITS, **settings, dtype=policy)
        layer.build((None, WIDTH))
    else:
        settings = {"tied": {}, "untied": {"tie_weights": False}, "capped": {"logit_soft_cap": 0.1}}
        layer = ReversibleEmbedding(UNITS, WIDTH, **settings[kind], dtype=policy)
        layer.build((None, None))

        def call(x):
            return layer(x, reverse=True)

    if dtype == "int8":
        layer.quantize("int8")
    return layer, call


def normal(*shape, dtype="float32"):
    return tf.cast(np.random.default_rng(0).normal(size=shape), dtype)


def compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


def of_steps(function, count=3):
    """Applies a function in a loop, as a search does, to inputs that change."""

    def last(x):
        def step(index, x, _):
            y = function(x)
            return index + 1, x + tf.cast(y[:, :WIDTH], x.dtype), y

        shape = tf.zeros((x.shape[0], UNITS), function(x).dtype)
        with kernels.constant_weights():
            return tf.while_loop(lambda index, *_: index < count, step, (0, x, shape))[2]

    return last


@pytest.mark.parametrize(
    "kind, dtype, shape",
    [
        *((kind, "bfloat16", (2, 3)) for kind in ("dense", "tied", "untied", "capped")),
        *((kind, "int8", (2, 3)) for kind in ("dense", "tied", "untied", "capped")),
        *((kind, "mixed_bfloat16", (1,)) for kind in ("dense", "tied")),
        ("dense", "int8", (1,)),
        ("tied", "float32", (1,)),
        ("tied", "float32", (2, 3)),
    ],
)
def test_compiled_layers_are_those_of_graphs(kind, dtype, shape):
    _, call = make(kind, dtype)
    x = normal(*shape, WIDTH, dtype="bfloat16" if "bfloat16" in dtype else "float32")
    found, expected = compiled(call)(x), call(x)
    assert found.dtype == expected.dtype and found.shape == expected.shape
    found, expected = np.asarray(found, np.float32), np.asarray(expected, np.float32)
    # Sums of integers are exact; only their scales and the activation are rounded. In bfloat16, 8
    # bits of each result are exact, and of the sum with the bias.
    rtol, atol = (2**-7, 2**-6) if "bfloat16" in dtype else (1e-5, 1e-6)
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


@pytest.mark.parametrize("rows", [1, 3, 33])  # few of them are on the right of the matrix
def test_large_vocabularies_in_int8(rows):
    layer = ReversibleEmbedding(2**14 + 1, 8)
    layer.build((None, None))
    layer.quantize("int8")
    x = normal(rows, 8)
    found = compiled(lambda x: layer(x, reverse=True))(x)
    # sums of integers are exact; only their scales are rounded
    np.testing.assert_allclose(found, layer(x, reverse=True), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "tied"])
@pytest.mark.parametrize("dtype, rows", [("bfloat16", 4), ("int8", 1), ("int8", 4)])
def test_no_matrix_is_converted(kind, dtype, rows):
    """To float32 or int32, which takes longer than the product."""
    layer, call = make(kind, dtype)
    x = normal(rows, WIDTH, dtype=layer.compute_dtype)
    program = compiled(of_steps(call)).experimental_get_compiler_ir(x)(stage="optimized_hlo")
    assert not re.search("[fs]32" + MATRIX, program)
    assert re.search("(bf16|s8)" + MATRIX, program)


def test_no_matrix_is_copied_for_a_single_row():
    """Transposed, in each step of a search: it took four times as long as the product."""
    _, call = make("tied", "float32")
    bias = tf.Variable(normal(UNITS))
    steps = compiled(of_steps(lambda x: call(x) + bias))
    program = steps.experimental_get_compiler_ir(normal(1, WIDTH))(stage="optimized_hlo")
    assert not re.search(MATRIX + r"\S* (copy|transpose)\(", program)


@pytest.mark.parametrize("rows, once", [(2, True), (32, True), (33, False)])
def test_a_matrix_is_transposed_once_for_a_few_rows(rows, once):
    """Before the steps of a search: a product with a transposed matrix takes longer."""
    _, call = make("tied", "float32")
    x, steps = normal(rows, WIDTH), of_steps(call)
    found, expected = compiled(steps)(x), tf.function(steps, autograph=False)(x)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)  # sums in another order
    program = compiled(steps).experimental_get_compiler_ir(x)(stage="optimized_hlo")
    name = re.search(r" while\(.* body=(%[\w.]+)", program)[1]
    loop = re.search(rf"^{name} .*?^}}", program, re.MULTILINE | re.DOTALL)[0]
    assert (f"[{WIDTH},{UNITS}]" in loop) == once  # transposed
    assert (f"[{UNITS},{WIDTH}]" in loop) != once  # as it is stored


@pytest.mark.parametrize("enabled", [True, False], ids=["kernels", "plain"])
def test_a_matrix_that_a_loop_changes(enabled, monkeypatch):
    """In a loop of a user, each step sees the embeddings that the step before has assigned."""
    monkeypatch.setattr(kernels, "enabled", enabled)
    layer, call = make("tied", "float32")
    x = normal(2, WIDTH)

    def step(index, _):
        layer.embeddings.assign(2.0 * layer.embeddings)
        return index + 1, call(x)

    expected = 8 * call(x)
    start = (0, tf.zeros((2, UNITS)))
    found = compiled(lambda: tf.while_loop(lambda index, _: index < 3, step, start)[1])()
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # sums in another order


def test_a_matrix_that_is_a_tensor_of_the_loop():
    """Keras's stateless calls pass the values of variables."""
    layer, _ = make("tied", "float32")

    def step(index, matrix, _):
        logits, _ = layer.stateless_call([matrix], [], normal(2, WIDTH), reverse=True)
        return index + 1, 2.0 * matrix, logits

    start = (0, tf.convert_to_tensor(layer.embeddings), tf.zeros((2, UNITS)))

    @compiled
    def last():
        with kernels.constant_weights():
            return tf.while_loop(lambda index, *_: index < 2, step, start)[2]

    found = last()
    expected = 2 * layer(normal(2, WIDTH), reverse=True)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)  # sums in another order


@pytest.mark.parametrize("kind", ["dense", "tied", "untied", "capped"])
def test_gradients_of_bfloat16(kind):
    layer, call = make(kind, "mixed_bfloat16")
    x = normal(2, 3, WIDTH)

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(call(x), "float32") ** 2)
        return [g for g in tape.gradient(loss, [x, *layer.trainable_variables]) if g is not None]

    for mine, other in zip(compiled(gradients)(x), gradients(x), strict=True):
        assert mine.dtype == other.dtype and mine.shape == other.shape
        error = np.abs(mine - other).max() / np.abs(other).max()
        assert error < 2**-6  # a few roundings to 8 bits


def test_weights_alone_can_be_quantized():
    layer, call = make("tied", "float32")
    x = normal(4, WIDTH)
    exact = call(x)
    layer.quantize(config=keras.quantizers.Int8QuantizationConfig(activation_quantizer=None))
    np.testing.assert_allclose(compiled(call)(x), call(x), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(call(x), exact, atol=0.02)  # 8 bits of the weights


def test_files_of_weights_are_those_of_keras(tmp_path):
    def model(dense, embedding):
        ids = keras.Input((None,), dtype="int32")
        layer = embedding(UNITS, WIDTH)
        return keras.Model(ids, layer(dense(WIDTH, "relu")(layer(ids)), reverse=True))

    saved = model(keras.layers.Dense, keras.layers.ReversibleEmbedding)
    saved.save_weights(tmp_path / "a.weights.h5")
    loaded = model(Dense, ReversibleEmbedding)
    loaded.load_weights(tmp_path / "a.weights.h5")
    outputs = [keras.ops.convert_to_numpy(of(np.arange(6).reshape(2, 3))) for of in (loaded, saved)]
    np.testing.assert_array_equal(*outputs)


def test_low_rank_updates():
    layer, call = make("dense", "bfloat16")
    x = normal(3, WIDTH, dtype="bfloat16")
    before = np.asarray(compiled(call)(x), np.float32)
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.full((2, UNITS), 0.5))
    after = np.asarray(compiled(call)(x), np.float32)
    assert np.abs(after - before).max() > 0.1
    # a few roundings to 8 bits
    np.testing.assert_allclose(after, np.asarray(call(x), np.float32), rtol=2**-6, atol=2**-6)


def test_subclasses_are_not_quantized():
    """As in Keras: they may compute something else."""

    class Own(Dense):
        pass

    layer = Own(3)
    layer.build((None, 2))
    with pytest.raises(NotImplementedError, match="quantize"):
        layer.quantize("int8")
