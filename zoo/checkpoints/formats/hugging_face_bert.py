"""Hugging Face's folders of BERT, RoBERTa and XLM-RoBERTa, and of sentence-transformers.

In transformers: models/bert, models/roberta and models/xlm_roberta.
"""

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
from zoo.checkpoints.hugging_face_tokenizers import encoder_tokenizer
from zoo.checkpoints.mapping import assign, changed, dense, feed_forward, norm, same
from zoo.errors import CheckpointError
from zoo.files import read_text
from zoo.models.text_classifier import POOLS, text_classifier
from zoo.tasks.classifier import TextClassifier
from zoo.tasks.encoder import TextEncoder

MODEL_TYPES = ("bert", "roberta", "xlm-roberta")
ANCHOR = "embeddings.word_embeddings.weight"
UNUSED_HEADS = (r"pooler\..*", r"(pre_)?classifier\..*", r"lm_head\..*")
POSITIONS = "embeddings.position_embeddings.weight"
BLOCK = "encoder.layer.{i}."
QKV = [f"{BLOCK}attention.self.{name}" for name in ("query", "key", "value")]
DENSE = [f"{BLOCK}{name}.dense" for name in ("intermediate", "output")]
TABLE = {
    "encoder_embedding/types/embeddings": same("embeddings.token_type_embeddings.weight"),
    **norm("encoder_embedding/norm", "embeddings.LayerNorm"),
    **dense("encoder_{i}/attention/qkv", *QKV),
    **dense("encoder_{i}/attention/output_projection", f"{BLOCK}attention.output.dense"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}attention.output.LayerNorm"),
    **feed_forward("encoder_{i}/feed_forward", *DENSE),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}output.LayerNorm"),
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
OLD_MODULES = ("BERT", "RoBERTa", "DistilBERT", "XLMRoBERTa")  # before version 0.3
FIXED = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def load(folder, config, tensors, options):
    """Loads the model of a folder; options are arguments of `zoo.text_classifier`."""
    arguments = {ours: config.get(*theirs) for ours, theirs in ARGUMENTS.items()}
    arguments["activation"] = activation(folder, {"hidden_act": "gelu", **config})
    pooler = "pooler.dense"
    head = "classifier"
    first_position = 0
    if config["model_type"] != "bert":  # RoBERTa's positions begin after the padding token
        first_position = config.get("pad_token_id", 1) + 1
        if any(name.startswith("classifier.out_proj.") for name in tensors):
            pooler = "classifier.dense"
            head = "classifier.out_proj"
    return load_encoder(
        folder, config, tensors, options, arguments, TABLE, pooler, head, first_position
    )


def load_encoder(
    folder, config, tensors, options, arguments, table, pooler, head="classifier", first_position=0
):
    """Loads a classifier or an encoder.

    `arguments` are those that the config gives; `table` has the entries of the blocks, and of the
    types and the normalization of the embeddings. `pooler` and `head` are the names of the dense
    layers. Positions before `first_position` are not used.
    """
    check_settings(folder / "config.json", config, FIXED)
    tensors = tensors.renamed(_renamed)
    [size, _] = tensors.shape(ANCHOR, 2)
    names = _class_names(folder, config, tensors, options, pooler, head)
    names, is_new_head = head_classes(tensors, names, options)
    arguments = {**arguments, "pooler": f"{pooler}.weight" in tensors, "num_classes": len(names)}
    arguments["max_length"] -= first_position
    lower_case = False
    if not names:
        encoder = _sentence_encoder(folder, arguments["max_length"])
        lower_case = encoder.lower_case
        arguments |= {"pool": encoder.pool, "pooler": False, "max_length": encoder.max_length}
    tokenizer, special = encoder_tokenizer(folder, size, lower_case)
    if first_position and special.pad != first_position - 1:
        raise CheckpointError(f"{folder}: pad_token_id must be {special.pad}, as in the tokenizer.")
    arguments["pad_id"] = special.pad
    model = create_model(text_classifier, tensors, arguments, options)
    end = None if names else first_position + model.max_length
    table = {
        **table,
        "encoder_embedding/tokens/embeddings": same(ANCHOR),
        "encoder_embedding/positions/embeddings": changed(
            same(POSITIONS), lambda x: x[first_position:end]
        ),
        **dense("pooler_layer", pooler),
        **dense("head", head),
    }
    if is_new_head:
        assign(model, tensors, table, UNUSED_HEADS, kept=["head/.*"])
    else:
        assign(model, tensors, table, UNUSED_HEADS[:1])
    if names:
        return TextClassifier(model, tokenizer, names, special)
    return TextEncoder(model, tokenizer, special, encoder.normalize)


def _renamed(name):
    """The name of a tensor in files that were not converted from TensorFlow 1."""
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def _class_names(folder, config, tensors, options, pooler, head):
    shape = tensors.shapes.get(f"{head}.weight") or tensors.shapes.get(f"{head}.bias", (0,))
    classes = shape[0]  # without a head, 0
    architectures = config.get("architectures") or ["ForSequenceClassification"]
    problem = None
    if len(architectures) > 1 or not architectures[0].endswith("ForSequenceClassification"):
        problem = f"the head of {architectures[0]} does not classify texts"
    elif f"{pooler}.weight" not in tensors:
        problem = f"there is no {pooler}.weight, which the head needs"
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
    names = ["Transformer" if name in OLD_MODULES else name for name in names]
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
    files = sorted(bert.glob("sentence_*_config.json"))
    if len(files) > 1:
        names = ", ".join(path.name for path in files)
        raise CheckpointError(f"{bert} has several descriptions of a sentence encoder: {names}.")
    texts = read_json(files[0]) if files else {}
    limit = read_json(bert / "tokenizer_config.json", {}).get("model_max_length") or max_length
    return _SentenceEncoder(
        pool=pools[0],
        normalize="Normalize" in names,
        max_length=min(max_length, texts.get("max_seq_length") or limit),
        lower_case=texts.get("do_lower_case", False),
    )
