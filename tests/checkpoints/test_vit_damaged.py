"""Files of Vision Transformers that do not fit get one error that names the file and the tensor."""

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

import zoo
from tests.checkpoints import drawn
from tests.checkpoints.test_vit_checkpoints import GOOGLE, HUGGING_FACE, TIMM, write_npz
from zoo.checkpoints import CheckpointError


def hugging_face(folder, change):
    golden = HUGGING_FACE["dinov2, giant"]
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    save_file(change(drawn.tensors(golden["shapes"])), folder / "model.safetensors")
    return folder / "model.safetensors"


def beit(folder, change):
    golden = HUGGING_FACE["beit"]
    (folder / "config.json").write_text(json.dumps(golden["config"]))
    save_file(change(drawn.tensors(golden["shapes"])), folder / "model.safetensors")
    return folder / "model.safetensors"


def timm(folder, change):
    path = folder / "vit.safetensors"
    save_file(change(drawn.tensors(TIMM["distilled"]["shapes"])), path)
    return path


def timm_eva(folder, change):
    path = folder / "eva.safetensors"
    save_file(change(drawn.tensors(TIMM["EVA-02"]["shapes"])), path)
    return path


def google(folder, change):
    return write_npz(folder / "vit.npz", GOOGLE["vision_transformer"], change)


def google_scanned(folder, change):
    golden = GOOGLE["big_vision, mean"]
    return write_npz(folder / "vit.npz", golden, lambda tensors: change(drawn.scanned(tensors)))


WRITERS = {  # and tensors: of the patches, of attention, of the head
    hugging_face: (
        "embeddings.patch_embeddings.projection.weight",
        "encoder.layer.1.attention.attention.key.weight",
        "classifier.weight",
    ),
    beit: (
        "encoder.layer.0.attention.attention.relative_position_bias.relative_position_bias_table",
        "encoder.layer.1.attention.attention.query.bias",
        "encoder.layer.1.lambda_2",
        "pooler.layernorm.weight",
    ),
    timm: ("patch_embed.proj.weight", "blocks.1.attn.qkv.weight", "head_dist.weight"),
    timm_eva: ("blocks.1.attn.q_bias", "blocks.1.attn.qkv.weight", "blocks.1.mlp.fc1.bias"),
    google: (
        "Transformer/posembed_input/pos_embedding",
        "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/key/kernel",
        "head/kernel",
    ),
    google_scanned: (
        "Transformer/encoder_norm/scale",
        "Transformer/encoderblock/MultiHeadDotProductAttention_0/key/kernel",
        "head/kernel",
    ),
}
CASES = [(write, name) for write, names in WRITERS.items() for name in names]
CHANGES = {
    "missing": lambda tensor: None,
    "a number": lambda tensor: tensor.reshape(-1)[:1].reshape(()),
    "wider": lambda tensor: np.concatenate([tensor, tensor], axis=-1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize(
    "write, name", CASES, ids=lambda x: x if isinstance(x, str) else x.__name__
)
def test_a_tensor_that_does_not_fit(write, name, change, tmp_path):
    def changed(tensors):
        [full] = [found for found in tensors if found.endswith(name)]
        value = CHANGES[change](tensors.pop(full))
        return tensors if value is None else {**tensors, full: value}

    with pytest.raises(CheckpointError) as error:
        load(write(tmp_path, changed))
    assert str(tmp_path) in str(error.value)
    assert name.split("encoderblock/")[-1] in str(error.value)


@pytest.mark.parametrize("epsilon", [None, {}, [1, 2], "small", -1.0, float("nan"), 1e400])
@pytest.mark.parametrize("kind", ["vit", "beit", "dinov3, no head"])
def test_a_setting_that_is_no_number(kind, epsilon, tmp_path):
    golden = HUGGING_FACE[kind]
    config = {**golden["config"], "layer_norm_eps": epsilon}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(drawn.tensors(golden["shapes"]), tmp_path / "model.safetensors")
    with pytest.raises(CheckpointError, match="epsilon must be a finite number of at least 0"):
        zoo.load(tmp_path)


@pytest.mark.parametrize("write", WRITERS)
def test_a_tensor_without_a_place(write, tmp_path):
    name = {hugging_face: "dinov2.extra", beit: "beit.extra"}.get(write, "extra")
    path = write(tmp_path, lambda tensors: {**tensors, name: np.ones(3, "float32")})
    with pytest.raises(CheckpointError, match=f"{path.name}.* no place in the model: extra"):
        load(path)


def test_files_of_another_kind(tmp_path):
    """Of a convolutional network, and of Google under the name of timm."""
    save_file({"conv1.weight": np.ones((3, 3), "float32")}, tmp_path / "a.safetensors")
    with pytest.raises(
        CheckpointError, match="a.safetensors is .*. It has no tensor patch_embed.proj.weight"
    ):
        zoo.load(tmp_path / "a.safetensors")
    np.savez(tmp_path / "a.npz", conv1=np.ones((3, 3)))
    with pytest.raises(CheckpointError, match="a.npz is .*. It has no tensor embedding/kernel"):
        zoo.load(tmp_path / "a.npz")
    google(tmp_path, lambda tensors: tensors).rename(tmp_path / "b.safetensors")
    with pytest.raises(CheckpointError, match="b.safetensors cannot be read: it is damaged, or"):
        zoo.load(tmp_path / "b.safetensors")


def load(path):
    if path.name == "model.safetensors":
        return zoo.load(path.parent)
    return zoo.load(path, num_heads=3)
