"""Hugging Face's folders of T5, Flan-T5, mT5, MADLAD-400 and ByT5 (transformers: models/t5, mt5).

T5's attention does not scale scores: queries are multiplied by √D here, which
`zoo.layers.scaled_dot_product_attention` divides them by. Where T5 multiplies the decoder's output
by 1/√E, the last normalization has this factor here.
"""

import re

import keras
import numpy as np

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints.building import create_model
from zoo.checkpoints.hugging_face_config import activation, check_settings, check_special_tokens
from zoo.checkpoints.hugging_face_tokenizers import unigram, utf8_bytes
from zoo.checkpoints.mapping import assign, changed, linear, same
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError
from zoo.models.transformer import transformer
from zoo.tasks.text_to_text import TextToTextGenerator
from zoo.tasks.translator import Translator
from zoo.text.sentencepiece import SPACE

MODEL_TYPES = ("t5", "mt5")
ANCHOR = "encoder.block.0.layer.0.SelfAttention.q.weight"
EMBEDDINGS = ("shared.weight", "decoder.embed_tokens.weight", "encoder.embed_tokens.weight")
OUTPUT = "lm_head.weight"
IGNORED = (  # not used by T5 either
    r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",
    *map(re.escape, (*EMBEDDINGS, OUTPUT)),
)
_ENCODER = "encoder.block.{i}.layer"
_DECODER = "decoder.block.{i}.layer"
_MEMORY = f"{_DECODER}.1.EncDecAttention"
_BIAS = "block.0.layer.0.SelfAttention.relative_attention_bias.weight"


def self_attention(path, layer):
    """The entries of self-attention and its normalization."""
    name = f"{layer}.SelfAttention"
    return {
        f"{path}/qkv/kernel": linear(f"{name}.q.weight", f"{name}.k.weight", f"{name}.v.weight"),
        f"{path}/output_projection/kernel": linear(f"{name}.o.weight"),
        f"{path}_norm/gamma": same(f"{layer}.layer_norm.weight"),
    }


def feed_forward(path, layer, *hidden):
    """The entries of a feed-forward network and its normalization."""
    name = f"{layer}.DenseReluDense"
    return {
        f"{path}/hidden/kernel": linear(*(f"{name}.{part}.weight" for part in hidden)),
        f"{path}/output_projection/kernel": linear(f"{name}.wo.weight"),
        f"{path}_norm/gamma": same(f"{layer}.layer_norm.weight"),
    }


TABLE = {
    "encoder_positions/embeddings": same(f"encoder.{_BIAS}"),
    **self_attention("encoder_{i}/attention", f"{_ENCODER}.0"),
    **feed_forward("encoder_{i}/feed_forward", f"{_ENCODER}.1", "wi"),
    "encoder_norm/gamma": same("encoder.final_layer_norm.weight"),
    "decoder_positions/embeddings": same(f"decoder.{_BIAS}"),
    **self_attention("decoder_{i}/self_attention", f"{_DECODER}.0"),
    "decoder_{i}/cross_attention/query/kernel": linear(f"{_MEMORY}.q.weight"),
    "decoder_{i}/cross_attention/key_value/kernel": linear(
        f"{_MEMORY}.k.weight", f"{_MEMORY}.v.weight"
    ),
    "decoder_{i}/cross_attention/output_projection/kernel": linear(f"{_MEMORY}.o.weight"),
    "decoder_{i}/cross_attention_norm/gamma": same(f"{_DECODER}.1.layer_norm.weight"),
    **feed_forward("decoder_{i}/feed_forward", f"{_DECODER}.2", "wi"),
    "decoder_norm/gamma": same("decoder.final_layer_norm.weight"),
    "output_projection/kernel": linear(OUTPUT),
}
WITH_GATES = {
    **feed_forward("encoder_{i}/feed_forward", f"{_ENCODER}.1", "wi_0", "wi_1"),
    **feed_forward("decoder_{i}/feed_forward", f"{_DECODER}.2", "wi_0", "wi_1"),
}
QUERIES = (
    "encoder_{i}/attention/qkv/kernel",
    "decoder_{i}/self_attention/qkv/kernel",
    "decoder_{i}/cross_attention/query/kernel",
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
MT5 = {"d_ff": 1024, "num_layers": 8, "num_heads": 6, "feed_forward_proj": "gated-gelu"}
FIXED = {
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
    "is_encoder_decoder": True,
}
GATED = {"gelu_tanh": "geglu_tanh", "silu": "swiglu"}
GATE = "gated-"
CONTROL = ("<pad>", "</s>", "<unk>")
LANGUAGE = re.compile(r"<2(\w+)>")  # MADLAD's codes, such as <2de>
_BYTES = "ByT5Tokenizer"


def load(folder, config, tensors, options):
    """Loads a `TextToTextGenerator`; with the option `tgt_lang`, a `Translator` of MADLAD-400.

    Other options are arguments of `zoo.transformer`.
    """
    if config["model_type"] == "mt5":
        config = {**MT5, **config}
    check_settings(folder / "config.json", config, FIXED)
    _check_dtype(folder, options)
    language = options.pop("tgt_lang", None)
    embedding = next((name for name in EMBEDDINGS if name in tensors), EMBEDDINGS[0])
    arguments = _arguments(folder, config)
    arguments["shared"] = "all" if _is_tied(tensors, config, embedding) else "embeddings"
    model = create_model(transformer, tensors, arguments, options)
    assign(model, tensors, _table(model, config, embedding), IGNORED)
    tokenizer = _tokenizer(folder, config, model.source_vocab_size)
    start = config.get("decoder_start_token_id")
    special = SpecialTokens(
        start=model.pad_id if start is None else start,
        end=config.get("eos_token_id", 1),
        pad=model.pad_id,
    )
    tokenizers = [tokenizer, tokenizer]
    task = TextToTextGenerator
    if language is not None:
        tokenizers[0] = _with_language(folder, tokenizer, language)
        task = Translator
    return translators.translator(folder, config, model, tokenizers, special, task)


def _arguments(folder, config):
    """The arguments of `zoo.transformer`."""
    arguments = {ours: config.get(*theirs) for ours, theirs in ARGUMENTS.items()}
    vocab_size = config.get("vocab_size", 32128)
    arguments |= {
        "source_vocab_size": vocab_size,
        "target_vocab_size": vocab_size,
        "norm": "pre",
        "norm_type": "rms",
        "positions": "relative",
        "scale_embeddings": False,
        "qkv_bias": False,
        "use_bias": False,
    }
    network = config.get("feed_forward_proj", "relu")
    name = network.removeprefix(GATE)
    if network == "gated-gelu":
        name = "gelu_new"
    function = activation(folder, {"activation_function": name})
    if network.startswith(GATE):
        if function not in GATED:
            raise CheckpointError(f"{folder}: feed_forward_proj={network!r} is not supported.")
        function = GATED[function]
    arguments["activation"] = function
    return arguments


def _with_language(folder, tokenizer, language):
    """The tokenizer of texts that begin with the code of a target language."""
    matches = [(LANGUAGE.fullmatch(piece), id) for piece, id in tokenizer.vocab.items()]
    codes = {match[1]: id for match, id in matches if match}
    if not codes:
        raise CheckpointError(
            f"{folder} has no tokens of languages. Say in each text what to do, for example "
            f"'translate English to German: Good morning.' Received: tgt_lang={language!r}."
        )
    code = translators.language_id(folder, "tgt_lang", language, codes)
    return tokenizer.with_prefix(tokenizer.vocab[SPACE], code)  # a space, as before a first word


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


def _table(model, config, embedding):
    """The table of `zoo.checkpoints.mapping.assign` for a model."""
    table = {**TABLE, "decoder_embedding/tokens/embeddings": same(embedding)}
    if model.activation in GATED.values():
        table |= WITH_GATES
    queries = model.num_heads * model.key_dim

    def scaled(kernel):  # [in, queries and others]
        factor = np.where(np.arange(kernel.shape[1]) < queries, model.key_dim**0.5, 1)
        return kernel * factor

    for path in QUERIES:
        table[path] = changed(table[path], scaled)
    # T5 1.1, whose output layer is not tied, does not multiply; mT5 never does.
    multiplies = config.get("scale_decoder_outputs", config.get("tie_word_embeddings") is not False)
    if config["model_type"] == "t5" and multiplies:
        path = "decoder_norm/gamma"
        table[path] = changed(table[path], lambda gamma: gamma * model.embed_dim**-0.5)
    return table


def _tokenizer(folder, config, vocab_size):
    """The tokenizer of a folder. ByT5's has no file: its tokens are bytes."""
    saved = translators.tokenizer_settings(folder)
    if _BYTES in (saved.get("tokenizer_class"), config.get("tokenizer_class")):
        return utf8_bytes(CONTROL, vocab_size)
    path = folder / "spiece.model"
    if not path.is_file() and (folder / "tokenizer.json").is_file():
        return unigram(folder, vocab_size)
    tokenizer = translators.tokenizer(path)
    count = len(tokenizer.proto.pieces)
    sentinels = saved.get("extra_ids", min(100, vocab_size - count))
    names = [f"{SPACE}<extra_id_{number}>" for number in reversed(range(sentinels))]
    tokenizer = tokenizer.with_pieces(names, vocab_size)
    check_special_tokens(folder, saved, {name.removeprefix(SPACE): 0 for name in tokenizer.vocab})
    return tokenizer
