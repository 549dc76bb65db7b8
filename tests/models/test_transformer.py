"""The translation Transformer: its parts fit, it looks where it may, and steps equal the whole."""

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from tests import contracts
from tests.layers.test_attention import numpy
from zoo.models.copying import copy_model
from zoo.models.transformer import SIZES as PUBLISHED

# Sums of the same float32 numbers in another order differ by a few units in the last place.
TOLERANCE = 1e-5
SIZES = {**contracts.SIZES, "source_vocab_size": 30, "target_vocab_size": 30}
SIZES |= {"ff_dim": 24, "max_length": 20}
each_kind = pytest.mark.parametrize(
    "settings",
    [
        {"positions": "sinusoidal", "norm": "post", "shared": "all"},
        {"positions": "learned", "norm": "pre", "shared": "target", "activation": "gelu"},
        {"positions": "relative", "norm": "pre", "shared": "none", "decoder_num_heads": 4},
        {"positions": "relative", "norm": "post", "num_decoder_layers": 1},
        {"positions": "rotary", "activation": "silu", "decoder_num_heads": 4},
        {"decoder": "ssru", "norm": "post", "num_decoder_layers": 1},
        {
            "positions": zoo.layers.SinusoidalPositions("halves", offset=2),
            "logits_bias": True,
            "normalize_embeddings": True,
            "scale_embeddings": False,
            "key_dim": 5,
            "activation": "swiglu",
        },
    ],
    ids=lambda settings: "-".join(map(str, settings.values())).split(" ")[0][:40],
)


def model_of(**settings):
    keras.utils.set_random_seed(0)
    model = zoo.transformer(**{**SIZES, **settings})
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(variable + random.normal(0.0, 0.2, variable.shape))
    return model


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(3, 30, shape).astype("int32")


def logits_of(model, source, target):
    return numpy(model({"source": source, "target": target}))


@each_kind
def test_hypotheses_that_follow_each_other(settings):
    """Three hypotheses change places as in a beam search; each is what it is alone."""
    model, source, random = model_of(**settings), ids(2, 5), np.random.default_rng(3)
    source[1, 3:] = 0
    cache = model.start(ops.convert_to_tensor(source), 8, 3)
    written = np.zeros((2, 3, 0), "int32")
    for _ in range(2):
        tokens = random.integers(3, 30, (2, 3)).astype("int32")
        logits, cache = model.step(ops.convert_to_tensor(tokens), cache)
        written = np.concatenate([written, tokens[:, :, None]], axis=2)
        expected = logits_of(model, np.repeat(source, 3, axis=0), written.reshape(6, -1))[:, -1]
        expected = expected.reshape(2, 3, -1)
        np.testing.assert_allclose(numpy(logits), expected, atol=TOLERANCE, rtol=1e-5)
        parents = random.integers(0, 3, (2, 3)).astype("int32")
        cache = cache.reorder(ops.convert_to_tensor(parents))
        written = np.take_along_axis(written, parents[:, :, None], axis=1)


@each_kind
def test_the_mask_is_the_sources(settings):
    """What stands in a source's padding, and in another sentence of the batch, does not matter."""
    model, source, target = model_of(**settings), ids(2, 6), ids(2, 5, seed=1)
    source[0, 4:] = 0
    both = logits_of(model, source, target)
    alone = logits_of(model, source[:1, :4], target[:1])
    np.testing.assert_allclose(both[:1], alone, atol=TOLERANCE, rtol=1e-5)
    maps = numpy(model.cross_attention_maps({"source": source, "target": target}))
    heads = settings.get("decoder_num_heads", 2)
    assert maps.shape == (2, len(model.decoder_blocks), heads, 5, 6)
    assert (maps[0, ..., 4:] == 0).all() and (maps[1] > 0).all()
    np.testing.assert_allclose(maps.sum(axis=-1), 1.0, atol=TOLERANCE)


@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method")
def test_a_layer_of_positions_is_saved_with_the_model(tmp_path):
    positions = zoo.layers.SinusoidalPositions("halves", max_wavelength=100.0, offset=2)
    model = model_of(positions=positions)
    model.save(tmp_path / "model.keras")
    twin = keras.saving.load_model(tmp_path / "model.keras")
    found = logits_of(twin, ids(2, 4), ids(2, 3))
    np.testing.assert_allclose(found, logits_of(model, ids(2, 4), ids(2, 3)), atol=TOLERANCE)
    other = model_of()
    other.set_weights(model.get_weights())
    assert np.abs(logits_of(other, ids(2, 4), ids(2, 3)) - found).max() > 1e-3
    # Keras quantizes no model with layers that are not built; the argument is a layer, too
    model.quantize("int8")
    assert np.isfinite(logits_of(model, ids(2, 4), ids(2, 3))).all()


def test_a_subclass_of_positions():
    @keras.saving.register_keras_serializable("tests")
    class Faded(zoo.layers.SinusoidalPositions):
        def __init__(self, gain=1.0, **kwargs):
            super().__init__(**kwargs)
            self.gain = gain

        def call(self, x, start=0):
            return x + self.gain * (super().call(x, start=start) - x)

    plain, none = model_of(), model_of(positions=Faded(gain=0.0))
    none.set_weights(plain.get_weights())
    tokens = np.array([[5, 7]])
    found = numpy(none.decoder_embedding(tokens))[0]
    table = numpy(none.decoder_embedding.tokens.embeddings)
    np.testing.assert_allclose(found, table[[5, 7]] * 4, atol=1e-5)


def test_float_ids_are_not_rounded():
    """Such as those of a `keras.Input` without dtype, also in mixed precision."""
    sizes = {**SIZES, "source_vocab_size": 600, "target_vocab_size": 600}
    model = zoo.transformer(**sizes, dtype="mixed_bfloat16")
    source = np.array([[257, 258, 511, 599]])
    expected = logits_of(model, source, source)
    found = logits_of(model, source.astype("float32"), source.astype("float32"))
    np.testing.assert_array_equal(found, expected)


def test_a_functional_model_of_the_encoder():
    model, inputs = model_of(), keras.Input((None,), dtype="int32")
    encoder = keras.Model(inputs, model.encode(inputs))
    source = ids(2, 5)
    np.testing.assert_allclose(numpy(encoder(source)), numpy(model.encode(source)), atol=TOLERANCE)


def test_embeddings_and_logits():
    model = model_of(dropout=0.0, scale_embeddings=True)
    table = numpy(model.decoder_embedding.tokens.embeddings)
    x = np.random.default_rng(0).normal(size=(2, 3, 16)).astype("float32")
    np.testing.assert_allclose(numpy(model.logits(x)), x @ table.T, rtol=1e-5, atol=1e-5)
    tokens = np.array([[5, 7]])
    positions = numpy(zoo.layers.sinusoidal_positions(2, 16))
    embedded = numpy(model.decoder_embedding(tokens))
    np.testing.assert_allclose(embedded[0], table[[5, 7]] * 4 + positions, atol=1e-5)
    unscaled = model_of(dropout=0.0, scale_embeddings=False)
    unscaled.set_weights(model.get_weights())
    embedded = numpy(unscaled.decoder_embedding(tokens))
    np.testing.assert_allclose(embedded[0], table[[5, 7]] + positions, atol=1e-5)


def test_initial_embeddings_have_unit_variance_when_scaled():
    model = zoo.transformer(**{**SIZES, "source_vocab_size": 2000, "embed_dim": 64})
    table = numpy(model.encoder_embedding.tokens.embeddings)
    assert np.std(table) * 8 == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize(
    "size, shared, count",
    [
        # One matrix for all, 37,000 x 512; 6 x 3,152,384 in the encoder and 6 x 4,204,032 in the
        # decoder: attention 4 (512² + 512), feed-forward 2 · 512 · 2048 + 2560, norms 2 · 512 each.
        ("base", "all", 18_944_000 + 44_138_496),
        ("base", "target", 2 * 18_944_000 + 44_138_496),
        # the same sums for widths of 1024 and 4096
        pytest.param("big", "all", 37_888_000 + 176_357_376, marks=pytest.mark.slow),
    ],
)
def test_sizes_are_those_of_the_paper(size, shared, count):
    """Table 3: 65 and 213 million parameters with 37,000 shared tokens; rates of dropout.

    Counted in models of one layer and a tenth of the tokens, which take less memory.
    """
    sizes = {"source_vocab_size": 3_700, "target_vocab_size": 3_700, "num_layers": 1}
    model = zoo.transformer(size, shared=shared, **sizes)
    assert model.dropout == {"base": 0.1, "big": 0.3}[size]
    layer = model.encoder_blocks[0].count_params() + model.decoder_blocks[0].count_params()
    embeddings = 9 * 3_700 * model.embed_dim * (1 if shared == "all" else 2)
    assert model.count_params() + (PUBLISHED[size]["num_layers"] - 1) * layer + embeddings == count


def test_size_of_t5():
    """76,961,152 parameters with 32,128 tokens, counted in a model of one layer and 128 tokens."""
    sizes = {"source_vocab_size": 128, "target_vocab_size": 128, "num_layers": 1}
    model = zoo.transformer("t5_1.1_small", **sizes)
    layer = model.encoder_blocks[0].count_params() + model.decoder_blocks[0].count_params()
    others = 7 * layer + 2 * 32_000 * 512
    assert model.count_params() + others == 76_961_152


@pytest.mark.parametrize(
    "size, settings, message",
    [
        ("huge", {}, "Unknown size 'huge'.*base, big"),
        (None, {"embed_dim": 16}, "needs num_layers, num_heads"),
        ("base", {"positions": "rotating"}, "positions must be one of"),
        ("base", {"shared": "both"}, "shared must be one of"),
        ("base", {"shared": "all", "target_vocab_size": 9}, "equal vocabulary sizes"),
        ("base", {"num_decoder_layers": 0}, "num_decoder_layers=0"),
        ("base", {"decoder": "gru"}, "decoder must be one of"),
        ("student_tiny", {"positions": "rotary"}, "attention='ssru' do not .* positions='rotary'"),
    ],
)
def test_bad_settings(size, settings, message):
    with pytest.raises(ValueError, match=message):
        zoo.transformer(size, **{"source_vocab_size": 8, "target_vocab_size": 8, **settings})


def test_in_mixed_precision_the_weights_of_the_tied_output_layer_are_not_rounded():
    """It multiplies in float32, also where it is called on its own, as in a step."""
    model = zoo.transformer(**SIZES, shared="target", dtype="mixed_bfloat16")
    hidden = np.random.default_rng(0).normal(size=(2, 1, SIZES["embed_dim"])).astype("float32")
    matrix = numpy(model.decoder_embedding.tokens.embeddings)
    found = numpy(model.decoder_embedding.tokens(hidden, reverse=True))
    np.testing.assert_allclose(found, hidden @ matrix.T, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_lora_on_a_tied_embedding(dtype):
    model = zoo.transformer(**SIZES, shared="target", dtype=dtype)
    before = numpy(model({"source": ids(2, 7), "target": ids(2, 3)}))
    model.decoder_embedding.tokens.enable_lora(2)
    after = numpy(model({"source": ids(2, 7), "target": ids(2, 3)}))
    # where the sum with the update is rounded to 8 bits once more, logits of up to 3
    tolerance = 3 * 2**-8 if dtype == "mixed_bfloat16" else 1e-6
    np.testing.assert_allclose(after.astype("float64"), before.astype("float64"), atol=tolerance)


def test_a_copy_has_the_updates_of_lora():
    model = zoo.transformer(**SIZES, shared="target")
    for layer in (model.decoder_embedding.tokens, model.encoder_blocks[0].feed_forward.hidden):
        layer.enable_lora(2)
        changed = [v for v in layer.weights if v.name in ("lora_kernel_b", "lora_embeddings_b")]
        changed[0].assign(np.ones(changed[0].shape))
    source, target = ids(2, 7), ids(2, 3, seed=1)
    found = logits_of(copy_model(model), source, target)
    np.testing.assert_allclose(found, logits_of(model, source, target), atol=TOLERANCE, rtol=1e-5)


def test_relative_positions_of_a_decoder_tell_all_earlier_distances_apart():
    """Keys after the query, which it may not attend to, have no buckets of their own there."""
    model = model_of(positions="relative")
    distances = np.arange(200)
    for layer, buckets in ((model.encoder_positions, 16), (model.decoder_positions, 32)):
        layer.embeddings.assign(np.arange(32.0)[:, None] + np.zeros(layer.embeddings.shape))
        earlier = numpy(layer(distances[None, -1:], distances[None]))[0, 0]
        assert len(np.unique(earlier)) == buckets
