"""Exports translators to CTranslate2, an inference engine for Transformers.

Axes: B sentences, S source tokens, T target tokens, E model width.
"""

import pathlib
import shutil

import numpy as np
import tensorflow as tf
from keras import ops
from keras.ops import convert_to_numpy

from zoo import decoding
from zoo.deploy import checks
from zoo.deploy.plain_graphs import plain_copy
from zoo.errors import ExportError, needed
from zoo.models.base import unsupported_settings
from zoo.models.positions import POSITIONS_IN_ATTENTION
from zoo.text import layout

_PROGRAM = pathlib.Path(__file__).parent / "programs" / "translate.py"
_LAYOUT = pathlib.Path(layout.__file__)
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
_ACTIVATIONS |= {"quick_gelu": "GELUSigmoid", "swish": "SWISH", "tanh": "Tanh"}


def write(original, folder, dtype="float32", **options):
    """Writes ``model.bin`` with its vocabularies, the SentencePiece models and ``translate.py``.

    See `zoo.deploy.export`. The options are not used here: the program reads them in export.json.
    """
    folder = pathlib.Path(folder)
    sides = {"source": original.source_tokenizer, "target": original.target_tokenizer}
    tokens = [tokens_of(tokenizer) for tokenizer in sides.values()]
    special, unknown = original.special_tokens, original.source_tokenizer.unknown
    write_model(original.model, special, folder, dtype, tokens, tokens[0][unknown])
    for side, tokenizer in sides.items():
        (folder / f"{side}.spm").write_bytes(tokenizer.model)
    for file in (_PROGRAM, _LAYOUT):
        shutil.copy(file, folder)
    checked = _check(original, folder, tokens, dtype)
    (source, target), decodes, options = tokens, original.target_tokenizer, original.options()
    search = {
        "source_prefix": [source[id] for id in original.source_tokenizer.prefix],
        "target_prefix": [target[id] for id in special.prefix],
        "end": source[special.end],
        "suppressed": [target[id] for id in decoding.excluded(special, options)],
        "forced_eos": options.forced_eos,
        "options": search_options(options),
        "left_out": [*decodes.control],
        "strips": decodes.proto.normalizer_spec.remove_extra_whitespaces,
    }
    needs = ["ctranslate2", "sentencepiece"]
    return {"needs": needs, "signatures": {}, "checked": checked, "search": search}


def _check(original, folder, tokens, dtype):
    """Compares the log-probabilities per token of a few random translations."""
    special, random = original.special_tokens, np.random.default_rng(0)
    shape, control = (8, min(12, original.model.max_length) - 1), [special.end, special.pad]
    sides = [np.setdiff1d(range(3, len(side)), control) for side in tokens]
    sides = [random.choice(ids, shape).astype("int32") for ids in sides]
    ended = [np.pad(ids, [(0, 0), (0, 1)], constant_values=special.end) for ids in sides]
    with tf.device("CPU"):  # on a GPU products may be rounded to TensorFloat-32
        expected = original.log_probs(*map(tf.constant, ended)).numpy()
    ids = ended[0], sides[1]  # CTranslate2 adds the end token of a translation
    texts = [[[words[id] for id in row] for row in ids] for ids, words in zip(ids, tokens)]
    scores = needed("ctranslate2").Translator(str(folder)).score_batch(*texts)
    forced = len(special.prefix)  # tokens whose log-probability is 0
    found = [sum(one.log_probs[forced:]) for one in scores]
    difference = np.abs(found - expected) / (shape[1] + 1 - forced)
    measured = {"largest_difference": float(difference.max())}
    measured["mean_difference"] = float(difference.mean())
    # The probabilities of random tokens are so small that only their logarithms differ.
    if {dtype, original.model.compute_dtype} == {"float32"}:
        return checks.report("ctranslate2", measured, 1e-3)
    return checks.report("ctranslate2", measured, 0.5, "mean_difference")


def search_options(options):
    """Converts `zoo.decoding.SearchOptions` to arguments of CTranslate2, but for suppressed tokens.

    Its lengths count neither the start token nor the end token.
    """
    return {
        "no_repeat_ngram_size": options.no_repeat_ngram_size,
        "repetition_penalty": options.repetition_penalty,
        "min_decoding_length": max(options.min_length - 1, options.min_new_tokens, 0),
    }


def tokens_of(tokenizer):
    """Returns the token of each id of a `zoo.text.sentencepiece.SentencePieceTokenizer`."""
    return [tokenizer.tokens.get(id, f"[unused{id}]") for id in range(tokenizer.vocab_size)]


def write_model(model, special, folder, dtype="float32", tokens=None, unknown=None):
    """Writes a model without tokenizers.

    Args:
        model: `zoo.models.Transformer`.
        special: `zoo.decoding.SpecialTokens`.
        folder, dtype: see `write`.
        tokens: the source and the target tokens, two lists of str; by default their ids.
        unknown: the source token for all others.

    Raises:
        ExportError: if CTranslate2 does not support such a model.
    """
    specs = needed("ctranslate2").specs
    _check_kind(model)
    sizes = (model.source_vocab_size, model.target_vocab_size)
    source, target = tokens or [[*map(str, range(size))] for size in sizes]
    copy = plain_copy(model)
    spec = specs.TransformerSpec.from_config(
        (len(copy.encoder_blocks), len(copy.decoder_blocks)),
        copy.num_heads,
        pre_norm=copy.norm == "pre",
        activation=specs.Activation[_ACTIVATIONS[copy.activation]],
        layernorm_embedding=copy.normalize_embeddings,
    )
    spec.decoder.num_heads = np.int16(copy.decoder_num_heads or copy.num_heads)
    _copy_embedding(spec.encoder, spec.encoder.embeddings[0], copy.encoder_embedding)
    _copy_embedding(spec.decoder, spec.decoder.embeddings, copy.decoder_embedding)
    for layer, block in zip(spec.encoder.layer, copy.encoder_blocks):
        _copy_block(layer, block)
    for layer, block in zip(spec.decoder.layer, copy.decoder_blocks):
        _copy_block(layer, block)
    if copy.norm == "pre":
        _copy_norm(spec.encoder.layer_norm, copy.encoder_norm)
        _copy_norm(spec.decoder.layer_norm, copy.decoder_norm)
    if copy.output_projection is None:
        spec.decoder.projection.weight = convert_to_numpy(copy.decoder_embedding.tokens.embeddings)
    else:
        _copy_dense(spec.decoder.projection, copy.output_projection)
    if copy.logits_bias:
        spec.decoder.projection.bias = convert_to_numpy(copy.output_bias)
    spec.config.layer_norm_epsilon = copy.epsilon
    spec.config.bos_token = spec.config.decoder_start_token = target[special.start]
    spec.config.eos_token = target[special.end]
    spec.config.unk_token = unknown or target[special.pad]
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.validate()
    spec.optimize(None if dtype == "float32" else dtype)
    spec.save(str(folder))


def _check_kind(model):
    """Raises `ExportError` for models that CTranslate2 does not support."""
    wrong = unsupported_settings(model, {"key_dim": None, "decoder": "attention"})
    if model.activation not in _ACTIVATIONS:
        wrong.append(f"activation={model.activation!r}")
    if model.positions in POSITIONS_IN_ATTENTION:
        wrong.append(f"positions={model.positions!r}")
    if wrong:
        raise ExportError(
            f"CTranslate2 does not support translation models with {', '.join(wrong)}."
        )


def _copy_embedding(stack, embeddings, layer):
    """Copies a `zoo.layers.TokenEmbedding` to the encoder or the decoder, and its embeddings."""
    table = layer.positions(ops.zeros((1, layer.max_length, layer.embed_dim)))  # [1, T, E]
    stack.position_encodings.encodings = convert_to_numpy(table[0])
    stack.scale_embeddings = layer.scale
    embeddings.weight = convert_to_numpy(layer.tokens.embeddings)
    if layer.normalize:
        _copy_norm(stack.layernorm_embedding, layer.norm)


def _copy_block(layer, block):
    own = "self_attention" if hasattr(block, "cross_attention") else "attention"
    attention = getattr(block, own)
    _copy_dense(layer.self_attention.linear[0], attention.qkv)
    _copy_dense(layer.self_attention.linear[1], attention.output_projection)
    _copy_norm(layer.self_attention.layer_norm, getattr(block, f"{own}_norm"))
    if hasattr(block, "cross_attention"):
        cross = block.cross_attention
        denses = (cross.query, cross.key_value, cross.output_projection)
        for linear, dense in zip(layer.attention.linear, denses):
            _copy_dense(linear, dense)
        _copy_norm(layer.attention.layer_norm, block.cross_attention_norm)
    _copy_dense(layer.ffn.linear_0, block.feed_forward.hidden)
    _copy_dense(layer.ffn.linear_1, block.feed_forward.output_projection)
    _copy_norm(layer.ffn.layer_norm, block.feed_forward_norm)


def _copy_dense(linear, dense):
    linear.weight = np.ascontiguousarray(convert_to_numpy(dense.kernel).T)
    if dense.bias is not None:
        linear.bias = convert_to_numpy(dense.bias)


def _copy_norm(norm, normalization):
    norm.gamma = convert_to_numpy(normalization.gamma)
    norm.beta = convert_to_numpy(normalization.beta)
