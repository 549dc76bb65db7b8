"""Hugging Face's folders of BEiT, BEiT v2 and Data2Vec (transformers: models/beit and data2vec)."""

import re

from zoo.checkpoints.formats import hugging_face_vit
from zoo.checkpoints.formats.hugging_face_vit import BLOCK, POSITIONS, QKV, VIT
from zoo.checkpoints.hugging_face_config import class_names, preprocessing
from zoo.checkpoints.mapping import Source, biases, norm, same
from zoo.checkpoints.vision_transformer import image_size, table_size, vit_classifier
from zoo.errors import CheckpointError

MODEL_TYPES = ("beit", "data2vec-vision")
ANCHOR = hugging_face_vit.ANCHOR
IGNORED = (r"embeddings\.mask_token",)
BIAS_TABLE = "relative_position_bias.relative_position_bias_table"
BIAS_TABLES = {  # names in config.json and in the file
    "use_relative_position_bias": f"{BLOCK}attention.attention.{BIAS_TABLE}",
    "use_shared_relative_position_bias": f"encoder.{BIAS_TABLE}",
}
TABLE = {
    **VIT,
    "encoder_{i}/attention_scale/gamma": same(f"{BLOCK}lambda_1"),
    "encoder_{i}/feed_forward_scale/gamma": same(f"{BLOCK}lambda_2"),
    **norm("head_norm", "pooler.layernorm"),
}


def load(folder, config, tensors, options):
    """Loads the classifier or encoder of a folder; options are arguments of `zoo.vit`."""
    tensors = tensors.renamed(_renamed)
    arguments = hugging_face_vit.arguments_of(folder, config, tensors)
    patch_size = arguments["patch_size"]
    size = arguments["input_shape"][:2]
    tables = [name for setting, name in BIAS_TABLES.items() if config.get(setting)]
    is_absolute = bool(config.get("use_absolute_position_embeddings"))
    if is_absolute == bool(tables):
        raise CheckpointError(
            f"{folder}: use_absolute_position_embeddings={is_absolute} with {len(tables)} kinds of "
            f"relative positions ({', '.join(BIAS_TABLES)}) is not supported."
        )
    if is_absolute:
        image_size(tensors, POSITIONS, 1, patch_size, size)
    elif size[0] != size[1]:  # transformers would exchange the sides of the tables
        raise CheckpointError(f"{folder}: image_size={config['image_size']} is not supported.")
    for name in tables:
        table_size(tensors, name.replace("{i}", "0"), patch_size, size)
    is_mean = config.get("use_mean_pooling", True)
    arguments |= {
        "qkv_bias": True,
        "pool": "mean" if is_mean else "cls",
        "num_class_tokens": 1,
        "normalize_pooled": is_mean,
        "positions": "relative_table" if tables else "learned",
        "layer_scale": 1.0 if config.get("layer_scale_init_value", 0.1) > 0 else None,
    }
    query, _, value = (f"{name}.bias" for name in QKV)
    table = {
        **TABLE,
        "encoder_{i}/attention/qkv/bias": biases(arguments["embed_dim"], query, None, value),
        "encoder_{i}_positions/embeddings": Source(tables, lambda *tables: sum(tables)),
    }
    [classes] = tensors.shape("classifier.bias", 1) if "classifier.bias" in tensors else [0]
    names = class_names(folder, config, classes, options)
    images = preprocessing(folder, config, size)
    return vit_classifier(tensors, table, arguments, images, options, names, IGNORED)


def _renamed(name):
    """The name in published files of a tensor, also of `model.state_dict()` in transformers 5."""
    name = hugging_face_vit.renamed(name)
    name = re.sub("^shared_position_bias", "encoder.relative_position_bias", name)
    return re.sub(r"^(encoder\.layer\.\d+)\.rel", r"\1.attention.attention.rel", name)
