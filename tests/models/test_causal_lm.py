"""The causal language model: GPT-2's sizes and numbers, causality, and steps."""

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from tests import contracts
from tests.layers.test_encoder import numpy, shaken
from zoo.models.causal_lm import SIZES as PUBLISHED

# Sums of the same float32 numbers in another order differ by a few units in the last place.
TOLERANCE = {"rtol": 1e-5, "atol": 2e-5}
SIZES = {**contracts.SIZES, "vocab_size": 30, "ff_dim": 24, "max_length": 20}
KINDS = [
    {"positions": "learned"},
    {"positions": "sinusoidal", "norm": "post"},
    {"positions": "relative", "tie_weights": False},
    {"positions": "rotary", "activation": "swiglu"},
    {"positions": "rotary", "norm": "post", "key_dim": 6, "qkv_bias": False},
    {"positions": zoo.layers.SinusoidalPositions("halves", offset=2)},
]
each_kind = pytest.mark.parametrize(
    "settings", KINDS, ids=lambda kind: "-".join(map(str, kind.values())).split(" ")[0]
)


def model_of(**settings):
    return shaken(zoo.causal_lm(**{**SIZES, **settings}))


def ids(*shape, seed=0):
    return np.random.default_rng(seed).integers(3, 30, shape).astype("int32")


@pytest.mark.parametrize(
    "size, parameters",
    [  # as Hugging Face publishes them
        ("gpt2", 124_439_808),
        ("gpt2_medium", 354_823_168),
        ("gpt2_large", 774_030_080),
        pytest.param("gpt2_xl", 1_557_611_200, marks=pytest.mark.slow),
    ],
)
def test_parameter_counts_are_the_published_ones(size, parameters):
    """Counted in models of one block and few tokens: the whole ones would take gigabytes."""
    model = zoo.causal_lm(size, vocab_size=100, num_layers=1)
    blocks = (PUBLISHED[size]["num_layers"] - 1) * model.decoder_blocks[0].count_params()
    assert model.count_params() + blocks + (50257 - 100) * model.embed_dim == parameters


@pytest.mark.parametrize(
    "settings, prompt, hypotheses",
    [
        *((kind, 4, 3) for kind in KINDS),
        *((kind, 0, 3) for kind in KINDS[:1] + KINDS[2:4]),
        (KINDS[2], 1, 1),
    ],
)
def test_steps_equal_the_whole(settings, prompt, hypotheses):
    """Hypotheses change places as in a beam search; each is what it is alone."""
    model, random = model_of(**settings), np.random.default_rng(3)
    written = np.repeat(ids(2, 1, prompt), hypotheses, axis=1)
    cache = model.start(ops.convert_to_tensor(written[:, 0]), 9, hypotheses)
    for _ in range(2):
        tokens = random.integers(3, 30, (2, hypotheses)).astype("int32")
        logits, cache = model.step(ops.convert_to_tensor(tokens), cache)
        written = np.concatenate([written, tokens[:, :, None]], axis=2)
        expected = numpy(model(written.reshape(2 * hypotheses, -1)))[:, -1]
        np.testing.assert_allclose(numpy(logits), expected.reshape(2, hypotheses, -1), **TOLERANCE)
        parents = random.integers(0, hypotheses, (2, hypotheses)).astype("int32")
        cache = cache.reorder(ops.convert_to_tensor(parents))
        written = np.take_along_axis(written, parents[:, :, None], axis=1)


@pytest.mark.skipif(keras.backend.backend() != "tensorflow", reason="graphs of TensorFlow")
@pytest.mark.parametrize("positions", ["learned", "sinusoidal", "relative", "rotary"])
def test_dynamic_dimensions(positions):
    """One graph for all batch sizes, prompts, none included, and lengths."""
    import tensorflow as tf

    model, tokens = model_of(positions=positions, num_layers=1), ids(2, 7)

    @tf.function(
        input_signature=[tf.TensorSpec((None, None), "int32")] * 2 + [tf.TensorSpec((), "int32")]
    )
    def next_logits(before, tokens, length):
        return model.step(tokens, model.start(before, length))[0]

    expected = numpy(model(tokens))
    for prompt, length in ((0, 8), (3, 9)):
        found = next_logits(tokens[:, :prompt], tokens[:, prompt : prompt + 1], length)
        np.testing.assert_allclose(numpy(found)[:, 0], expected[:, prompt], **TOLERANCE)
    assert next_logits.experimental_get_tracing_count() == 1


@each_kind
def test_causality(settings):
    """The logits of a token do not change with later ones, and do with earlier ones."""
    model, tokens = model_of(**settings), np.repeat(ids(1, 7), 7, axis=0)
    before = numpy(model(tokens))
    place = np.arange(7)
    tokens[place, place] = 3 + (tokens[place, place] - 2) % 27  # another one in each row
    change = np.abs(numpy(model(tokens)) - before).max(axis=-1)
    later = np.tri(7, k=-1, dtype=bool)
    assert (change[later] == 0).all() and (change[~later] > 1e-4).all()


def test_texts_longer_than_in_training():
    """What is read does not depend on `max_length`, except for learned positions."""
    model, tokens = model_of(positions="relative", max_length=4), ids(1, 12)
    longer = numpy(model(tokens))
    np.testing.assert_allclose(longer[:, :4], numpy(model(tokens[:, :4])), **TOLERANCE)


@pytest.mark.parametrize(
    "positions, policy",
    [("learned", "mixed_bfloat16"), ("relative", "mixed_bfloat16"), ("rotary", "mixed_float16")],
)
def test_steps_in_mixed_precision(positions, policy):
    """Logits in float32, finite, and those of the whole up to rounding."""
    model = model_of(positions=positions, dtype=policy)
    tokens, scale = ids(2, 9), 0.02 if policy == "mixed_float16" else 0.15
    expected = numpy(model(tokens))
    cache = model.start(ops.convert_to_tensor(tokens[:, :8]), 12)
    logits, _ = model.step(ops.convert_to_tensor(tokens[:, 8:]), cache)
    assert keras.backend.standardize_dtype(logits.dtype) == "float32"
    np.testing.assert_allclose(numpy(logits)[:, 0], expected[:, 8], atol=scale)


@pytest.mark.parametrize(
    "size, settings, message",
    [
        ("gpt3", {}, "Unknown size 'gpt3'.*gpt2, gpt2_medium"),
        (None, {"embed_dim": 16}, "needs num_layers, num_heads"),
        ("gpt2", {"positions": "rotary", "key_dim": 7}, "Received: key_dim=7"),
        ("gpt2", {"num_layers": 0}, "num_layers=0"),
        ("gpt2", {"vocab_size": 0}, "vocab_size=0"),
        *(("gpt2", {"max_length": wrong}, f"max_length={wrong}") for wrong in (0, 12.5, None)),
        ("gpt2", {"positions": "rotary", "num_heads": 0}, "num_heads=0"),
    ],
)
def test_bad_settings(size, settings, message):
    with pytest.raises(ValueError, match=message):
        zoo.causal_lm(size, **{"vocab_size": 8, **settings})


def test_tokens_and_lengths_that_do_not_fit():
    model = zoo.causal_lm(**SIZES)
    for call, message in (
        (lambda: model(ids(1, 21)), "positions for 20 tokens"),
        (lambda: model(ids(3)), "expected ndim=2, found ndim=1"),
        (lambda: model.start(ids(1, 3), np.int64(21)), "20 tokens .* Received: length=21"),
        (lambda: model.start(ids(1, 5), 5), "length=5, 5 tokens"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
