"""LiteRT files answer as the zoo does."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

import zoo
from tests.deploy.small_models import small_classifier, small_translator
from zoo.deploy import litert_format
from zoo.deploy.errors import ExportError
from zoo.text import BOS_ID

pytestmark = pytest.mark.ci

# Sums of a few dozen float32 numbers of the order of 1 to 10, in another order.
TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}


def random_images(classifier, count):
    shape = (count, *classifier.model.input_shape)
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


@pytest.mark.parametrize(
    "options",
    [
        {"num_registers": 2, "layer_scale": 0.3},
        *(
            pytest.param(settings, marks=pytest.mark.slow)
            for settings in (
                {"pool": "mean", "norm": "post", "image": (8, 8, 1), "num_layers": 1},
                {"make": zoo.resnet},
                {"attention": "linear", "positions": "rotary"},
            )
        ),
        {"attention": "blockwise", "positions": "relative", "image": (24, 24, 3), "patch_size": 1},
    ],
)
def test_a_classifier(tmp_path, options):
    classifier = small_classifier(**options)
    report = litert_format.write(classifier, tmp_path)
    assert report["checked"]["largest_difference"] <= report["checked"]["tolerance"]
    interpreter = Interpreter(model_path=str(tmp_path / "model.tflite"))
    run = interpreter.get_signature_runner("serving_default")
    assert run.get_input_details()["pixels"]["dtype"] == np.uint8
    for count in (1, 7):
        images = random_images(classifier, count)
        found = run(pixels=images)["probabilities"]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, classifier.probabilities(list(images)), **TOLERANCE)
    # What the converter has no operation for it makes "Flex" or custom ones.
    operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
    assert not any("flex" in name.lower() or "custom" in name.lower() for name in operations)
    assert len((tmp_path / "labels.txt").read_text("utf-8").splitlines()) == 4


def test_mixed_precision_is_exported_in_float32(tmp_path):
    classifier = small_classifier("mixed_bfloat16", num_layers=1)
    litert_format.write(classifier, tmp_path)
    run = Interpreter(model_path=str(tmp_path / "model.tflite")).get_signature_runner()
    images = random_images(classifier, 5)
    exact = small_classifier(num_layers=1)
    exact.model.set_weights(classifier.model.get_weights())
    found = run(pixels=images)["probabilities"]
    np.testing.assert_allclose(found, exact.probabilities(list(images)), **TOLERANCE)


@pytest.mark.parametrize(
    "options",
    [
        {"positions": "learned", "shared": "all", "activation": "gelu", "num_decoder_layers": 2},
        *(
            pytest.param(settings, marks=pytest.mark.slow)
            for settings in (
                {"norm": "post", "shared": "target", "activation": "relu"},
                {"positions": "relative", "shared": "none", "activation": "silu"},
                {"positions": "rotary", "norm": "pre"},
            )
        ),
    ],
)
def test_steps_equal_the_whole(tmp_path, options):
    """Target tokens one by one, others in each hypothesis, in a buffer larger than needed."""
    translator, beams, size = small_translator(**{"num_layers": 1, **options}), 2, 9
    report = litert_format.write(translator, tmp_path, beam_size=beams)
    assert report["signatures"]["decode"]["inputs"]["paths"]["shape"] == [1, beams, "T"]
    interpreter = Interpreter(model_path=str(tmp_path / "model.tflite"))
    encode, decode = (interpreter.get_signature_runner(name) for name in ("encode", "decode"))
    random, vocab_size = np.random.default_rng(5), translator.source_tokenizer.vocab_size
    for length in (7, 3):
        source = random.integers(3, vocab_size, (1, length), np.int32)
        target = random.integers(3, vocab_size, (beams, 6), np.int32)
        target[:, 0] = BOS_ID
        whole = {"source": np.repeat(source, beams, axis=0), "target": target}
        expected = keras.ops.log_softmax(translator.model(whole))
        memory = encode(source=source)
        state = {"paths": np.zeros((1, beams, size), np.int32)}
        for name in memory.keys() - {"memory_mask"}:
            name = name.replace("memory", "target")
            state[name] = np.zeros((1, 2, size * beams, 8), np.float32)
        for position in range(6):
            tokens = target[None, :, position]
            found = decode(tokens=tokens, position=np.int32(position), **state, **memory)
            np.testing.assert_allclose(found["log_probs"][0], expected[:, position], **TOLERANCE)
            state = {name: found[f"next_{name}"] for name in state}


# The largest size, of that in float32, and the largest mean shifted probability.
LOW_PRECISION = {"float16": (0.65, 5e-3), "int8": (0.45, 0.1)}


@pytest.mark.parametrize("dtype", LOW_PRECISION)
@pytest.mark.parametrize("make", [small_classifier, small_translator])
def test_low_precision(make, dtype, tmp_path):
    """Smaller by far, and a little different."""
    original = make(embed_dim=64, ff_dim=256, num_layers=1)
    largest, shifted = LOW_PRECISION[dtype]
    checked = litert_format.write(original, tmp_path, dtype)["checked"]
    assert 1e-6 < checked["mean_shifted_probability"] < shifted
    size = (tmp_path / "model.tflite").stat().st_size
    assert size < largest * 4 * original.model.count_params()


def test_what_cannot_be_expressed_is_said(tmp_path):
    """Preprocessing of another kind, in operations that LiteRT has not."""
    classifier = small_classifier(num_layers=1)
    preprocessing = classifier.preprocessing

    class Digamma(type(preprocessing)):
        def normalize(self, pixels):
            return tf.math.digamma(1.0 + preprocessing.normalize(pixels) ** 2)

    classifier.preprocessing = Digamma(**vars(preprocessing))
    with pytest.raises(ExportError, match="LiteRT cannot convert this model"):
        litert_format.write(classifier, tmp_path)
