"""Models of the program Marian, such as those of Firefox's translations and of OPUS-MT.

Source: marian-nmt/marian-dev, src/models/transformer.h and src/translator/beam_search.cpp.
"""

import re

import numpy as np

from zoo.checkpoints import marian_file, marian_folder
from zoo.checkpoints.building import create_model
from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.hugging_face_translators import language, no_more, tokenizer
from zoo.checkpoints.mapping import Source, assign, changed, joined, same
from zoo.checkpoints.tensors import Tensors
from zoo.decoding import SpecialTokens
from zoo.layers import SinusoidalPositions
from zoo.models.transformer import transformer
from zoo.tasks.translator import Translator

END, UNKNOWN = "</s>", "<unk>"
_NEVER = -1e9  # logit of what is not a token
_LAYER = re.compile(r"(encoder|decoder)_l(\d+)_")
_ACTIVATIONS = {"relu": "relu", "swish": "silu", "gelu": "quick_gelu"}
_NORMS = {("", "an", ""): "post", ("n", "a", "n"): "pre"}  # by what comes before and after a layer
# Options that must have these values, or be missing: another is not supported.
_FIXED = {
    "type": ("transformer",),
    "input-types": ([], ["sequence"], ["sequence", "sequence"]),
    "layer-normalization": ("false",),
    "lemma-dim-emb": ("0",),
    "right-left": ("false",),
    "transformer-decoder-dim-ffn": ("0",),
    "transformer-decoder-ffn-depth": ("0", "2"),
    "transformer-disable-position-embeddings": ("false",),
    "transformer-ffn-depth": ("2",),
    "transformer-no-projection": ("false",),
    "transformer-pool": ("false",),
    "transformer-postprocess-emb": ("", "d"),
    "transformer-rnn-projection": ("false",),
    "ulr": ("false",),
}


def load(path, options):
    """The translator of a file, folder or .zip, see `zoo.load`.

    Args:
        path: `pathlib.Path`.
        options: `dtype`, and `tgt_lang` where there are several target languages.
    """
    with marian_folder.unpacked(path) as folder:
        file, config = marian_folder.model_file(folder)
        tensors, settings = marian_file.read(file)
        vocabs = marian_folder.vocab_files(file, config)
        model = _model(tensors, settings, options.pop("dtype", None))
        sides = [_tokenizer(*files, model.pad_id) for files in vocabs]
    target = options.pop("tgt_lang", None)
    if target is not None:
        codes = _language_codes(sides[0])
        sides[0] = sides[0].with_prefix(language(path, "tgt_lang", target, codes))
    no_more(path, options)
    if float(config.get("word-penalty", 0)):
        print(f"{path}: word-penalty={config['word-penalty']} is not used.")
    end, unknown = _id(sides[1], END, 0), _id(sides[1], UNKNOWN, 1)
    special = SpecialTokens(start=model.pad_id, end=end, pad=model.pad_id)
    return Translator(
        model,
        *sides,
        beam_size=int(config.get("beam-size", 1)),
        length_penalty=float(config.get("normalize", 0.0)),
        special_tokens=special,
        length_offset=0.0,
        search_options={"suppress_tokens": (unknown,)},
    )


# --- vocabularies --------------------------------------------------------------------------------


def _tokenizer(model, pieces, pad_id):
    """The tokenizer of a SentencePiece model, whose pieces may have other ids in a file."""
    if pieces is None:
        return tokenizer(model, vocab_size=pad_id + 1)
    text = pieces.read_text(encoding="utf-8")
    if pieces.suffix == ".yml":
        vocab = {piece: int(id) for piece, id in marian_file.read_yaml(pieces, text).items()}
    else:
        vocab = {line.split("\t")[0]: id for id, line in enumerate(text.splitlines())}
    unknown = vocab.get(UNKNOWN, 1)
    prefixes = any(piece.startswith(">>") for piece in vocab)
    return tokenizer(model, vocab, unknown, (END, UNKNOWN), pad_id + 1, language_prefixes=prefixes)


def _language_codes(tokenizer):
    pieces = (tokenizer.vocab or {}).items()
    return {piece[2:-2]: id for piece, id in pieces if re.fullmatch(">>.+<<", piece)}


def _id(tokenizer, piece, default):
    ids = {piece: id for id, piece in tokenizer.tokens.items()}
    return ids.get(piece, default)


# --- the model -----------------------------------------------------------------------------------


def _matrix(*names):
    """Matrices [in, out], side by side."""
    return Source(names, lambda *arrays: np.concatenate(arrays, axis=-1))


def _vector(*names):
    """Matrices of one row, as one vector."""
    return changed(joined(*names), np.ravel)


def _attention(path, name, inputs, layer):
    """The entries of attention; `layer` is that of the projections side by side."""
    return {
        f"{path}/{layer}/kernel": _matrix(*(f"{name}_W{letter}" for letter in inputs)),
        f"{path}/{layer}/bias": _vector(*(f"{name}_b{letter}" for letter in inputs)),
        f"{path}/output_projection/kernel": same(f"{name}_Wo"),
        f"{path}/output_projection/bias": _vector(f"{name}_bo"),
    }


def _norm(path, name, suffix=""):
    names = {"gamma": f"{name}_ln_scale{suffix}", "beta": f"{name}_ln_bias{suffix}"}
    return {f"{path}/{part}": _vector(each) for part, each in names.items()}


def _table(norm, has_attention):
    """The entries of all blocks and of the layers after them."""
    suffix, table = ("_pre" if norm == "pre" else ""), {}
    for side, own in (("encoder", "attention"), ("decoder", "self_attention")):
        path, name = f"{side}_{{i}}", f"{side}_l{{i}}"
        if side == "encoder" or has_attention:
            table |= _attention(f"{path}/{own}", f"{name}_self", "qkv", "qkv")
            table |= _norm(f"{path}/{own}_norm", f"{name}_self_Wo", suffix)
        for number, layer in (("1", "hidden"), ("2", "output_projection")):
            table[f"{path}/feed_forward/{layer}/kernel"] = same(f"{name}_ffn_W{number}")
            table[f"{path}/feed_forward/{layer}/bias"] = _vector(f"{name}_ffn_b{number}")
        table |= _norm(f"{path}/feed_forward_norm", f"{name}_ffn_ffn", suffix)
        table |= _norm(f"{side}_norm", f"{side}_top")
    if not has_attention:
        table |= {
            "decoder_{i}/self_attention/candidate/kernel": same("decoder_l{i}_rnn_W"),
            "decoder_{i}/self_attention/forget_gate/kernel": same("decoder_l{i}_rnn_Wf"),
            "decoder_{i}/self_attention/forget_gate/bias": _vector("decoder_l{i}_rnn_bf"),
            **_norm("decoder_{i}/self_attention_norm", "decoder_l{i}_rnn_ffn", suffix),
        }
    cross = "decoder_{i}/cross_attention"
    table |= _attention(cross, "decoder_l{i}_context", "kv", "key_value")
    table |= {f"{cross}/query/kernel": same("decoder_l{i}_context_Wq")}
    table |= {f"{cross}/query/bias": _vector("decoder_l{i}_context_bq")}
    return table | _norm(f"{cross}_norm", "decoder_l{i}_context_Wo", suffix)


def _model(tensors, settings, dtype):
    """The model with its weights. Padding, which is the start too, is one more token than Marian's.

    Marian starts with an embedding of zeros, that of padding here.
    """
    path = tensors.path
    arguments, has_attention = _arguments(path, settings)
    tensors = _numbered(tensors, settings)
    source, target, output = _embedding_names(tensors)
    sizes = [tensors.shape(name, 2)[0] for name in (source, target)]
    pad = max(sizes)
    is_tied = output == target
    arguments |= {
        "source_vocab_size": pad + 1,
        "target_vocab_size": pad + 1,
        "pad_id": pad,
        "shared": ("all" if source == target else "target") if is_tied else "none",
        "logits_bias": True,
        "dtype": dtype,
    }
    if arguments["positions"] == "learned":
        arguments["max_length"] = tensors.shape("Wpos", 2)[0]
    model = create_model(transformer, tensors, arguments)
    table = _table(arguments["norm"], has_attention)
    table |= {f"{side}_positions/embeddings": same("Wpos") for side in ("source", "target")}
    for side, name in (("source", source), ("target", target)):
        table[f"{side}_embedding/embeddings"] = Source((name,), lambda x: _padded(x, pad + 1))
    is_transposed = output.endswith("t")
    table["output_projection/kernel"] = Source(
        (output,), lambda x: _padded(x if is_transposed else x.T, pad + 1).T
    )
    bias = [name for name in ("decoder_ff_logit_out_b",) if name in tensors]
    table["output_bias"] = Source(
        tuple(bias), lambda *x: _bias(x[0] if x else np.zeros(sizes[1]), sizes[1], pad + 1)
    )
    assign(model, tensors, table)
    return model


def _padded(matrix, size):
    """A matrix [n, E] with rows of zeros: [size, E]."""
    return np.concatenate([matrix, np.zeros((size - len(matrix), matrix.shape[1]), matrix.dtype)])


def _bias(bias, count, size):
    """The bias of `count` tokens as a vector [size], in which nothing else is ever a token."""
    rest = np.full(size - count, _NEVER, np.float32)
    return np.concatenate([bias.reshape(-1)[:count].astype(np.float32), rest])


def _arguments(path, settings):
    """Arguments of `zoo.transformer`, and whether the decoder has self-attention."""
    for name, supported in _FIXED.items():
        if settings.get(name, supported[0]) not in supported:
            raise CheckpointError(f"{path}: {name}={settings[name]!r} is not supported.")
    kind = settings.get("transformer-decoder-autoreg", "self-attention")
    if (kind, settings.get("dec-cell")) != ("rnn", "ssru") and kind != "self-attention":
        cell = f", dec-cell={settings.get('dec-cell')!r}" if kind == "rnn" else ""
        raise CheckpointError(
            f"{path}: transformer-decoder-autoreg={kind!r}{cell} is not supported."
        )
    names = ("preprocess", "postprocess", "postprocess-top")
    order = [settings.get(f"transformer-{name}", "") for name in names]
    norm = _NORMS.get(tuple(each.replace("d", "") for each in order))  # d: dropout
    if norm is None:
        given = ", ".join(f"transformer-{n}={x!r}" for n, x in zip(names, order))
        raise CheckpointError(f"{path}: {given} are not supported.")
    activation = settings.get("transformer-ffn-activation", "swish")
    if activation not in _ACTIVATIONS:
        raise CheckpointError(f"{path}: the activation {activation!r} is not supported.")
    width = int(settings["dim-emb"])
    is_trained = settings.get("transformer-train-position-embeddings") == "true"
    half = width // 2
    wavelength = 10000.0 ** (half / (half - 1))
    arguments = {
        "embed_dim": width,
        "num_heads": int(settings["transformer-heads"]),
        "ff_dim": int(settings["transformer-dim-ffn"]),
        "num_layers": int(settings["enc-depth"]),
        "num_decoder_layers": int(settings["dec-depth"]),
        "activation": _ACTIVATIONS[activation],
        "norm": norm,
        "positions": "learned"
        if is_trained
        else SinusoidalPositions("halves", max_wavelength=wavelength),
        "scale_embeddings": not is_trained,
        "decoder": "attention" if kind == "self-attention" else "ssru",
        "epsilon": 1e-6,
    }
    return arguments, kind == "self-attention"


def _numbered(tensors, settings):
    """The tensors with layers from 0 on, and those of layers that share theirs with others."""
    tied, depth = settings.get("transformer-tied-layers") or [], int(settings["dec-depth"])
    tied = [int(layer) for layer in tied] or range(1, depth + 1)
    entries = {}
    for name, entry in tensors.entries.items():
        match = _LAYER.match(name)
        if match is None:
            entries[name] = entry
            continue
        side, layer = match[1], int(match[2])
        places = [i for i, each in enumerate(tied) if each == layer]
        for index in places if side == "decoder" else [layer - 1]:
            entries[f"{side}_l{index}_{name[match.end() :]}"] = entry
    return Tensors(tensors.path, entries)


def _embedding_names(tensors):
    """The names of the embeddings of source and target and of the output's matrix."""
    sides = [
        next((n for n in (f"{side}_Wemb", "Wemb") if n in tensors), f"{side}_Wemb")
        for side in ("encoder", "decoder")
    ]
    outputs = ("decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W")
    return (*sides, next((name for name in outputs if name in tensors), sides[1]))
