"""The text classifier: published sizes, pooling and padding."""

import numpy as np
import pytest

import zoo
from tests import contracts
from tests.layers import test_encoder
from tests.layers.test_attention import numpy
from zoo.models.text_classifier import SIZES

SMALL = {**contracts.SIZES, "vocab_size": 20, "num_classes": 3, "max_length": 12}
SETTINGS = {
    "BERT": {},
    "mean": {"pool": "mean"},
    "max": {"pool": "max"},
    "DistilBERT": {"num_token_types": 0, "pooler_activation": "relu"},
    "pre": {"norm": "pre", "pooler": False},
    "relative": {"positions": "relative"},
    "rotary, mean": {"positions": "rotary", "pool": "mean", "norm": "pre"},
    "another padding token": {"pad_id": 19, "pool": "mean"},
}
each_setting = pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
# the same float32 sums in another order
TOLERANCE = 1e-5


def shaken(**settings):
    return test_encoder.shaken(zoo.text_classifier(**{**SMALL, **settings}))


def texts(*lengths):
    random = np.random.default_rng(2)
    return [random.integers(1, 19, length).astype("int32") for length in lengths]


@pytest.mark.parametrize(
    "size, parameters",
    [
        # as Google Research and Hugging Face publish them: 30,522 tokens, without a head
        ("bert_tiny", 4_385_920),
        ("bert_mini", 11_170_560),
        ("bert_small", 28_763_648),
        ("bert_medium", 41_373_184),
        ("bert_base", 109_482_240),
        ("bert_large", 335_141_888),
    ],
)
def test_parameter_counts_are_the_published_ones(size, parameters):
    """Counted in models of one block and few tokens: the whole ones would take gigabytes."""
    model = zoo.text_classifier(size, vocab_size=522, num_classes=1, num_layers=1)
    others = (SIZES[size]["num_layers"] - 1) * model.encoder_blocks[0].count_params()
    others += 30_000 * model.embed_dim
    assert model.count_params() - model.head.count_params() + others == parameters


@each_setting
def test_padding_changes_nothing(settings):
    """Batches have rows without a text, with weight 0: a NaN in them would still spread."""
    model, rows = shaken(**settings), texts(3, 7, 5)
    padded = np.full((3, 11), model.pad_id, "int32")
    for row, text in zip(padded, rows):
        row[: len(text)] = text
    together, features = numpy(model(padded)), numpy(model.features(padded))
    for text, logits, found in zip(rows, together, features):
        np.testing.assert_allclose(numpy(model(text[None]))[0], logits, atol=TOLERANCE)
        alone = numpy(model.features(text[None]))[0]
        np.testing.assert_allclose(found[: len(text)], alone, atol=TOLERANCE)
    assert np.abs(together[0] - together[1]).max() > 0.01
    assert np.isfinite(numpy(model(np.full((2, 4), model.pad_id, "int32")))).all()


@each_setting
def test_the_head_sees_the_pooled_features(settings):
    """The first token, or the mean or maximum of the real ones, with NumPy."""
    model = shaken(**settings)
    [tokens] = texts(6)
    padded = np.append(tokens, [model.pad_id] * 3).astype("int32")[None]
    features = numpy(model.features(padded))[0]
    real = features[:6]
    pooled = {"cls": real[0], "mean": real.mean(axis=0), "max": real.max(axis=0)}[model.pool]
    if model.pooler:
        kernel, bias = map(numpy, (model.pooler_layer.kernel, model.pooler_layer.bias))
        activation = {"tanh": np.tanh, "relu": lambda x: np.maximum(x, 0)}[model.pooler_activation]
        pooled = activation(pooled @ kernel + bias)
    np.testing.assert_allclose(numpy(model.pooled_features(padded))[0], pooled, atol=TOLERANCE)
    logits = pooled @ numpy(model.head.kernel) + numpy(model.head.bias)
    np.testing.assert_allclose(numpy(model(padded))[0], logits, atol=TOLERANCE)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match="Unknown size 'bert_huge'. A size is one of bert_base"):
        zoo.text_classifier("bert_huge", vocab_size=20, num_classes=2)
    for settings, message in (
        ({"pool": "sum"}, "pool='sum'"),
        ({"positions": "none"}, "positions='none'"),
    ):
        with pytest.raises(ValueError, match=message):
            zoo.text_classifier(**{**SMALL, **settings})
    with pytest.raises(ValueError, match="12"):
        zoo.text_classifier(**SMALL)(texts(13)[0][None])
