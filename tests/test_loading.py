"""`zoo.load` with another dtype: of every kind of model, as trained and as published."""

import json
import zipfile

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import zoo
from tests.checkpoints.test_text_checkpoints import folder_of
from tests.checkpoints.test_vit_checkpoints import GOOGLE, HUGGING_FACE, write_folder, write_npz
from tests.checkpoints.translation_folders import write_m2m100, write_marian
from tests.deploy.small_models import (
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo.__main__ import main
from zoo.checkpoints import CheckpointError
from zoo.errors import ExportError, UserError

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
    original = make()
    dtype = "mixed_bfloat16" if make is small_translator else "bfloat16"
    original.save(tmp_path)
    loaded = zoo.load(tmp_path, dtype=dtype)
    assert loaded.model.dtype_policy.name == dtype and loaded.run_folder == tmp_path
    assert loaded.model.compute_dtype == "bfloat16"
    kept = {"bfloat16": "bfloat16", "mixed_bfloat16": "float32"}[dtype]
    assert {v.dtype for v in loaded.model.trainable_weights} == {kept}
    # 8 bits of precision, through two blocks with weights of about 0.3.
    found = scores(loaded)
    expected = scores(original)
    np.testing.assert_allclose(found, expected, atol=0.06)
    assert np.abs(np.subtract(found, expected)).max() > 1e-6, "computed in float32"


@pytest.mark.ci
@pytest.mark.parametrize(
    "make, precision",
    [
        (small_translator, "float32"),
        pytest.param(small_generator, "mixed_bfloat16", marks=pytest.mark.slow),
    ],
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
@pytest.mark.parametrize(
    "make", [small_translator, pytest.param(small_generator, marks=pytest.mark.slow)]
)
def test_models_in_int8_are_not_saved_or_converted(make, tmp_path):
    """Rather than lost: Keras would write files that cannot be loaded."""
    make(num_layers=1).save(tmp_path / "run")
    loaded = zoo.load(tmp_path / "run", dtype="int8")
    for save in (loaded.save, lambda folder: loaded.model.save(folder / "model.keras")):
        with pytest.raises(UserError, match='Load it without dtype="int8"'):
            save(tmp_path / "run")
    with pytest.raises(ExportError, match="can (only )?be exported as"):
        zoo.export(loaded, tmp_path / "1", format="ctranslate2")
    assert zoo.load(tmp_path / "run").model.dtype_policy.name == "float32"  # nothing is lost


@pytest.mark.parametrize("make", [small_classifier, small_text_classifier])
def test_classifiers_have_no_int8_without_an_engine(make, tmp_path, capsys):
    make().save(tmp_path)
    assert main(["export", str(tmp_path), str(tmp_path / "1"), "--dtype", "int8"]) == 2
    assert "is for translators and text generators" in capsys.readouterr().err


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
    built = []
    construct = keras.Model.__init__

    def count(self, *args, **kwargs):
        built.append(self)
        construct(self, *args, **kwargs)

    monkeypatch.setattr(keras.Model, "__init__", count)
    loaded = zoo.load(tmp_path / "weights", **options)
    assert built == [loaded.model]


def test_a_task_that_is_saved_beside_published_weights(tmp_path):
    zoo.save_hf(small_classifier(image=(8, 8, 3)), tmp_path / "weights")
    classifier = zoo.load(tmp_path / "weights")
    head = classifier.model.head.bias
    head.assign(head + 1.0)
    classifier.save(tmp_path / "weights")
    loaded = zoo.load(tmp_path / "weights")
    np.testing.assert_array_equal(loaded.model.head.bias, head)


def test_options_that_do_not_fit_a_run(tmp_path):
    small_classifier().save(tmp_path)
    with pytest.raises(
        CheckpointError, match="no place in the model: encoder_1/attention/output_projection/0"
    ):
        zoo.load(tmp_path, num_layers=1)
    with pytest.raises(
        CheckpointError, match="would give encoder_0/feed_forward/.*/kernel the shape"
    ):
        zoo.load(tmp_path, ff_dim=20)
    for dtype in ("int4", "half", 16, keras.DTypePolicy("bfloat16")):
        with pytest.raises(UserError, match=r"'int8'\) without an engine. Received"):
            zoo.load(tmp_path, dtype=dtype)


def test_options_of_runs_without_a_vision_transformer(tmp_path):
    for make, taken in ((small_translator, "dtype and engine"), (small_generator, "dtype")):
        folder = tmp_path / make.__name__
        make(num_layers=1).save(folder)
        with pytest.raises(UserError, match=rf"other than {taken}\. .* Received: dropout\."):
            zoo.load(folder, dropout=0.1)


def unpack(path):
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def pack(path, files):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


@pytest.mark.parametrize(
    "make", [small_classifier, small_text_classifier, small_translator, small_generator]
)
def test_a_config_that_does_not_fit_the_weights(make, tmp_path):
    """Keras would load the weights of a model with fewer layers."""
    weight = "feed_forward/hidden/kernel"
    for changed, message in (
        ({"num_layers": 1}, "coder_1/.* has no place in the model"),
        ({"num_layers": 3}, "contains no (en|de)coder_2/"),
        ({"ff_dim": 20}, rf"{weight} has the shape \(16, 24\) in the file and \(16, 20\) in the"),
    ):
        make().save(tmp_path)
        files = unpack(tmp_path / "model.keras")
        config = json.loads(files["config.json"])
        config["config"].update(changed)
        pack(tmp_path / "model.keras", {**files, "config.json": json.dumps(config)})
        with pytest.raises(CheckpointError, match=f"model.keras does not fit the model.*{message}"):
            zoo.load(tmp_path)


def test_damaged_models_are_named(tmp_path):
    small_generator(num_layers=1).save(tmp_path)
    path = tmp_path / "model.keras"
    content = path.read_bytes()
    middle = len(content) // 2
    damaged = "is damaged, or was not written by Keras"
    for other, reason in (
        (content[:middle], "File is not a zip file"),
        (b"hello", "File is not a zip file"),
        (b"", "File is not a zip file"),
        (content[:middle] + b"other" + content[middle + 5 :], "Bad CRC-32"),
    ):
        path.write_bytes(other)
        with pytest.raises(
            CheckpointError, match=f"model.keras {damaged}: {reason}.*Copy it again"
        ):
            zoo.load(tmp_path)
    for name in ("config.json", "model.weights.h5"):
        path.write_bytes(content)
        files = unpack(path)
        del files[name]
        pack(path, files)
        reason = f"There is no item named '{name}' in the archive"
        with pytest.raises(CheckpointError, match=f"model.keras {damaged}: {reason}"):
            zoo.load(tmp_path)


def vit_folder(folder):
    return write_folder(folder / "model", HUGGING_FACE["vit"])


@pytest.mark.parametrize(
    "write, options",
    [
        (vit_folder, {}),
        (lambda folder: folder_of(folder, "bert"), {}),
        (lambda folder: folder_of(folder, "gpt2"), {}),
        (lambda folder: (write_marian(folder), folder)[1], {}),
        (lambda folder: (write_m2m100(folder), folder)[1], {"src_lang": "en", "tgt_lang": "es"}),
    ],
    ids=["vit", "bert", "gpt2", "marian", "m2m100"],
)
def test_prefixes_of_names_are_removed(write, options, tmp_path, capsys):
    """Prefixes of wrappers are removed; of several models, the averaged one is loaded."""
    folder = write(tmp_path)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    expected = zoo.load(folder, **options)
    other = {n: x + 1 for n, x in tensors.items()}
    for parts, beside in (
        ("module._orig_mod.", {}),
        ("_orig_mod.module.", {}),
        ("model.", {"criterion.weight": np.ones(3, "float32")}),
        ("ema.module.", {f"model.{name}": x for name, x in other.items()}),
    ):
        saved = {parts + name: x for name, x in tensors.items()}
        if "_" in parts:  # also of a part of the model
            saved = {
                n.replace(".weight", "._checkpoint_wrapped_module.weight"): saved[n] for n in saved
            }
        save_file({**saved, **beside}, path)
        found = zoo.load(path if beside else folder, **options).model.weights  # or its file
        for mine, weight in zip(found, expected.model.weights, strict=True):
            np.testing.assert_array_equal(mine, weight)
        assert ("Not used (tensors): criterion (1)." in capsys.readouterr().out) == (
            "crit" in str(beside)
        )


@pytest.mark.parametrize(
    "write",
    [
        vit_folder,
        lambda folder: write_npz(folder / "a.npz", GOOGLE["vision_transformer"]),
        lambda folder: small_classifier(image=(8, 8, 3)).save(folder) or folder,
    ],
    ids=["hugging_face", "google", "run"],
)
def test_channels(write, tmp_path, capsys):
    """Repeated channels give the same logits, except for a single channel, which is the sum."""
    path = write(tmp_path)
    model = zoo.load(path).model
    gray = np.random.default_rng(0).normal(size=(2, *model.input_shape[:2], 1)).astype("float32")
    for channels, factor in ((1, 1), (6, 1), (10, None)):
        loaded = zoo.load(path, input_shape=(*model.input_shape[:2], channels))
        line = f"patches, mean and deviation are adapted from 3 channels to {channels}"
        assert line in capsys.readouterr().out
        assert len(loaded.preprocessing.mean) in (1, channels)
        if factor:  # sums of a few hundred products in another order
            expected = model(np.repeat(gray, 3, -1))
            np.testing.assert_allclose(
                loaded.model(np.repeat(gray, channels, -1)), expected, atol=1e-5
            )
        pixels = np.zeros((9, 9, channels), "uint8")
        assert len(loaded([pixels])) == 1
        if channels > 3:
            with pytest.raises(UserError, match=f"takes arrays of {channels} channels"):
                loaded([pixels[..., :3]])


PATHS = {
    "google/vit-base": "pass hf://google/vit-base;",
    "gpt2": "pass hf://gpt2;",
    "https://hub.example/google/vit-base": "pass hf://google/vit-base;",
    "hf-hub:timm/vit.augreg_in21k": "pass hf://timm/vit.augreg_in21k;",
    **dict.fromkeys(["runs/vit", "/nowhere/vit", "vit.pth", "opus-2020-02-26.zip"]),
}


def test_paths_that_do_not_exist(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    for path, advice in PATHS.items():
        for command in ("info", "classify", "export"):
            others = [] if command == "info" else ["a"]
            assert main([command, path, *others]) == 2
            error = capsys.readouterr().err
            assert "There is no file or folder" in error and (advice or "") in error
            assert ("Nothing is downloaded" in error) == bool(advice)


@pytest.fixture(scope="module")
def vits(tmp_path_factory):
    """The folders of a run and of published weights."""
    folder = tmp_path_factory.mktemp("vits")
    small_classifier(image=(8, 8, 3)).save(folder / "run")
    return folder / "run", vit_folder(folder)


@pytest.mark.parametrize(
    "options",
    [
        *({"input_shape": x} for x in ((-8, -8), (8.0, 8), "ab", (8,), (8, 8, 0), 8)),
        *({"input_shape": x} for x in ((10**6, 10**6), (8, 8, 3, 1), (None, 8), (9, 9, 3))),
        *({"num_classes": x} for x in (-1, 2.5, "7", 10**12)),
        *({"num_layers": x} for x in (0, "x", 10**6)),
        *({name: 10**12} for name in ("ff_dim", "embed_dim")),
        {"layer_scale": "x"},
        {"ema": "x"},
        {"dropout": "x"},
        {"other": 1},
    ],
    ids=str,
)
def test_unknown_options(options, vits):
    for path in vits:
        with pytest.raises(UserError, match=next(iter(options))):
            zoo.load(path, **options)
