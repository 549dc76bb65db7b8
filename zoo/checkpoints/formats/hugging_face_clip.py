"""Hugging Face's folders of CLIP and SigLIP (transformers: models/clip and siglip).

Their text encoder computes the vectors of class texts, when a zero-shot classifier is loaded: they
become the kernel of its head.

Axes: K classes, P features.
"""

import numpy as np

from zoo.checkpoints.building import create_model
from zoo.checkpoints.class_texts import encode_texts
from zoo.checkpoints.hugging_face_config import activation, class_names, preprocessing
from zoo.checkpoints.mapping import (
    assign,
    biases,
    changed,
    dense,
    feed_forward,
    linear,
    norm,
    patches,
    same,
    stacked,
)
from zoo.checkpoints.tensor_files import read_folder
from zoo.checkpoints.tensors import Tensors
from zoo.checkpoints.vision_transformer import vit_classifier
from zoo.errors import CheckpointError
from zoo.models.text_tower import TextTower
from zoo.text.tokenizer import as_texts

MODEL_TYPES = ("clip", "clip_vision_model", "siglip", "siglip_vision_model")
ANCHOR = None  # both encoders are read
PATCHES = "vision_model.embeddings.patch_embedding.weight"
POOL = "vision_model.head"
QKV = linear(f"{POOL}.attention.in_proj_weight")  # [E, 3E]
QKV_BIAS = same(f"{POOL}.attention.in_proj_bias")
PROJECTION = "visual_projection.weight"
TOKENS = "text_model.embeddings.token_embedding.weight"
POSITIONS = "text_model.embeddings.position_embedding.weight"
LOGITS = ("logit_scale", "logit_bias")
OF_IMAGES = (r"vision_model\..*", r"visual_projection\..*", *LOGITS)
OF_TEXTS = (r"text_model\..*", r"text_projection\..*", *LOGITS)
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12}
BASE |= {"intermediate_size": 3072, "image_size": 224}
CLIP = {**BASE, "hidden_act": "quick_gelu", "layer_norm_eps": 1e-5}
CLIP_TEXT = {**CLIP, "hidden_size": 512, "num_attention_heads": 8, "intermediate_size": 2048}
SIGLIP = {**BASE, "hidden_act": "gelu_pytorch_tanh", "layer_norm_eps": 1e-6}
TEXTS_IN_BATCH = 64


def _blocks(encoder):
    block = encoder + ".encoder.layers.{i}."
    qkv = [f"{block}self_attn.{name}_proj" for name in "qkv"]
    return {
        **norm("encoder_{i}/attention_norm", f"{block}layer_norm1"),
        **dense("encoder_{i}/attention/qkv", *qkv),
        **dense("encoder_{i}/attention/output_projection", f"{block}self_attn.out_proj"),
        **norm("encoder_{i}/feed_forward_norm", f"{block}layer_norm2"),
        **feed_forward("encoder_{i}/feed_forward", f"{block}mlp.fc1", f"{block}mlp.fc2"),
    }


IMAGES = {
    "patch_embed/projection/kernel": patches(PATCHES),
    "patch_embed/projection/bias": same("vision_model.embeddings.patch_embedding.bias"),
    "class_token/tokens": stacked("vision_model.embeddings.class_embedding"),
    "patch_positions/embeddings": same("vision_model.embeddings.position_embedding.weight"),
    **norm("embedding_norm", "vision_model.pre_layrnorm"),
    **_blocks("vision_model"),
    **norm("encoder_norm", "vision_model.post_layernorm"),
    "attention_pool/probe": stacked(f"{POOL}.probe"),
    "attention_pool/attention/query/kernel": changed(QKV, lambda x: x[:, : len(x)]),
    "attention_pool/attention/query/bias": changed(QKV_BIAS, lambda x: x[: len(x) // 3]),
    "attention_pool/attention/key_value/kernel": changed(QKV, lambda x: x[:, len(x) :]),
    "attention_pool/attention/key_value/bias": changed(QKV_BIAS, lambda x: x[len(x) // 3 :]),
    **dense("attention_pool/attention/output_projection", f"{POOL}.attention.out_proj"),
    **norm("attention_pool/norm", f"{POOL}.layernorm"),
    **feed_forward("attention_pool/feed_forward", f"{POOL}.mlp.fc1", f"{POOL}.mlp.fc2"),
    "representation/kernel": linear(PROJECTION),
    **dense("head", "classifier"),
}
TEXTS = {
    "encoder_embedding/tokens/embeddings": same(TOKENS),
    "encoder_embedding/positions/embeddings": same(POSITIONS),
    **_blocks("text_model"),
    **norm("encoder_norm", "text_model.final_layer_norm"),
    **dense("projection", "text_model.head"),
}


def load(folder, config, tensors, options):
    """Loads the classifier or encoder of a folder; options are arguments of `zoo.vit`.

    With the option `classes`, a list of texts, it is a zero-shot classifier.
    """
    classes = options.pop("classes", None)
    is_clip = config["model_type"].startswith("clip")
    settings = _settings(config, "vision_config", CLIP if is_clip else SIGLIP)
    tensors = _read(folder)
    is_classifier = "classifier.weight" in tensors
    names = []
    if classes is not None:
        names = as_texts(classes)
        if not names:
            raise CheckpointError("classes must have at least one text. Received: classes=[].")
        tensors = _with_head(folder, config, tensors, names, is_clip, options)
    elif is_classifier:
        problem = "its head reads tokens that are not normalized" if is_clip else None
        count, _ = tensors.shape("classifier.weight", 2)
        names = class_names(folder, config, count, options, problem)
    elif TOKENS in tensors and "num_classes" not in options:
        print(f"{folder}: for zero-shot classification, pass classes, a list of texts.")
    side = settings["image_size"]
    width, channels, patch_size, _ = tensors.shape(PATCHES, 4)
    arguments = {
        **_blocks_arguments(folder, settings),
        "input_shape": (side, side, channels),
        "patch_size": patch_size,
        "normalize_embeddings": is_clip,
        "pool": "cls",
    }
    table = dict(IMAGES)
    ignored = OF_TEXTS
    if is_clip:
        table["patch_embed/projection/bias"] = biases(width, None)
    elif is_classifier or not settings.get("vision_use_head", True):
        arguments["pool"] = "mean"
        ignored = (*OF_TEXTS, rf"{POOL}\..*")
    else:
        arguments["pool"] = "map"
    if PROJECTION in tensors:
        features, _ = tensors.shape(PROJECTION, 2)
        table["representation/bias"] = biases(features, None)
        arguments["representation_dim"] = features
        arguments["representation_activation"] = "linear" if classes is None else "unit_norm"
    images = preprocessing(folder, {"num_channels": channels}, (side, side))
    loaded = vit_classifier(tensors, table, arguments, images, options, names, ignored)
    if classes is not None and not is_clip:
        loaded.problem = "multi_label"  # as in training
    return loaded


def _read(folder):
    """The tensors of both encoders: names of the image encoder begin with "vision_model."."""
    tensors = read_folder(folder)
    if PATCHES.removeprefix("vision_model.") in tensors:  # alone, as transformers 5 writes it
        tensors = tensors.renamed(lambda name: f"vision_model.{name}")
    return tensors.unwrapped(PATCHES)


def _settings(config, name, defaults):
    """The settings of an encoder; "vision_config_dict" of older files takes precedence."""
    if config["model_type"].endswith("_vision_model"):
        return {**defaults, **config}
    older = config.get(f"{name}_dict")
    return {**defaults, **((config.get(name) or {}) if older is None else older)}


def _blocks_arguments(folder, settings):
    return {
        "embed_dim": settings["hidden_size"],
        "num_layers": settings["num_hidden_layers"],
        "num_heads": settings["num_attention_heads"],
        "ff_dim": settings["intermediate_size"],
        "epsilon": settings["layer_norm_eps"],
        "activation": activation(folder, settings),
    }


def _with_head(folder, config, tensors, classes, is_clip, options):
    """The tensors with a head whose kernel are the vectors of the classes."""
    if "num_classes" in options or TOKENS not in tensors:
        raise CheckpointError(
            f"{folder}: classes need a text encoder in the folder, and no num_classes."
        )
    vectors = _class_vectors(folder, config, tensors, classes, is_clip)
    scale = np.exp(np.asarray(tensors["logit_scale"], "float32"))
    head = {"classifier.weight": scale * vectors}
    if is_clip:
        head["classifier.bias"] = np.zeros(len(classes), "float32")
    else:
        head["classifier.bias"] = np.repeat(np.asarray(tensors["logit_bias"]), len(classes))
        head[PROJECTION] = np.eye(vectors.shape[1], dtype="float32")  # SigLIP has none
    entries = {name: (x.shape, lambda x=x: x) for name, x in head.items()}
    return Tensors(tensors.path, {**tensors.entries, **entries})


def _class_vectors(folder, config, tensors, classes, is_clip):
    """The features of texts, of length 1: float32 [K, P]."""
    settings = _settings(config, "text_config", CLIP_TEXT if is_clip else SIGLIP)
    vocab_size, _ = tensors.shape(TOKENS, 2)
    limit, _ = tensors.shape(POSITIONS, 2)
    kind = "CLIPTokenizer" if is_clip else "SiglipTokenizer"
    tokens, mask = encode_texts(folder, classes, limit, kind, pads_to_limit=not is_clip)
    if tokens.max() >= vocab_size:
        raise CheckpointError(f"{folder}: the tokenizer has more tokens than the text encoder.")
    places = np.full(len(tokens), tokens.shape[1] - 1)
    table = dict(TEXTS)
    if is_clip:
        features, _ = tensors.shape("text_projection.weight", 2)
        table["projection/kernel"] = linear("text_projection.weight")
        table["projection/bias"] = biases(features, None)
        places = _end_places(folder, tokens, settings.get("eos_token_id", 49407))
    else:
        [features] = tensors.shape("text_model.head.bias", 1)
    arguments = {
        **_blocks_arguments(folder, settings),
        "vocab_size": vocab_size,
        "max_length": limit,
    }
    arguments |= {"num_features": features, "causal": is_clip, "dtype": "float32"}
    encoder = create_model(TextTower, tensors, arguments, {})
    encoder.build()
    assign(encoder, tensors, table, ignored=OF_IMAGES)
    parts = []
    for start in range(0, len(tokens), TEXTS_IN_BATCH):
        part = slice(start, start + TEXTS_IN_BATCH)
        parts.append(np.asarray(encoder(tokens[part], mask[part], places[part])))
    vectors = np.concatenate(parts)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def _end_places(folder, tokens, end):
    """The position of the end token in each text: [K]."""
    if end == 2:  # wrong in older files: the end token has the largest id
        end = tokens.max(axis=1, keepdims=True)
    is_end = tokens == end
    if not np.all(np.any(is_end, axis=1)):
        raise CheckpointError(f"{folder}: texts do not end with eos_token_id={end!r}.")
    return is_end.argmax(axis=1)
