"""Hugging Face's folders of BERT (transformers: models/bert) and of sentence-transformers."""

import json
import re
from typing import NamedTuple

from zoo.checkpoints.building import create_model, head_classes
from zoo.checkpoints.hugging_face_config import (
    activation,
    check_downloaded,
    check_settings,
    class_names,
    read_json,
)
from zoo.checkpoints.hugging_face_tokenizers import bert_wordpiece
from zoo.checkpoints.mapping import assign, changed, dense, feed_forward, norm, same
from zoo.errors import CheckpointError
from zoo.files import read_text
from zoo.models.text_classifier import POOLS, text_classifier
from zoo.tasks.classifier import TextClassifier
from zoo.tasks.encoder import TextEncoder

MODEL_TYPES = ("bert",)
ANCHOR = "embeddings.word_embeddings.weight"
UNUSED_HEADS = (r"pooler\..*", r"classifier\..*")
POSITIONS = "encoder_embedding/positions/embeddings"
BLOCK = "encoder.layer.{i}."
QKV = [f"{BLOCK}attention.self.{name}" for name in ("query", "key", "value")]
DENSE = [f"{BLOCK}{name}.dense" for name in ("intermediate", "output")]
TABLE = {
    "encoder_embedding/tokens/embeddings": same(ANCHOR),
    POSITIONS: same("embeddings.position_embeddings.weight"),
    "encoder_embedding/types/embeddings": same("embeddings.token_type_embeddings.weight"),
    **norm("encoder_embedding/norm", "embeddings.LayerNorm"),
    **dense("encoder_{i}/attention/qkv", *QKV),
    **dense("encoder_{i}/attention/output_projection", f"{BLOCK}attention.output.dense"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}attention.output.LayerNorm"),
    **feed_forward("encoder_{i}/feed_forward", *DENSE),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}output.LayerNorm"),
    **dense("pooler_layer", "pooler.dense"),
    **dense("head", "classifier"),
}
ARGUMENTS = {  # argument of `zoo.text_classifier`: its name in config.json, and its default there
    "vocab_size": ("vocab_size", 30522),
    "embed_dim": ("hidden_size", 768),
    "num_layers": ("num_hidden_layers", 12),
    "num_heads": ("num_attention_heads", 12),
    "ff_dim": ("intermediate_size", 3072),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "max_length": ("max_position_embeddings", 512),
    "num_token_types": ("type_vocab_size", 2),
    "epsilon": ("layer_norm_eps", 1e-12),
}
SENTENCE_ENCODER = (  # files of sentence-transformers beside modules.json
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    "1_Pooling/config.json",
)
FIXED = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def load(folder, config, tensors, options):
    """Loads the model of a folder; options are arguments of `zoo.text_classifier`."""
    check_settings(folder / "config.json", config, FIXED)
    arguments = {ours: config.get(*theirs) for ours, theirs in ARGUMENTS.items()}
    arguments["activation"] = activation(folder, {"hidden_act": "gelu", **config})
    tensors = tensors.renamed(_renamed)
    arguments["pooler"] = "pooler.dense.weight" in tensors
    names = _class_names(folder, config, tensors, options)
    names, is_new_head = head_classes(tensors, names, options)
    [size, _] = tensors.shape(ANCHOR, 2)
    lower_case = False
    if not names:
        encoder = _sentence_encoder(folder, arguments["max_length"])
        lower_case = encoder.lower_case
        arguments["pool"] = encoder.pool
        arguments["pooler"] = False
        arguments["max_length"] = encoder.max_length
    tokenizer, special = bert_wordpiece(folder, size, lower_case)
    arguments["num_classes"] = len(names)
    arguments["pad_id"] = special.pad
    model = create_model(text_classifier, tensors, arguments, options)
    table = TABLE
    if not names:
        positions = changed(TABLE[POSITIONS], lambda x: x[: model.max_length])
        table = {**TABLE, POSITIONS: positions}
    if is_new_head:
        assign(model, tensors, table, ignored=UNUSED_HEADS, kept=["head/.*"])
    else:
        assign(model, tensors, table)
    if names:
        return TextClassifier(model, tokenizer, names, special)
    return TextEncoder(model, tokenizer, special, encoder.normalize)


def _renamed(name):
    """The name of a tensor in files that were not converted from TensorFlow 1."""
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def _class_names(folder, config, tensors, options):
    [classes, *_] = tensors.shapes.get("classifier.weight", (0,))
    architectures = config.get("architectures") or ["BertForSequenceClassification"]
    problem = None
    if architectures != ["BertForSequenceClassification"]:
        problem = f"the head of {architectures[0]} does not classify texts"
    elif "pooler.dense.weight" not in tensors:
        problem = "there is no pooler.dense.weight, which the head needs"
    return class_names(folder, config, classes, options, problem)


class _SentenceEncoder(NamedTuple):
    """The settings of sentence-transformers."""

    pool: str  # one of `POOLS`
    normalize: bool  # whether features are normalized
    max_length: int
    lower_case: bool  # whether texts are lowercased


def transformer_folder(folder):
    """The folder of the BERT; before sentence-transformers 1.0, a subfolder like 0_Transformer."""
    if not (folder / "modules.json").is_file() or (folder / "config.json").is_file():
        return folder
    return folder / _modules(folder)[0]["path"]


def _modules(folder):
    return json.loads(read_text(folder / "modules.json"))


def _sentence_encoder(bert, max_length):
    """Reads the files of sentence-transformers; by default, its settings for a BERT.

    `bert` is the folder of the BERT, see `transformer_folder`.
    """
    folder = bert
    if (bert.parent / "modules.json").is_file() and not (bert / "modules.json").is_file():
        folder = bert.parent
    check_downloaded(folder, "modules.json")
    if (folder / "modules.json").is_file():
        check_downloaded(folder, *SENTENCE_ENCODER[:2])
        modules = _modules(folder)
        default = None  # the files of the modules must exist
    else:
        for name in SENTENCE_ENCODER:
            if (folder / name).is_file():
                raise CheckpointError(f"{folder} contains {name}, but no modules.json.")
        modules = [{"type": "Transformer"}, {"type": "Pooling", "path": "1_Pooling"}]
        default = {}
    names = [module["type"].rpartition(".")[2] for module in modules]
    names = ["Transformer" if name == "BERT" else name for name in names]  # before 0.3
    if names[:2] != ["Transformer", "Pooling"] or names[2:] not in ([], ["Normalize"]):
        raise CheckpointError(
            f"{folder / 'modules.json'}: the modules must be Transformer and Pooling, with or "
            f"without Normalize. Received: {names}."
        )
    path = folder / modules[1]["path"] / "config.json"
    config = {"pooling_mode_mean_tokens": True, **read_json(path, default)}
    if "pooling_mode" in config:
        pools = [config["pooling_mode"]]
    else:
        modes = [name for name in config if name.startswith("pooling_mode_") and config[name]]
        pools = [re.sub("^pooling_mode_|_tokens?$", "", name) for name in modes]
    if len(pools) != 1 or pools[0] not in POOLS:
        raise CheckpointError(f"{path}: pooling must be one of {POOLS}. Received: {pools}.")
    library = read_json(folder / "config_sentence_transformers.json", {})
    check_settings(folder, library, {"default_prompt_name": "", "truncate_dim": None})
    similarity = library.get("similarity_fn_name") or "cosine"
    if similarity != "cosine":
        print(
            f"{folder}: similarity_fn_name={similarity!r} is ignored; `similarity` is the cosine."
        )
    texts = read_json(bert / "sentence_bert_config.json", {})
    limit = read_json(bert / "tokenizer_config.json", {}).get("model_max_length") or max_length
    return _SentenceEncoder(
        pool=pools[0],
        normalize="Normalize" in names,
        max_length=min(max_length, texts.get("max_seq_length") or limit),
        lower_case=texts.get("do_lower_case", False),
    )
