"""`zoo.load` with another dtype: of every kind of model, as trained and as published."""

import keras
import numpy as np
import pytest

import zoo
from tests.checkpoints.test_text_checkpoints import folder_of
from tests.deploy.small_models import (
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo.errors import UserError

TEXTS = ["The cat sat.", "¿Dónde está el perro?"]


def scores(loaded):
    """What users see, as numbers from 0 to 1."""
    if hasattr(loaded, "preprocessing"):
        shape = loaded.model.input_shape
        return loaded.probabilities([np.random.default_rng(0).integers(0, 256, shape, np.uint8)])
    if hasattr(loaded, "probabilities"):
        return loaded.probabilities(TEXTS)
    if hasattr(loaded, "score"):
        return np.exp(np.asarray(loaded.score(TEXTS, TEXTS[::-1])) / 30)
    tokens = np.asarray([loaded.tokenizer.encode(TEXTS[:1])[0]])
    return keras.ops.softmax(keras.ops.cast(loaded.model(tokens), "float32"))


@pytest.mark.parametrize(
    "make",
    [
        small_classifier,
        lambda: small_classifier(image=(32, 32, 3), make=zoo.resnet),
        small_text_classifier,
        small_translator,
        small_generator,
    ],
)
@pytest.mark.parametrize("dtype", ["bfloat16", "mixed_bfloat16"])
def test_every_run_can_be_loaded_in_half_precision(make, dtype, tmp_path):
    original = make()
    original.save(tmp_path)
    loaded = zoo.load(tmp_path, dtype=dtype)
    assert loaded.model.dtype_policy.name == dtype and loaded.run_folder == tmp_path
    assert loaded.model.compute_dtype == "bfloat16"
    kept = {"bfloat16": "bfloat16", "mixed_bfloat16": "float32"}[dtype]
    assert {v.dtype for v in loaded.model.trainable_weights} == {kept}
    # 8 bits of precision, through two blocks with weights of about 0.3.
    found, expected = scores(loaded), scores(original)
    np.testing.assert_allclose(found, expected, atol=0.06)
    assert np.abs(np.subtract(found, expected)).max() > 1e-6, "computed in float32"


def test_published_weights_can_be_loaded_in_half_precision(tmp_path):
    folder = folder_of(tmp_path, "bert")
    expected, loaded = zoo.load(folder), zoo.load(folder, dtype="bfloat16")
    assert {v.dtype for v in loaded.model.weights} == {"bfloat16"}
    again = zoo.load(folder, dtype="float32", num_classes=7).model
    assert again.num_classes == 7 and again.dtype_policy.name == "float32"
    for mine, other in zip(loaded.model.weights, expected.model.weights, strict=True):
        np.testing.assert_allclose(np.float32(mine), other, rtol=2**-8)


@pytest.mark.parametrize("make", [small_text_classifier, small_translator, small_generator])
def test_an_assigned_model_must_fit(make):
    """The tokenizers of different kinds have vocabularies of different sizes."""
    loaded, other = make(num_layers=1), make(num_layers=1, kind="character").model
    model = loaded.model
    with pytest.raises(ValueError, match="Received a tokenizer with"):
        loaded.model = other
    assert loaded.model is model


@pytest.mark.parametrize("make", [small_translator, small_generator])
def test_an_assigned_model_runs_as_the_one_before(make):
    loaded = make(num_layers=1)
    loaded.jit_compile = False
    loaded.model = make(num_layers=1).model
    assert not loaded.jit_compile


@pytest.mark.parametrize("dtype", ["int8", "half", 16, keras.DTypePolicy("bfloat16")])
def test_an_unknown_dtype_is_refused(tmp_path, dtype):
    with pytest.raises(UserError, match=r"'mixed_float16'\) without an engine. Received"):
        zoo.load(tmp_path, dtype=dtype)
