"""What Hugging Face's translation models share: names of tensors, arguments and search."""

import re

from zoo.checkpoints import hugging_face_config, mapping
from zoo.checkpoints.building import create_model
from zoo.checkpoints.generation_config import search_settings
from zoo.checkpoints.hugging_face_config import activation, check_settings
from zoo.checkpoints.mapping import assign, changed, dense, linear, norm, row, same
from zoo.errors import CheckpointError, TokenizerError
from zoo.layers import SinusoidalPositions
from zoo.models.transformer import transformer
from zoo.tasks.translator import Translator
from zoo.text.sentencepiece import SentencePieceTokenizer

SHARED = "model.shared.weight"
SOURCE = "model.encoder.embed_tokens.weight"
TARGET = "model.decoder.embed_tokens.weight"
OUTPUT = "lm_head.weight"
# Other values are not supported. With legacy_behaviour, NLLB's language code follows the text.
_TOKENIZER = {
    "eos_token": "</s>",
    "unk_token": "<unk>",
    "sp_model_kwargs": {},
    "legacy_behaviour": False,
}
_ENCODER = "model.encoder.layers.{i}"
_DECODER = "model.decoder.layers.{i}"


def attention(path, name, inputs="qkv"):
    """The entries of an attention layer; `inputs` names the projections that share a kernel."""
    return {
        **dense(path, *(f"{name}.{letter}_proj" for letter in inputs)),
        **dense(f"{path.rsplit('/', 1)[0]}/output_projection", f"{name}.out_proj"),
    }


def feed_forward(path, name):
    """The entries of a feed-forward network and its normalization."""
    return {
        **mapping.feed_forward(path, f"{name}.fc1", f"{name}.fc2"),
        **norm(f"{path}_norm", f"{name}.final_layer_norm"),
    }


TABLE = {
    **attention("encoder_{i}/attention/qkv", f"{_ENCODER}.self_attn"),
    **norm("encoder_{i}/attention_norm", f"{_ENCODER}.self_attn_layer_norm"),
    **feed_forward("encoder_{i}/feed_forward", _ENCODER),
    **attention("decoder_{i}/self_attention/qkv", f"{_DECODER}.self_attn"),
    **norm("decoder_{i}/self_attention_norm", f"{_DECODER}.self_attn_layer_norm"),
    **attention("decoder_{i}/cross_attention/query", f"{_DECODER}.encoder_attn", "q"),
    **attention("decoder_{i}/cross_attention/key_value", f"{_DECODER}.encoder_attn", "kv"),
    **norm("decoder_{i}/cross_attention_norm", f"{_DECODER}.encoder_attn_layer_norm"),
    **feed_forward("decoder_{i}/feed_forward", _DECODER),
    **norm("encoder_embedding/norm", "model.encoder.layernorm_embedding"),
    **norm("decoder_embedding/norm", "model.decoder.layernorm_embedding"),
    **norm("encoder_norm", "model.encoder.layer_norm"),
    **norm("decoder_norm", "model.decoder.layer_norm"),
    "output_bias": row("final_logits_bias"),
    "output_projection/kernel": linear(OUTPUT),
}
ARGUMENTS = {  # argument of `zoo.transformer`: its name in config.json
    "source_vocab_size": "vocab_size",
    "embed_dim": "d_model",
    "num_layers": "encoder_layers",
    "num_decoder_layers": "decoder_layers",
    "num_heads": "encoder_attention_heads",
    "decoder_num_heads": "decoder_attention_heads",
    "ff_dim": "encoder_ffn_dim",
    "decoder_ff_dim": "decoder_ffn_dim",
    "max_length": "max_position_embeddings",
    "pad_id": "pad_token_id",
    "scale_embeddings": "scale_embedding",
}


def learned_positions(unused=2):
    """The entries of positions; the first rows, as many as `unused`, are for no position."""
    return {
        f"{coder}_embedding/positions/embeddings": changed(
            same(f"model.{coder}.embed_positions.weight"), lambda x: x[unused:]
        )
        for coder in ("encoder", "decoder")
    }


def build(tensors, config, options, is_shared=True, table=None, ignored=(), **arguments):
    """Builds a Transformer and assigns its weights.

    Args:
        tensors, ignored: see `zoo.checkpoints.mapping.assign`.
        config, options: content of config.json, and options of `zoo.load`.
        is_shared: whether source and target have the same embedding.
        table: addition to `TABLE`.
        **arguments: arguments of `zoo.transformer` that config.json does not give.
    """
    is_tied = config.get("tie_word_embeddings", True)
    # Shared tensors may be stored once, under any of their names.
    target = [SHARED, TARGET, SOURCE] if is_shared else [TARGET]
    if is_tied:
        target.append(OUTPUT)
    source = target if is_shared else [SOURCE]
    embeddings = {
        "encoder_embedding/tokens/embeddings": same(_stored_name(tensors, source)),
        "decoder_embedding/tokens/embeddings": same(_stored_name(tensors, target)),
    }
    if not is_tied:
        shared = "none"
    elif is_shared:
        shared = "all"
    else:
        shared = "target"
    arguments |= {ours: config[theirs] for ours, theirs in ARGUMENTS.items()}
    arguments |= {
        "target_vocab_size": config.get("decoder_vocab_size") or config["vocab_size"],
        "dropout": config.get("dropout", 0.1),
        "attention_dropout": config.get("attention_dropout", 0.0),
        "activation": activation(tensors.path, config),
        "shared": shared,
        "logits_bias": "final_logits_bias" in tensors,
        "epsilon": 1e-5,
    }
    model = create_model(transformer, tensors, arguments, options)
    ignored = [*map(re.escape, {*source, *target}), *ignored]
    assign(model, tensors, {**TABLE, **embeddings, **(table or {})}, ignored)
    return model


def _stored_name(tensors, names):
    """The first of the names that is in the file; the first of all if none is."""
    for name in names:
        if name in tensors:
            return name
    return names[0]


def tokenizer_settings(folder):
    """As in `hugging_face_config`; raises `CheckpointError` for settings that are not supported."""
    settings = hugging_face_config.tokenizer_settings(folder)
    check_settings(folder / "tokenizer_config.json", settings, _TOKENIZER)
    return settings


def sinusoidal_positions(embed_dim, offset=0):
    """`SinusoidalPositions` of fairseq and Marian: frequency k of h is 10000**(-k / (h - 1))."""
    half = embed_dim // 2
    wavelength = 10000.0 ** (half / (half - 1))
    return SinusoidalPositions("halves", max_wavelength=wavelength, offset=offset)


def tokenizer(path, *args, **kwargs):
    """Creates the `SentencePieceTokenizer` of a model file, with its other arguments."""
    try:
        return SentencePieceTokenizer(path.read_bytes(), *args, **kwargs)
    except FileNotFoundError:
        if not (path.parent / "tokenizer.json").is_file():
            raise
        raise CheckpointError(
            f"{path.parent} contains no {path.name}, in place of which transformers 5 writes "
            "tokenizer.json: copy it from the published model."
        ) from None
    except TokenizerError as error:
        raise CheckpointError(f"{path}: {error}") from None


def translator(folder, config, model, tokenizers, special, create=Translator):
    """Creates the translator, or another task by `create`, with the folder's search settings."""
    search, options = search_settings(folder, config, special)
    if not special.prefix and "forced_bos_token_id" in search:
        special = special._replace(prefix=(search["forced_bos_token_id"],))
    if "max_new_tokens" in search:
        length = search["max_new_tokens"]
    elif "max_length" in search:
        length = search["max_length"] - 1  # transformers counts the start token
    else:
        length = model.max_length
    task = create(
        model,
        *tokenizers,
        beam_size=search.get("num_beams", 1),
        length_penalty=search.get("length_penalty", 1.0),
        special_tokens=special,
        length_offset=0.0,
        early_stopping=search.get("early_stopping", False),
        max_length=min(length, model.max_length),
        search_options=options,
    )
    for tokenizer in tokenizers:
        _check_special_tokens(folder, tokenizer, special)
    return task


def _check_special_tokens(folder, tokenizer, special):
    """Raises `CheckpointError` if ids of config.json mean something else in the tokenizer."""
    for token in ("</s>", " </s>"):  # the second in a `LibraryTokenizer`
        if tokenizer.vocab.get(token, special.end) != special.end:
            raise CheckpointError(
                f"{folder}: eos_token_id in config.json is {special.end}, but the tokenizer ends "
                f"texts with the id {tokenizer.vocab[token]}."
            )
    for name, id in (("eos_token_id", special.end), ("pad_token_id", special.pad)):
        if tokenizer.token_bytes[id]:
            raise CheckpointError(
                f"{folder}: {name} in config.json, {id}, is text in the tokenizer."
            )


def language_id(folder, name, code, codes):
    """Returns the id of a language code, given as the option `name`; `codes` is {code: id}."""
    if code in codes:
        return codes[code]
    if not codes:
        raise CheckpointError(f"{folder} has one language pair. Received: {name}={code!r}.")
    flag = f"--{name.replace('_', '-')}"
    received = f"no {name}" if code is None else f"{name}={code!r}"
    raise CheckpointError(
        f"{folder} needs the language {name} ({flag}), one of {', '.join(codes)}. Received: "
        f"{received}."
    )
