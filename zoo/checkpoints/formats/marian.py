"""Models of the program Marian, such as Firefox's translation models and OPUS-MT.

Source: marian-nmt/marian-dev, src/models/transformer.h and src/translator/beam_search.cpp.
"""

import contextlib
import functools
import re

import numpy as np

from zoo.checkpoints import hugging_face_translators as translators
from zoo.checkpoints import marian_file, marian_folder, marian_shortlist
from zoo.checkpoints.building import create_model
from zoo.checkpoints.hugging_face_config import read_json
from zoo.checkpoints.mapping import Source, assign, changed, joined, row, same
from zoo.checkpoints.tensors import Tensors
from zoo.decoding import SpecialTokens
from zoo.errors import CheckpointError, as_number
from zoo.models.transformer import transformer
from zoo.tasks.translator import Translator
from zoo.tasks.weight_names import MAX_LAYERS
from zoo.text.sentencepiece import LANGUAGE

ANCHOR = None  # the weights are read here
END = "</s>"
UNKNOWN = "<unk>"
CONTROL = (END, UNKNOWN)
# The logit of the padding token. Its probability is exactly 0 in any dtype, but the logit is small
# enough to add less than 0.1 to a loss with label smoothing.
_NEVER = -1e3
_SIDES = ("encoder", "decoder")
_LAYER = re.compile(r"(encoder|decoder)_l(\d+)_")
_ACTIVATIONS = {"swish": "silu", "relu": "relu", "gelu": "quick_gelu"}
# By preprocess, postprocess and postprocess-top: "a" adds the residual, "n" normalizes.
_NORMS = {("", "an", ""): "post", ("n", "a", "n"): "pre"}
# The supported values of options, the default first.
_SUPPORTED = {
    "type": ("transformer",),
    "input-types": ([], ["sequence"], ["sequence", "sequence"]),
    "layer-normalization": ("false",),
    "lemma-dim-emb": ("0",),
    "output-omit-bias": ("false",),
    "right-left": ("false",),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    "transformer-decoder-dim-ffn": ("0",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-disable-position-embeddings": ("false",),
    "transformer-ffn-activation": (*_ACTIVATIONS,),
    "transformer-ffn-depth": ("2",),
    "transformer-no-projection": ("false",),
    "transformer-pool": ("false",),
    "transformer-postprocess-emb": ("", "d"),
    "transformer-rnn-projection": ("false",),
    "transformer-train-position-embeddings": ("false", "true"),
    "ulr": ("false",),
}
# Options of the search that are ignored with a note, unless they are off.
_UNUSED = ("n-best", "output-sampling", "word-penalty")
_OFF = ("false", "0", "0.0", "")


def _dense(path, name, letters):
    """The entries of a dense layer that concatenates the matrices with these letters."""
    kernels = [f"{name}_W{letter}" for letter in letters]
    biases = [f"{name}_b{letter}" for letter in letters]
    return {
        f"{path}/kernel": Source(tuple(kernels), lambda *arrays: np.concatenate(arrays, axis=-1)),
        f"{path}/bias": changed(joined(*biases), np.ravel),
    }


def _norm(path, name):
    return {f"{path}/gamma": row(f"{name}_ln_scale"), f"{path}/beta": row(f"{name}_ln_bias")}


def _sublayer(path, name, norm, **layers):
    """The entries of a sublayer and its normalization; `layers` are {name: letters of matrices}."""
    table = _norm(f"{path}_norm", f"{name}_{norm}")
    for layer, letters in layers.items():
        table |= _dense(f"{path}/{layer}", name, letters)
    return table


_attention = functools.partial(_sublayer, norm="Wo", output_projection="o")
_feed_forward = functools.partial(_sublayer, norm="ffn", hidden="1", output_projection="2")
_TABLE = {  # layers are numbered from 0, see `_renamed`
    **_attention("encoder_{i}/attention", "encoder_l{i}_self", qkv="qkv"),
    **_feed_forward("encoder_{i}/feed_forward", "encoder_l{i}_ffn"),
    **_attention("decoder_{i}/self_attention", "decoder_l{i}_self", qkv="qkv"),
    "decoder_{i}/self_attention/candidate/kernel": same("decoder_l{i}_rnn_W"),
    **_dense("decoder_{i}/self_attention/forget_gate", "decoder_l{i}_rnn", "f"),
    **_attention("decoder_{i}/cross_attention", "decoder_l{i}_context", query="q", key_value="kv"),
    **_feed_forward("decoder_{i}/feed_forward", "decoder_l{i}_ffn"),
    **_norm("encoder_norm", "encoder_top"),
    **_norm("decoder_norm", "decoder_top"),
    "encoder_embedding/positions/embeddings": same("Wpos"),
    "decoder_embedding/positions/embeddings": same("Wpos"),
}


def _renamed(tensors, settings):
    """The tensors with the names in `_TABLE`; those of a tied layer have one for each use."""
    matches = {name: _LAYER.match(name) for name in tensors}
    found = sorted({(match[1], int(match[2])) for match in matches.values() if match})
    layers = {side: [layer for each, layer in found if each == side] for side in _SIDES}
    tied = settings.get("transformer-tied-layers")  # the number of each layer of the decoder
    layers["decoder"] = [int(layer) for layer in tied or layers["decoder"]]
    for side, numbers in layers.items():
        depth = settings.get(f"{side[:3]}-depth")
        count = len(numbers)
        if depth != str(count) or count > MAX_LAYERS:
            raise CheckpointError(
                f"{tensors.path}: {side[:3]}-depth={depth}, but there are tensors of {count} "
                f"{side} layers."
            )
    entries = {}
    for name, match in matches.items():
        if match is None:
            entries[name] = tensors.entries[name]
            continue
        # the names of norms in pre-norm models, and in recurrent layers
        rest = name[match.end() :].removesuffix("_pre").replace("rnn_ffn_ln_", "self_Wo_ln_")
        for index, layer in enumerate(layers[match[1]]):
            if layer == int(match[2]):
                entries[f"{match[1]}_l{index}_{rest}"] = tensors.entries[name]
    return Tensors(tensors.path, entries)


def load(path, config, tensors, options):
    """Loads a translator; options are `shortlist`, `tgt_lang`, arguments of `zoo.transformer`."""
    with marian_folder.unpacked(path) as unpacked:
        return _load(unpacked, options)


def _load(path, options):
    language = options.pop("tgt_lang", None)
    with_shortlist = options.pop("shortlist", None)
    file, config = marian_folder.model_file(path)
    tensors, settings = marian_file.read(file)
    arguments = _arguments(file, settings)
    tensors = _renamed(tensors, settings)
    names = _matrices(tensors)
    sizes = [tensors.shape(name, 2)[0] for name in names[:2]]
    pad = min(sizes)
    vocabs = marian_folder.vocab_files(file, config)
    source, target = (_tokenizer(*files, size, pad) for files, size in zip(vocabs, sizes))
    ends = {source.vocab[END], target.vocab[END]}
    if len(ends) > 1:
        raise CheckpointError(f"{path}: the ids of {END} in source and target differ: {ends}.")
    if language is not None:
        codes = {piece[2:-2]: piece for piece in source.vocab if LANGUAGE.fullmatch(piece)}
        code = translators.language_id(path, "tgt_lang", language, codes)
        [prefix] = source.encode([code])
        source = source.with_prefix(*prefix)
    model = _model(tensors, names, sizes, pad, arguments, options)
    unused = [f"{name}={config[name]}" for name in _UNUSED if config.get(name, "0") not in _OFF]
    if unused:
        print(f"{file.name}: ignored settings of its configuration: {', '.join(unused)}.")
    never = () if config.get("allow-unk") == "true" else (target.unknown,)
    translator = Translator(
        model,
        source,
        target,
        beam_size=_number(config, "beam-size", int, 1),
        length_penalty=_number(config, "normalize", float, 0),
        special_tokens=SpecialTokens(start=pad, end=ends.pop(), pad=pad),
        length_offset=0.0,
        search_options={"suppress_tokens": never},
    )
    if with_shortlist:
        if model.output_projection is not None:
            raise CheckpointError(
                f"{path}: shortlist=True is for models whose output layer is the target embedding."
            )
        lexicon = marian_folder.shortlist_file(file, config)
        is_shared = vocabs[0] == vocabs[1]
        translator.shortlist = marian_shortlist.read(lexicon, sizes, pad, is_shared)
    return translator


def _number(settings, name, kind, default=None):
    """Converts a setting to int or float; raises `TaskError` if it is not a number."""
    value = settings.get(name, default)
    with contextlib.suppress(TypeError, ValueError):
        value = kind(value)
    return as_number(name, value, kind)


def _tokenizer(model, pieces, size, pad):
    """Creates a tokenizer with the new token `pad`; ids from there on are one higher than before.

    `model` and `pieces` are paths, see `marian_folder.vocab_files`; `size` is the number of tokens.
    """
    if pieces is None:
        vocab = {piece: id for id, piece in translators.tokenizer(model).tokens.items()}
    elif pieces.suffix in (".yml", ".yaml", ".json"):
        read = read_json if pieces.suffix == ".json" else marian_file.read_yaml
        content = read(pieces)
        vocab = {piece: _number(content, piece, int) for piece in content}
    else:
        lines = pieces.read_bytes().decode(errors="replace").split("\n")
        vocab = {line.rstrip("\r").split("\t")[0]: id for id, line in enumerate(lines) if line}
    vocab = {END: 0, UNKNOWN: 1} | vocab
    if max(vocab.values()) >= size:
        raise CheckpointError(
            f"{pieces or model} has ids up to {max(vocab.values())}, and the model {size} tokens."
        )
    vocab = {piece: id + 1 if id >= pad else id for piece, id in vocab.items()}
    prefixes = pieces is not None and any(piece.startswith(">>") for piece in vocab)
    return translators.tokenizer(
        model, vocab, vocab[UNKNOWN], CONTROL, size + 1, language_prefixes=prefixes
    )


def _arguments(path, settings):
    """The arguments of `zoo.transformer` for Marian's settings."""
    settings = {name: values[0] for name, values in _SUPPORTED.items()} | settings
    wrong = [name for name, values in _SUPPORTED.items() if settings[name] not in values]
    is_recurrent = settings["transformer-decoder-autoreg"] == "rnn"
    if is_recurrent and settings.get("dec-cell") != "ssru":
        wrong.append("dec-cell")
    order = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
    # "d" is dropout
    norm = _NORMS.get(tuple(settings.get(name, "").replace("d", "") for name in order))
    if norm is None:
        wrong += order
    if wrong:
        given = ", ".join(f"{name}={settings.get(name)!r}" for name in wrong)
        raise CheckpointError(f"{path}: not supported: {given}.")
    is_trained = settings["transformer-train-position-embeddings"] == "true"
    return {
        "num_layers": _number(settings, "enc-depth", int),
        "num_decoder_layers": _number(settings, "dec-depth", int),
        "num_heads": _number(settings, "transformer-heads", int),
        "activation": _ACTIVATIONS[settings["transformer-ffn-activation"]],
        "norm": norm,
        "positions": "learned" if is_trained else "sinusoidal",
        "scale_embeddings": not is_trained,
        "decoder": "ssru" if is_recurrent else "attention",
    }


def _matrices(tensors):
    """The names of the source and target embeddings, and of the output projection."""
    source = "encoder_Wemb" if "encoder_Wemb" in tensors else "Wemb"
    target = "decoder_Wemb" if "decoder_Wemb" in tensors else "Wemb"
    for output in ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"):
        if output in tensors:
            return source, target, output
    return source, target, target


def _model(tensors, names, sizes, pad, arguments, options):
    """Creates the model and assigns its weights.

    Marian starts with an embedding of zeros, and has no padding token. Here, the new token `pad`
    with an embedding of zeros is both. For `names` see `_matrices`; `sizes` are Marian's.
    """
    source, target, output = names
    embed_dim = tensors.shape(source, 2)[1]
    if output != target:
        shared = "none"
    elif source != target:
        shared = "target"
    else:
        shared = "all"
    arguments = {
        **arguments,
        "source_vocab_size": sizes[0] + 1,
        "target_vocab_size": sizes[1] + 1,
        "pad_id": pad,
        "embed_dim": embed_dim,
        "ff_dim": tensors.shape("encoder_l0_ffn_W1", 2)[1],
        "shared": shared,
        "logits_bias": True,
        "epsilon": 1e-6,
    }
    if arguments["positions"] == "learned":
        arguments["max_length"] = tensors.shape("Wpos", 2)[0]
    else:
        arguments["positions"] = translators.sinusoidal_positions(embed_dim)
    model = create_model(transformer, tensors, arguments, options)

    def padded(source, value=0.0):
        return changed(source, lambda x: np.insert(x, pad, value, axis=0))

    matrix = same(output)  # [V, E]
    if output.endswith("_W"):  # [E, V], in older files
        matrix = changed(matrix, np.transpose)
    table = {
        "encoder_embedding/tokens/embeddings": padded(same(source)),
        "decoder_embedding/tokens/embeddings": padded(same(target)),
        "output_projection/kernel": changed(padded(matrix), np.transpose),
        "output_bias": padded(row("decoder_ff_logit_out_b"), _NEVER),
    }
    assign(model, tensors, _TABLE | table)
    return model
