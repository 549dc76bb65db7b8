"""What is far larger than its file is refused before it is unpacked or built."""

import contextlib
import functools
import gzip
import json
import zipfile

import keras
import numpy as np
import pytest

import zoo
from tests.checkpoints import test_metadata
from tests.checkpoints.test_marian import write
from tests.checkpoints.test_tensors import GOLDENS
from tests.checkpoints.test_text_checkpoints import folder_of
from tests.checkpoints.translation_folders import write_marian
from tests.deploy.small_models import (
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo import files
from zoo.checkpoints import CheckpointError
from zoo.checkpoints.tensor_files import read_file
from zoo.commands.info import info
from zoo.data.text_rows import read_lines

KINDS = (small_classifier, small_text_classifier, small_translator, small_generator)


def with_members(path, kind=zipfile.ZIP_STORED, **changed):
    """Writes an archive again, with other members."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", kind) as archive:
        for name, content in {**members, **changed}.items():
            archive.writestr(name, content)


@pytest.fixture
def small_limit(monkeypatch):
    """As if a file might have no more than 1 MB in any case, in place of 256 MiB."""
    monkeypatch.setattr(files, "_MAX_SMALL", 10**6)


ZEROS = bytes(100_000_000)


@pytest.mark.parametrize(
    "make", [*KINDS, functools.partial(small_classifier, positions="relative_table")]
)
def test_a_run_with_a_config_of_a_huge_model(make, tmp_path, monkeypatch):
    make().save(tmp_path)
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        config = json.loads(archive.read("config.json"))
    monkeypatch.setattr(keras.saving, "deserialize_keras_object", pytest.fail)
    vocab = "target_vocab_size" if make is small_translator else "vocab_size"
    for name, value in (
        ("num_layers", 100_000),
        ("num_layers", 1000),
        ("embed_dim", 10**6),
        ("ff_dim", 10**7),
        (vocab, 10**9),
        ("num_layers", "many"),
        ("input_shape", [10**9, 10**9, 3]),
        ("input_shape", [10_000, 10_000, 3]),
        ("patch_size", 10_000),
        ("key_dim", 10**5),
        ("num_classes", 10**5),
        ("num_class_tokens", 10**5),
        ("num_registers", 10**5),
        ("representation_dim", 10**5),
        ("num_token_types", 10**5),
        ("max_length", 10**5),
        ("decoder_ff_dim", 10**5),
        ("num_decoder_layers", 1000),
    ):
        # sinusoidal positions have no weights
        if name not in config["config"] or (name == "max_length" and make is small_translator):
            continue
        changed = {**config, "config": {**config["config"], name: value}}
        with_members(tmp_path / "model.keras", **{"config.json": json.dumps(changed)})
        with pytest.raises(CheckpointError, match=f"{name} must be|does not fit the model that"):
            zoo.load(tmp_path)


def test_published_weights_with_a_config_of_a_huge_model(tmp_path):
    for kind in ("marian", "bert", "gpt2"):
        (tmp_path / kind).mkdir()
    write_marian(tmp_path / "marian")
    folders = {"m": tmp_path / "marian"}
    folders["b"] = folder_of(tmp_path / "bert", "bert")
    folders["g"] = folder_of(tmp_path / "gpt2", "gpt2")
    for folder, name, value in (
        ("m", "encoder_layers", 900),
        ("m", "decoder_layers", 900),
        ("m", "decoder_ffn_dim", 65_536),
        ("b", "num_hidden_layers", 900),
        ("b", "max_position_embeddings", 10**5),
        ("b", "intermediate_size", 65_536),
        ("g", "n_layer", 900),
        ("g", "n_inner", 65_536),
    ):
        path = folders[folder] / "config.json"
        text = path.read_text()
        path.write_text(json.dumps({**json.loads(text), name: value}))
        with pytest.raises(CheckpointError, match="must be|which would have more than"):
            zoo.load(path.parent)
        path.write_text(text)


def test_archives_that_expand(tmp_path, small_limit):
    deflated = zipfile.ZIP_DEFLATED
    path = tmp_path / "model.pth"
    path.write_bytes((GOLDENS / "torch_new.pth").read_bytes())
    read_file(path)
    with zipfile.ZipFile(path, "a", deflated) as archive:
        archive.writestr("archive/data/99", ZEROS)
    with pytest.raises(CheckpointError, match="model.pth would be unpacked to 100,"):
        read_file(path)
    np.savez_compressed(tmp_path / "a.npz", a=np.zeros(10**8, "uint8"))
    with pytest.raises(CheckpointError, match="a.npz would be unpacked to 100,"):
        read_file(tmp_path / "a.npz")
    write(tmp_path / "m", "npz")
    with zipfile.ZipFile(tmp_path / "m.zip", "w", deflated) as archive:
        for file in (tmp_path / "m").iterdir():
            archive.write(file, file.name)
    zoo.load(tmp_path / "m.zip")
    with zipfile.ZipFile(tmp_path / "m.zip", "a", deflated) as archive:
        archive.writestr("large.bin", ZEROS)
    with pytest.raises(CheckpointError, match="m.zip would be unpacked to 100,"):
        zoo.load(tmp_path / "m.zip")
    small_classifier().save(tmp_path / "run")
    with_members(tmp_path / "run" / "model.keras", deflated)
    zoo.load(tmp_path / "run")
    with_members(tmp_path / "run" / "model.keras", deflated, **{"model.weights.h5": ZEROS})
    with pytest.raises(CheckpointError, match="model.keras would be unpacked to 100,"):
        zoo.load(tmp_path / "run")


def test_a_long_config_in_a_run(tmp_path):
    small_classifier().save(tmp_path)
    with_members(tmp_path / "model.keras", **{"config.json": "[" + "0," * 10**7 + "0]"})
    with pytest.raises(CheckpointError, match="its config.json has more than 16,777,216 bytes"):
        zoo.load(tmp_path)


@pytest.mark.parametrize("depth", [500, 3000, 100_000])
def test_nested_metadata(depth, tmp_path):
    """Of a depth that Python parses, and of one that it does not."""
    nested = "[" * depth + "]" * depth
    small_translator().save(tmp_path / "run")
    with zipfile.ZipFile(tmp_path / "run" / "model.keras") as archive:
        config = archive.read("config.json").decode()
    changed = config.replace('"ff_dim": ', f'"ff_dim": {nested}, "old": ', 1)
    with_members(tmp_path / "run" / "model.keras", **{"config.json": changed})
    with pytest.raises(CheckpointError):
        zoo.load(tmp_path / "run")
    small_translator().save(tmp_path / "run")
    (tmp_path / "run" / "translator.json").write_text(nested)
    with pytest.raises(CheckpointError):
        zoo.load(tmp_path / "run")
    folder = folder_of(tmp_path, "bert")
    for name in ("config.json", "tokenizer_config.json", "modules.json"):
        path = folder / name
        text = path.read_text() if path.is_file() else '{"a": 0}'
        path.write_text(text.replace("{", f'{{"unknown": {nested}, ', 1))
        with contextlib.suppress(CheckpointError):  # or it is not used
            zoo.load(folder, num_classes=0)
            assert depth == 500
        path.write_text(text)


@pytest.mark.parametrize("make", test_metadata.SETTINGS)
def test_large_metadata(make, tmp_path, monkeypatch):
    """Any file of text may have 64 MiB."""
    folder = make(tmp_path)
    zoo.load(folder)
    monkeypatch.setattr(files, "_MAX_TEXT", 10**6)
    large = []
    for path in folder.iterdir():
        if path.suffix in (".json", ".txt"):
            text = path.read_text()
            path.write_text(text + "\n" * 10**6)
            with contextlib.suppress(CheckpointError):  # or it is not used
                zoo.load(folder)
                continue
            with pytest.raises(CheckpointError, match=rf"{path.name} has .* more than the 1,000,0"):
                zoo.load(folder)
            large.append(path.name)
            path.write_text(text)
    assert "config.json" in large and len(large) > 1 or make is test_metadata.timm


@pytest.mark.parametrize("name", ["size", "crop_size"])
def test_a_huge_size_of_images(name, tmp_path):
    folder = test_metadata.vit(tmp_path)
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "size": 10**9, name: 10**9}))
    with pytest.raises(CheckpointError, match="from 1 to 16,384 pixels"):
        zoo.load(folder)


def test_a_huge_size_of_images_in_a_run(tmp_path):
    small_classifier().save(tmp_path)
    path = tmp_path / "classifier.json"
    text = path.read_text()
    for name, value in (("image_size", [10**9, 10**9]), ("resize", 10**9)):
        description = json.loads(text)
        description["preprocessing"][name] = value
        path.write_text(json.dumps(description))
        with pytest.raises(CheckpointError, match=f"from 1 to 16,384 pixels. Received: {name}"):
            zoo.load(tmp_path)


def test_info_of_nested_metrics(tmp_path, capsys):
    small_classifier().save(tmp_path)
    metrics = tmp_path / "metrics.json"
    metrics.write_text('{"a": ' + "[" * 200 + "]" * 200 + "}")
    info(tmp_path)
    metrics.write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    with pytest.raises(CheckpointError, match="metrics.json is not JSON: maximum recursion"):
        info(tmp_path)


@pytest.mark.parametrize("content", [b"a" * 10**7, b"a b\n" * 10**6], ids=["one line", "lines"])
def test_texts_that_expand(content, tmp_path, small_limit):
    path = tmp_path / "corpus.gz"
    path.write_bytes(gzip.compress(content))
    with pytest.raises(CheckpointError, match="corpus.gz would be unpacked to 1,.* more than the"):
        list(read_lines(path))
    path.write_bytes(content)
    assert b"".join(line.encode() for line in read_lines(path)) == content
