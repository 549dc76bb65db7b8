"""Runs with a Vision Transformer are loaded with other arguments, by the names of their layers."""

import zipfile

import h5py
import numpy as np
import pytest

import zoo
from tests.deploy.small_models import small_classifier
from zoo.checkpoints import CheckpointError, keras_file

KINDS = {
    "default": {},
    "bfloat16": {"precision": "bfloat16"},
    "mixed precision": {"precision": "mixed_bfloat16"},
    "distilled": {"num_class_tokens": 2, "num_registers": 3, "layer_scale": 0.1},
    "relative": {"positions": "relative", "pool": "mean", "normalize_pooled": True},
    "rotary": {"positions": "rotary", "activation": "swiglu", "qkv_bias": False},
    "linear": {"attention": "linear", "representation_dim": 8, "normalize_embeddings": True},
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_weight_has_its_place(kind, tmp_path):
    small_classifier(**KINDS[kind]).save(tmp_path)
    expected = zoo.load(tmp_path).model
    found = zoo.load(tmp_path, dropout=0.5).model
    assert found.dropout == 0.5 and found.dtype_policy == expected.dtype_policy
    for one, other in zip(found.weights, expected.weights, strict=True):
        assert one.path == other.path
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_a_model_saved_with_its_optimizer(tmp_path):
    classifier = small_classifier(image=(8, 8, 3))
    classifier.save(tmp_path)
    classifier.model.compile("adam", "sparse_categorical_crossentropy")
    classifier.model.fit(np.zeros((2, 8, 8, 3)), np.zeros(2), verbose=0)
    classifier.model.save(tmp_path / "model.keras")
    for options in ({}, {"dropout": 0.1}):
        found = zoo.load(tmp_path, **options).model.get_weights()
        for one, other in zip(found, classifier.model.get_weights(), strict=True):
            np.testing.assert_array_equal(one, other)


def test_arrays_outside_of_the_file_are_refused(tmp_path):
    """HDF5 could read any file of the user."""
    (tmp_path / "secret").write_bytes(b"1234" * 3)
    with h5py.File(tmp_path / "model.weights.h5", "w") as file:
        file.create_group("head/vars").attrs["name"] = "head"
        external = [(str(tmp_path / "secret"), 0, 12)]
        file.create_dataset("head/vars/0", (3,), "float32", external=external)
        with pytest.raises(CheckpointError, match="a run is damaged: head/vars/0 is not stored"):
            keras_file.read("a run", file)


def test_a_run_with_a_damaged_array(tmp_path):
    small_classifier().save(tmp_path)
    with zipfile.ZipFile(tmp_path / "model.keras") as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (tmp_path / "model.weights.h5").write_bytes(files["model.weights.h5"])
    with h5py.File(tmp_path / "model.weights.h5", "r+") as file:
        del file["head/vars/0"]
    files["model.weights.h5"] = (tmp_path / "model.weights.h5").read_bytes()
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    with pytest.raises(CheckpointError, match="Tensors that are missing: head/0"):
        zoo.load(tmp_path, dropout=0.1)
