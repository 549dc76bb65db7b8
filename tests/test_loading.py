"""`zoo.load` with another dtype: of every kind of model, as trained and as published."""

import json

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
from zoo.__main__ import main
from zoo.checkpoints import CheckpointError
from zoo.deploy.errors import ExportError
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
    "make", [small_classifier, small_text_classifier, small_translator, small_generator]
)
def test_every_run_can_be_loaded_in_half_precision(make, tmp_path):
    original, dtype = make(), "mixed_bfloat16" if make is small_translator else "bfloat16"
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


@pytest.mark.ci
@pytest.mark.parametrize(
    "make, precision", [(small_translator, "float32"), (small_generator, "mixed_bfloat16")]
)
def test_models_that_write_text_can_be_loaded_in_int8(make, precision, tmp_path, recwarn):
    original = make(precision=precision, num_layers=1)
    original.save(tmp_path)
    loaded = zoo.load(tmp_path, dtype="int8")
    # but for those of positions
    names = ("kernel", "embedding/embeddings")
    matrices = [v for v in loaded.model.variables if v.path.endswith(names)]
    assert len(matrices) >= 6 and {v.dtype for v in matrices} == {"int8"}
    assert not [w for w in recwarn if "quantize" in str(w.message)]
    # 8 bits of each input and weight, through blocks with weights of about 0.3
    np.testing.assert_allclose(scores(loaded), scores(original), atol=0.06)
    if make is small_generator:
        folder = zoo.export(loaded, tmp_path / "export")
        assert json.loads((folder / "export.json").read_text())["dtype"] == "int8"
        assert "quantized to 8 bits" in (folder / "README.md").read_text()


@pytest.mark.ci
@pytest.mark.parametrize("make", [small_translator, small_generator])
def test_models_in_int8_are_not_saved_or_converted(make, tmp_path):
    """Rather than lost: Keras would write files that cannot be loaded."""
    make(num_layers=1).save(tmp_path / "run")
    loaded = zoo.load(tmp_path / "run", dtype="int8")
    for save in (loaded.save, lambda folder: loaded.model.save(folder / "model.keras")):
        with pytest.raises(UserError, match='load it without dtype="int8"'):
            save(tmp_path / "run")
    with pytest.raises(ExportError, match="can be exported as"):
        zoo.export(loaded, tmp_path / "1", format="ctranslate2")
    assert zoo.load(tmp_path / "run").model.dtype_policy.name == "float32"  # nothing is lost


@pytest.mark.ci
@pytest.mark.xla
def test_compiled_searches_find_the_same_in_int8(tmp_path):
    small_translator(shared="all", num_layers=1).save(tmp_path)
    loaded = zoo.load(tmp_path, dtype="int8")
    found = loaded.n_best(TEXTS, n=1, beam_size=4)
    loaded.jit_compile = False
    expected = loaded.n_best(TEXTS, n=1, beam_size=4)
    for [one], [other] in zip(found, expected, strict=True):
        assert one.text == other.text
        # Sums of integers are exact, and all else is rounded to 24 bits.
        assert one.score == pytest.approx(other.score, abs=1e-4)


@pytest.mark.parametrize("make", [small_classifier, small_text_classifier])
def test_classifiers_have_no_int8_without_an_engine(make, tmp_path, capsys):
    make().save(tmp_path)
    assert main(["export", str(tmp_path), str(tmp_path / "1"), "--dtype", "int8"]) == 2
    assert "is for translators and text generators" in capsys.readouterr().err


def test_published_weights_can_be_loaded_in_half_precision(tmp_path):
    folder = folder_of(tmp_path, "bert")
    expected, loaded = zoo.load(folder), zoo.load(folder, dtype="bfloat16")
    assert {v.dtype for v in loaded.model.weights} == {"bfloat16"}
    again = zoo.load(folder, dtype="float32", num_classes=7).model
    assert again.num_classes == 7 and again.dtype_policy.name == "float32"
    for mine, other in zip(loaded.model.weights, expected.model.weights, strict=True):
        np.testing.assert_allclose(np.float32(mine), other, rtol=2**-8)


HEAD = {"num_classes": 7, "dtype": "bfloat16", "input_shape": (16, 16)}


@pytest.mark.parametrize(
    "write, options",
    [
        (lambda folder: small_classifier().save(folder), HEAD),
        (lambda folder: small_text_classifier().save(folder), {"dtype": "mixed_bfloat16"}),
        (lambda folder: small_translator(num_layers=1).save(folder), {"dtype": "bfloat16"}),
        (lambda folder: small_generator("bfloat16", num_layers=1).save(folder), {"dtype": "int8"}),
        (lambda folder: zoo.save_hf(small_classifier(image=(8, 8, 3)), folder), HEAD),
        (lambda folder: folder_of(folder.parent, "bert").rename(folder), {"dtype": "bfloat16"}),
        (lambda folder: folder_of(folder.parent, "gpt2").rename(folder), {"dtype": "bfloat16"}),
    ],
    ids=["vit run", "text run", "translator run", "generator run", "published vit", "bert", "gpt2"],
)
def test_a_model_is_built_once(write, options, tmp_path, monkeypatch):
    write(tmp_path / "weights")
    built, construct = [], keras.Model.__init__

    def count(self, *args, **kwargs):
        built.append(self)
        construct(self, *args, **kwargs)

    monkeypatch.setattr(keras.Model, "__init__", count)
    loaded = zoo.load(tmp_path / "weights", **options)
    assert built == [loaded.model]


def test_options_that_do_not_fit_a_run(tmp_path):
    small_classifier().save(tmp_path)
    with pytest.raises(CheckpointError, match="arrays, the model with these options"):
        zoo.load(tmp_path, num_layers=1)
    with pytest.raises(CheckpointError, match="does not fit the options"):
        zoo.load(tmp_path, ff_dim=20)
    for dtype in ("int4", "half", 16, keras.DTypePolicy("bfloat16")):
        with pytest.raises(UserError, match=r"'int8'\) without an engine. Received"):
            zoo.load(tmp_path, dtype=dtype)
