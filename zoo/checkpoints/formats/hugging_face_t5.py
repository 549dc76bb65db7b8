"""Hugging Face's folders of T5, Flan-T5, mT5, MADLAD-400 and ByT5 (transformers: models/t5, mt5).

T5's attention does not scale scores: queries are multiplied by √D here, which
`zoo.layers.scaled_dot_product_attention` divides them by. Likewise, where T5 multiplies the
decoder's output by 1/√E, so is the last normalization.
"""

import re

import keras
import numpy as np

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.building import create_model
from zoo.checkpoints.hugging_face_config import activation, check_settings, warn_unknown_tokens
from zoo.checkpoints.hugging_face_tokenizers import utf8_bytes
from zoo.checkpoints.mapping import assign, changed, linear, same
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError
from zoo.models.transformer import transformer
from zoo.tasks.text_to_text import TextToTextGenerator
from zoo.tasks.translator import Translator

MODEL_TYPES = ("t5", "mt5")
ANCHOR = "encoder.block.0.layer.0.SelfAttention.q.weight"
EMBEDDINGS = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")
OUTPUT = "lm_head.weight"
IGNORED = (  # not used by T5 either
    r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    *map(re.escape, (*EMBEDDINGS, OUTPUT)),
)
ARGUMENTS = {  # argument of `zoo.transformer`: its name in config.json, and its default there
    "embed_dim": ("d_model", 512),
    "key_dim": ("d_kv", 64),
    "ff_dim": ("d_ff", 2048),
    "num_layers": ("num_layers", 6),
    "num_decoder_layers": ("num_decoder_layers", None),
    "num_heads": ("num_heads", 8),
    "dropout": ("dropout_rate", 0.1),
    "attention_dropout": ("dropout_rate", 0.1),
    "epsilon": ("layer_norm_epsilon", 1e-6),
    "max_length": ("n_positions", 1024),  # no limit of the model itself
    "pad_id": ("pad_token_id", 0),
}
FIXED = {
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "is_encoder_decoder": True,
}
GATED = {"gelu_tanh": "geglu_tanh", "silu": "swiglu"}
CONTROL = ("<pad>", "</s>", "<unk>")
LANGUAGE = re.compile(r"<2(\w+)>")  # MADLAD's codes, such as <2de>
_BYTES = "ByT5Tokenizer"


def load(folder, config, tensors, options):
    """Loads a `TextToTextGenerator`; with the option `tgt_lang`, a `Translator` of MADLAD-400.

    Other options are arguments of `zoo.transformer`.
    """
    check_settings(folder / "config.json", config, FIXED)
    _check_dtype(folder, options)
    language = options.pop("tgt_lang", None)
    arguments = {ours: config.get(*theirs) for ours, theirs in ARGUMENTS.items()}
    proj = config.get("feed_forward_proj", "relu" if config["model_type"] == "t5" else "gated-gelu")
    is_gated = proj.startswith("gated-")
    name = "gelu_new" if proj == "gated-gelu" else proj.removeprefix("gated-")
    arguments["activation"] = activation(folder, {"activation_function": name})
    if is_gated:
        arguments["activation"] = GATED.get(arguments["activation"])
    if arguments["activation"] is None:
        raise CheckpointError(f"{folder}: feed_forward_proj={proj!r} is not supported.")
    embedding = next((name for name in EMBEDDINGS if name in tensors), EMBEDDINGS[0])
    [vocab_size, _] = tensors.shape(embedding, 2)
    is_tied = _is_tied(tensors, config, embedding)
    model = create_model(
        transformer,
        tensors,
        {
            **arguments,
            "source_vocab_size": vocab_size,
            "target_vocab_size": vocab_size,
            "norm": "pre",
            "norm_type": "rms",
            "positions": "relative",
            "shared": "all" if is_tied else "embeddings",
            "scale_embeddings": False,
            "qkv_bias": False,
            "use_bias": False,
        },
        options,
    )
    scales_output = config["model_type"] == "t5" and config.get("tie_word_embeddings") is not False
    table = _table(model, embedding, is_gated, scales_output)
    assign(model, tensors, table, IGNORED)
    tokenizer = _tokenizer(folder, config, vocab_size)
    start = config.get("decoder_start_token_id")
    special = SpecialTokens(
        start=model.pad_id if start is None else start,
        end=config.get("eos_token_id", 1),
        pad=model.pad_id,
    )
    if language is None:
        tokenizers = [tokenizer, tokenizer]
        return translators.translator(
            folder, config, model, tokenizers, special, TextToTextGenerator
        )
    codes = {}
    if tokenizer.kind == "sentencepiece":
        matches = [(LANGUAGE.fullmatch(piece), id) for piece, id in tokenizer.vocab.items()]
        codes = {match[1]: id for match, id in matches if match}
    code = translators.language_id(folder, "tgt_lang", language, codes)
    space = tokenizer.vocab["▁"]  # before the code, as before each first word
    tokenizers = [tokenizer.with_prefix(space, code), tokenizer]
    return translators.translator(folder, config, model, tokenizers, special, Translator)


def _check_dtype(folder, options):
    policy = keras.dtype_policies.get(options.get("dtype") or keras.config.dtype_policy())
    if policy.compute_dtype == "float16":
        raise CheckpointError(
            f"{folder}: T5's activations exceed the range of float16. Use bfloat16 or float32. "
            f"Received: dtype={policy.name}."
        )


def _is_tied(tensors, config, embedding):
    """Whether the embedding is also the output layer. A file may hold the same matrix twice."""
    if OUTPUT not in tensors:
        return True
    if config.get("tie_word_embeddings") is False:
        return False
    return np.array_equal(tensors[OUTPUT], tensors[embedding])


def _table(model, embedding, is_gated, scales_output):
    """The table of `zoo.checkpoints.mapping.assign`."""
    scale = np.float32(model.key_dim**0.5)
    width = model.num_heads * model.key_dim

    def scaled(x):  # the queries of [in, width of all projections]
        return np.concatenate([x[:, :width] * scale, x[:, width:]], axis=1)

    table = {
        "decoder_embedding/tokens/embeddings": same(embedding),
        "output_projection/kernel": linear(OUTPUT),
    }
    for coder in ("encoder", "decoder"):
        layer = f"{coder}.block.{{i}}.layer"
        block = f"{coder}_{{i}}"
        attention = f"{block}/attention" if coder == "encoder" else f"{block}/self_attention"
        ours = f"{layer}.0.SelfAttention"
        table[f"{attention}/qkv/kernel"] = changed(
            linear(f"{ours}.q.weight", f"{ours}.k.weight", f"{ours}.v.weight"), scaled
        )
        table[f"{attention}/output_projection/kernel"] = linear(f"{ours}.o.weight")
        table[f"{attention}_norm/gamma"] = same(f"{layer}.0.layer_norm.weight")
        first = ours.replace("{i}", "0")
        table[f"{coder}_positions/embeddings"] = same(f"{first}.relative_attention_bias.weight")
        table[f"{coder}_norm/gamma"] = same(f"{coder}.final_layer_norm.weight")
        number = 1 if coder == "encoder" else 2
        network = f"{layer}.{number}.DenseReluDense"
        hidden = ("wi_0", "wi_1") if is_gated else ("wi",)
        table[f"{block}/feed_forward/hidden/kernel"] = linear(
            *(f"{network}.{name}.weight" for name in hidden)
        )
        table[f"{block}/feed_forward/output_projection/kernel"] = linear(f"{network}.wo.weight")
        table[f"{block}/feed_forward_norm/gamma"] = same(f"{layer}.{number}.layer_norm.weight")
    cross = "decoder.block.{i}.layer.1.EncDecAttention"
    path = "decoder_{i}/cross_attention"
    table[f"{path}/query/kernel"] = changed(linear(f"{cross}.q.weight"), scaled)
    table[f"{path}/key_value/kernel"] = linear(f"{cross}.k.weight", f"{cross}.v.weight")
    table[f"{path}/output_projection/kernel"] = linear(f"{cross}.o.weight")
    table[f"{path}_norm/gamma"] = same("decoder.block.{i}.layer.1.layer_norm.weight")
    if scales_output:
        factor = np.float32(model.embed_dim**-0.5)
        table["decoder_norm/gamma"] = changed(table["decoder_norm/gamma"], lambda x: x * factor)
    return table


def _tokenizer(folder, config, vocab_size):
    """The tokenizer of a folder. ByT5's has no file: its tokens are bytes."""
    saved = translators.tokenizer_settings(folder)
    if _BYTES in (saved.get("tokenizer_class"), config.get("tokenizer_class")):
        return utf8_bytes(CONTROL, vocab_size)
    tokenizer = translators.tokenizer(folder / "spiece.model")
    count = len(tokenizer.proto.pieces)
    sentinels = saved.get("extra_ids", min(100, vocab_size - count))
    names = [f"▁<extra_id_{number}>" for number in reversed(range(sentinels))]
    tokenizer = tokenizer.with_pieces(names, vocab_size)
    warn_unknown_tokens(folder, saved, {name.removeprefix("▁"): 0 for name in tokenizer.vocab})
    return tokenizer
