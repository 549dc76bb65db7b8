"""Published CLIP and SigLIP: encoders of images, and zero-shot classifiers of class texts.

The expected outputs are those of transformers, which tests/parity/record_hugging_face.py records.
"""

import json
import re

import numpy as np
import PIL.Image
import pytest

import zoo
from tests.checkpoints import clip_folders, drawn, text_folders
from tests.checkpoints.clip_folders import TEXTS
from tests.checkpoints.test_vit_checkpoints import GOLDENS
from zoo.__main__ import main
from zoo.checkpoints import CheckpointError
from zoo.errors import UserError
from zoo.tasks.encoder import ImageEncoder

KINDS = json.loads((GOLDENS / "hugging_face_clip.json").read_text())["kinds"]
IMAGES = drawn.images(32, 32)


def write_folder(folder, kind, without=(), **settings):
    """Hugging Face's layout, with other settings of the tokenizer."""
    golden = KINDS[kind]
    text_folders.write(folder, golden["config"], golden["shapes"], {}, without)
    clip_folders.write_tokenizer(folder, {**golden["tokenizer"], **settings})
    return folder


def probabilities(kind):
    logits = np.array(KINDS[kind]["outputs"])
    if kind != "CLIP":
        return 1 / (1 + np.exp(-logits))
    powers = np.exp(logits)
    return powers / powers.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("kind", KINDS)
def test_zero_shot_classification(kind, tmp_path):
    folder = write_folder(tmp_path / "model", kind)
    classifier = zoo.load(folder, classes=TEXTS)
    logits = np.array(KINDS[kind]["outputs"])
    assert np.ptp(logits, axis=0).max() > 0.02
    np.testing.assert_allclose(classifier.model(IMAGES), logits, atol=1e-4)
    expected = probabilities(kind)
    np.testing.assert_allclose(classifier.outputs(IMAGES), expected, atol=1e-4)
    assert classifier.class_names == TEXTS
    assert classifier.problem == ("single_label" if kind == "CLIP" else "multi_label")

    classifier.save(tmp_path / "saved")
    loaded = zoo.load(tmp_path / "saved")
    np.testing.assert_array_equal(loaded.outputs(IMAGES), classifier.outputs(IMAGES))
    assert (loaded.class_names, loaded.problem) == (TEXTS, classifier.problem)
    rounded = zoo.load(folder, classes=TEXTS, dtype="bfloat16").outputs(IMAGES)
    np.testing.assert_allclose(rounded, expected, atol=0.05)
    larger = zoo.load(folder, classes=TEXTS, input_shape=(48, 40)).outputs(drawn.images(48, 40))
    assert larger.shape == expected.shape


@pytest.mark.parametrize("kind", KINDS)
def test_an_encoder_and_a_new_head(kind, tmp_path, capsys):
    folder = write_folder(tmp_path, kind)
    encoder = zoo.load(folder)
    assert isinstance(encoder, ImageEncoder)
    assert "for zero-shot classification, pass classes" in capsys.readouterr().out
    features = encoder.outputs(IMAGES)
    assert features.shape == (2, 20 if kind == "CLIP" else 24)
    unit = zoo.load(folder, classes=["a cat"]).model.pooled_features(IMAGES)
    lengths = np.linalg.norm(features, axis=-1, keepdims=True)
    np.testing.assert_allclose(unit, features / lengths, atol=1e-5)
    classifier = zoo.load(folder, num_classes=7)
    assert classifier.outputs(IMAGES).shape == (2, 7)
    np.testing.assert_allclose(classifier.model.pooled_features(IMAGES), features, atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    [pytest.param("CLIP", marks=pytest.mark.ci), pytest.param("SigLIP", marks=pytest.mark.slow)],
)
def test_an_exported_classifier(kind, tmp_path):
    classifier = zoo.load(write_folder(tmp_path / "model", kind), classes=TEXTS[:3])
    zoo.export(classifier, tmp_path / "export")  # compares the outputs
    assert (tmp_path / "export" / "saved_model.pb").is_file()


@pytest.mark.parametrize(
    "kind",
    [pytest.param("SigLIP", marks=pytest.mark.ci), pytest.param("CLIP", marks=pytest.mark.slow)],
)
def test_classes_of_the_command_line(kind, tmp_path, capsys):
    folder = str(write_folder(tmp_path / "model", kind))
    texts = ["a cat", "dogs, on a couch", "x"]
    flags = [f"--classes={text}" for text in texts]
    classifier = zoo.load(folder, classes=texts)
    images = np.random.default_rng(0).integers(0, 256, (6, 40, 40, 3), np.uint8)
    expected = classifier(images, top_k=1)
    best = [name for [(name, _)] in expected]
    for index, image in enumerate(images):
        path = tmp_path / "images" / best[index] / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(image).save(path)
        if index == 0:
            assert main(["classify", folder, str(path), "--top-k", "1", *flags]) == 0
            assert capsys.readouterr().out.strip().split("\t")[1].startswith(best[0])
    assert main(["evaluate", folder, str(tmp_path / "images"), *flags]) == 0
    assert re.search("accuracy +100.00%", capsys.readouterr().out)
    assert main(["export", folder, str(tmp_path / "export"), *flags]) == 0
    exported = json.loads((tmp_path / "export" / "export.json").read_text())
    assert texts == exported["class_names"]


@pytest.mark.parametrize(
    "options, message",
    [
        ({"classes": ["a"], "num_classes": 3}, "and no num_classes"),
        ({"classes": "a cat"}, "Texts must be a list of str"),
        ({"classes": ["a", 1]}, "Item 1 is of type int"),
        ({"classes": []}, "classes must have at least one text"),
        ({"classes": ["a cat " * 30]}, "has .* tokens, and the model takes 24"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_classes_that_cannot_be_used(kind, options, message, tmp_path):
    with pytest.raises(UserError, match=message):
        zoo.load(write_folder(tmp_path, kind), **options)


def test_classes_need_a_text_encoder_and_its_tokenizer(tmp_path):
    texts = [name for name in KINDS["CLIP"]["shapes"] if name.startswith("text_")]
    folder = write_folder(tmp_path / "a", "CLIP", without=texts)
    with pytest.raises(CheckpointError, match="classes need a text encoder in the folder"):
        zoo.load(folder, classes=["a"])
    assert zoo.load(folder).model.num_classes == 0
    folder = write_folder(tmp_path / "b", "CLIP", tokenizer_class="XLMRobertaTokenizer")
    with pytest.raises(CheckpointError, match="the tokenizer XLMRobertaTokenizer of texts is not"):
        zoo.load(folder, classes=["a"])
    vit = zoo.vit("Ti/4", input_shape=(8, 8, 3), num_classes=2, num_layers=1)
    images = zoo.load(folder).preprocessing.with_shape((8, 8, 3))
    zoo.tasks.classifier.ImageClassifier(vit, images, ["a", "b"]).save(tmp_path / "run")
    with pytest.raises(UserError, match="classes is not an option"):
        zoo.load(tmp_path / "run", classes=["a"])


@pytest.mark.parametrize(
    "kind, settings, message",
    [
        ("CLIP", {"eos_token_id": 7}, "texts do not end with eos_token_id=7"),
        ("CLIP", {"layer_norm_eps": None}, "epsilon must be a finite number"),
        ("CLIP", {"hidden_act": "mish"}, "the activation 'mish' is not supported"),
        ("SigLIP", {"hidden_size": 23}, "num_heads must divide embed_dim|does not fit"),
    ],
)
def test_settings_of_texts_that_do_not_fit(kind, settings, message, tmp_path):
    folder = write_folder(tmp_path, kind)
    config = json.loads((folder / "config.json").read_text())
    config["text_config"] |= settings
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match=message):
        zoo.load(folder, classes=["a cat"])


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs=.* is not supported"),
        ({"padding_side": "both"}, "padding_side='both' is not supported"),
    ],
)
def test_settings_of_tokenizers_that_are_not_supported(settings, message, tmp_path):
    with pytest.raises(CheckpointError, match=message):
        zoo.load(write_folder(tmp_path, "SigLIP", **settings), classes=["a cat"])


def test_variable_resolution_is_not_supported(tmp_path):
    """SigLIP 2 has a model of its own type for it, NaFlex."""
    folder = write_folder(tmp_path, "SigLIP 2")
    config = {**KINDS["SigLIP 2"]["config"], "model_type": "siglip2"}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="the model 'siglip2' is not supported"):
        zoo.load(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_damaged_folders(kind, tmp_path):
    """Some tensors missing, and each file missing or cut to a half."""
    write_folder(tmp_path, kind)
    shapes = KINDS[kind]["shapes"]
    for name in [*shapes][:: len(shapes) // 9]:
        write_folder(tmp_path, kind, without=[name])
        with pytest.raises(CheckpointError):
            zoo.load(tmp_path, classes=["a"])
    write_folder(tmp_path, kind)
    for path in sorted(tmp_path.iterdir()):
        content = path.read_bytes()
        path.unlink()
        if kind != "CLIP" or path.name != "tokenizer_config.json":
            with pytest.raises((CheckpointError, FileNotFoundError)):
                zoo.load(tmp_path, classes=["a"])
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(CheckpointError):
            zoo.load(tmp_path, classes=["a"])
        path.write_bytes(content)
