"""Dense layers and tied embeddings, in TensorFlow's graphs and in programs of XLA."""

import re

import keras
import numpy as np
import pytest

from zoo.layers.linear import Dense, ReversibleEmbedding

tf = pytest.importorskip("tensorflow")
pytestmark = [
    pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="programs of XLA"),
    pytest.mark.xla,
]
WIDTH, UNITS = 48, 80


def dense(dtype, **settings):
    settings = {"bias_initializer": "random_normal", "activation": "tanh", **settings}
    layer = Dense(UNITS, dtype=dtype, **settings)
    layer.build((None, WIDTH))
    return layer


def tied(dtype):
    layer = ReversibleEmbedding(
        UNITS, WIDTH, dtype=dtype, reverse_dtype=keras.DTypePolicy(dtype).name
    )
    layer.build((None, None))
    return lambda x: layer(x, reverse=True)


def of_steps(layer, count=3):
    """A function that applies a layer in a loop, as a search does, to inputs that change."""

    def last(x):
        def step(index, x, _):
            y = layer(x)
            return index + 1, x + tf.cast(y[:, :WIDTH], x.dtype), y

        shape = tf.zeros((x.shape[0], UNITS), layer(x).dtype)
        return tf.while_loop(lambda index, *_: index < count, step, (0, x, shape))[2]

    return last


def inputs(rows, dtype="float32"):
    return tf.cast(np.random.default_rng(rows).normal(size=(rows, WIDTH)), dtype)


def compiled(function):
    return tf.function(function, jit_compile=True, autograph=False)


@pytest.mark.parametrize("make", [dense, tied])
@pytest.mark.parametrize("rows", [1, 5])
def test_bfloat16_is_that_of_graphs(make, rows):
    layer, x = make("bfloat16"), inputs(rows, "bfloat16")
    found, expected = (np.asarray(run(x), np.float32) for run in (compiled(layer), layer))
    exact = np.asarray(layer(tf.cast(x, "float32")), np.float32)
    assert found.shape == (rows, UNITS)
    # one rounding to 8 bits of each result, and of the sum with the bias on either side
    np.testing.assert_allclose(found, expected, rtol=2**-7, atol=2**-6)
    np.testing.assert_allclose(found, exact, rtol=2**-7, atol=2**-6)


@pytest.mark.parametrize("make, dtype", [(dense, "bfloat16"), (dense, "int8"), (tied, "bfloat16")])
def test_no_matrix_is_converted(make, dtype):
    """To float32 or int32, which takes longer than the product."""
    if dtype == "int8":
        layer = make("float32")
        layer.quantize("int8")
    else:
        layer = make(dtype)
    x = inputs(4, "float32" if dtype == "int8" else dtype)
    program = compiled(of_steps(layer)).experimental_get_compiler_ir(x)(stage="optimized_hlo")
    converted = re.findall(rf"[fs]32\[(?:{WIDTH},{UNITS}|{UNITS},{WIDTH})\]", program)
    assert not converted
    assert re.search(rf"(bf16|s8)\[(?:{WIDTH},{UNITS}|{UNITS},{WIDTH})\]", program)


@pytest.mark.parametrize("kind", ["dense", "tied"])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_int8_is_that_of_graphs(kind, rows):
    if kind == "dense":
        layer = call = dense("float32")
    else:
        layer = ReversibleEmbedding(UNITS, WIDTH)
        layer.build((None, None))

        def call(x):
            return layer(x, reverse=True)

    x = inputs(rows)
    exact = np.asarray(call(x))
    layer.quantize("int8")
    found, expected = np.asarray(compiled(call)(x)), np.asarray(call(x))
    # sums of integers are exact; only their scales and the activation are rounded
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
    assert 0 < np.abs(found - exact).max() < 0.05
    in_loop = compiled(of_steps(call)).experimental_get_compiler_ir(x)(stage="optimized_hlo")
    assert not re.findall(rf"s32\[(?:{WIDTH},{UNITS}|{UNITS},{WIDTH})\]", in_loop)


def test_files_of_weights_are_those_of_keras(tmp_path):
    def model(dense, embedding):
        ids = keras.Input((None,), dtype="int32")
        layer = embedding(UNITS, WIDTH)
        return keras.Model(ids, layer(dense(WIDTH, "relu")(layer(ids)), reverse=True))

    saved = model(keras.layers.Dense, keras.layers.ReversibleEmbedding)
    saved.save_weights(tmp_path / "a.weights.h5")
    loaded = model(Dense, ReversibleEmbedding)
    loaded.load_weights(tmp_path / "a.weights.h5")
    tokens = np.arange(6).reshape(2, 3)
    np.testing.assert_array_equal(loaded(tokens), saved(tokens))


def test_gradients_of_bfloat16():
    layer, x = dense("mixed_bfloat16"), inputs(6)

    def gradients(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            loss = tf.reduce_sum(tf.cast(layer(x), "float32") ** 2)
        return tape.gradient(loss, [x, *layer.trainable_variables])

    for mine, other in zip(compiled(gradients)(x), gradients(x), strict=True):
        assert mine.dtype == other.dtype
        error = np.abs(mine - other).max() / np.abs(other).max()
        assert error < 2**-6  # a few roundings to 8 bits


def test_low_rank_updates_and_subclasses():
    layer, x = dense("bfloat16"), inputs(3, "bfloat16")
    before = np.asarray(compiled(layer)(x), np.float32)
    layer.enable_lora(2)
    layer.lora_kernel_b.assign(np.full((2, UNITS), 0.5))
    after = np.asarray(compiled(layer)(x), np.float32)
    assert np.abs(after - before).max() > 0.1
    expected = np.asarray(layer(x), np.float32)
    np.testing.assert_allclose(after, expected, rtol=2**-6, atol=2**-6)

    class Own(Dense):
        pass

    own = Own(3)
    own.build((None, 2))
    with pytest.raises(NotImplementedError, match="quantize"):
        own.quantize("int8")
