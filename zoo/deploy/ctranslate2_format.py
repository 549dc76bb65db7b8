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
from zoo.checkpoints.unsupported import unsupported_settings
from zoo.deploy import checks
from zoo.deploy.plain_graphs import plain_copy
from zoo.errors import ExportError, needed
from zoo.models.base import POSITIONS_IN_ATTENTION
from zoo.text import layout

_PROGRAM = pathlib.Path(__file__).parent / "programs" / "translate.py"
_LAYOUT = pathlib.Path(layout.__file__)
_ACTIVATIONS = {  # names in `ctranslate2.specs.Activation`
    "gelu": "GELU", "gelu_tanh": "GELUTanh", "quick_gelu": "GELUSigmoid", "relu": "RELU",
    "silu": "SWISH", "swish": "SWISH", "tanh": "Tanh",
}  # fmt: skip


def write(translator, folder, dtype="float32"):
    """Writes ``model.bin`` with its vocabularies, the SentencePiece models and ``translate.py``.

    The program reads its arguments in export.json. For the arguments see `zoo.export`.
    """
    folder = pathlib.Path(folder)
    source_tokenizer = translator.source_tokenizer
    target_tokenizer = translator.target_tokenizer
    source = tokens_of(source_tokenizer)
    target = tokens_of(target_tokenizer)
    special = translator.special_tokens
    unknown = source[source_tokenizer.unknown]
    write_model(translator.model, special, folder, dtype, (source, target), unknown)
    (folder / "source.spm").write_bytes(source_tokenizer.model)
    (folder / "target.spm").write_bytes(target_tokenizer.model)
    shutil.copy(_PROGRAM, folder)
    shutil.copy(_LAYOUT, folder)
    options = translator.options()
    return {
        "needs": ["ctranslate2", "sentencepiece"],
        "signatures": {},
        "checked": _check(translator, folder, source, target, dtype),
        "search": {
            "source_prefix": [source[id] for id in source_tokenizer.prefix],
            "target_prefix": [target[id] for id in special.prefix],
            "end": source[special.end],
            "suppressed": [
                target[id] for id in decoding.never_generated(special, options.suppress_tokens)
            ],
            "forced_eos": options.forced_eos,
            "max_output_length": translator.max_length or translator.model.max_length,
            "keep_numbers": translator.keep_numbers,
            "options": search_options(options),
            "left_out": [*target_tokenizer.control],
            "strips": target_tokenizer.proto.normalizer_spec.remove_extra_whitespaces,
        },
    }


def _check(translator, folder, source, target, dtype):
    """Compares the log-probabilities per token of random translations of `source` to `target`."""
    special = translator.special_tokens
    random = np.random.default_rng(0)
    shape = (8, min(12, translator.model.max_length) - 1)

    def draw(tokens):
        ids = np.setdiff1d(range(3, len(tokens)), [special.end, special.pad])
        return random.choice(ids, shape).astype("int32")

    def ended(ids):
        return np.pad(ids, [(0, 0), (0, 1)], constant_values=special.end)

    source_ids = ended(draw(source))  # [B, S]
    target_ids = draw(target)  # [B, T - 1]: CTranslate2 adds the end token of a translation
    with tf.device("CPU"):  # on a GPU products may be rounded to TensorFloat-32
        expected = translator.log_probs(tf.constant(source_ids), tf.constant(ended(target_ids)))
    exported = needed("ctranslate2").Translator(str(folder))
    scores = exported.score_batch(
        [[source[id] for id in row] for row in source_ids],
        [[target[id] for id in row] for row in target_ids],
    )
    forced = len(special.prefix)  # tokens whose log-probability is 0
    found = [sum(score.log_probs[forced:]) for score in scores]
    difference = np.abs(found - expected.numpy()) / (shape[1] + 1 - forced)
    mean = float(difference.mean())
    measured = {"largest_difference": float(difference.max()), "mean_difference": mean}
    # The probabilities of random tokens are so small that only their logarithms differ.
    if dtype == "float32" and translator.model.compute_dtype == "float32":
        return checks.report("ctranslate2", measured, 1e-3)
    return checks.report("ctranslate2", measured, 0.5, compared="mean_difference")


def search_options(options):
    """Converts `zoo.decoding.SearchOptions` to options of CTranslate2, except suppressed tokens."""
    return {
        "no_repeat_ngram_size": options.no_repeat_ngram_size,
        "repetition_penalty": options.repetition_penalty,
        # Lengths in CTranslate2 count neither the start token nor the end token.
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
        tokens: the source and the target tokens, a pair of lists of str; by default their ids.
        unknown: the source token for all others.
    """
    specs = needed("ctranslate2").specs
    _check_kind(model)
    if tokens is None:
        source = [str(id) for id in range(model.source_vocab_size)]
        target = [str(id) for id in range(model.target_vocab_size)]
    else:
        source, target = tokens
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
    wrong = unsupported_settings(model, {"key_dim": None, "use_bias": True, "decoder": "attention"})
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
    is_decoder = hasattr(block, "cross_attention")
    attention = block.self_attention if is_decoder else block.attention
    norm = block.self_attention_norm if is_decoder else block.attention_norm
    _copy_dense(layer.self_attention.linear[0], attention.qkv)
    _copy_dense(layer.self_attention.linear[1], attention.output_projection)
    _copy_norm(layer.self_attention.layer_norm, norm)
    if is_decoder:
        cross = block.cross_attention
        _copy_dense(layer.attention.linear[0], cross.query)
        _copy_dense(layer.attention.linear[1], cross.key_value)
        _copy_dense(layer.attention.linear[2], cross.output_projection)
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
