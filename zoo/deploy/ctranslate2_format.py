"""Exports to CTranslate2, an engine for the inference of Transformers.

Axes: B sentences, S source tokens, T target tokens, E model width.
"""

import pathlib

import numpy as np
from keras import ops

from zoo.deploy import checks
from zoo.deploy.errors import ExportError
from zoo.deploy.plain_graphs import plain_copy
from zoo.deploy.programs import write_programs
from zoo.errors import needed
from zoo.models.tokens import INSIDE_ATTENTION
from zoo.tasks.translator import SOURCE_FILE, TARGET_FILE

_PROGRAMS = {
    "translate.py": "translates texts with ctranslate2 and tokenizers only",
    "engine.py": "runs the model for translate.py",
}
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "gelu_tanh": "GELUTanh", "silu": "SWISH"}
_ACTIVATIONS |= {"quick_gelu": "GELUSigmoid", "swish": "SWISH", "tanh": "Tanh"}


def write(original, folder, dtype="float32", **options):
    """Writes ``model.bin`` and its vocabularies, the tokenizers and ``translate.py``.

    In the vocabularies, each token is written as its id in decimal.

    Args:
        original: `zoo.tasks.translator.Translator`.
        folder: path of an existing folder.
        dtype: of the weight matrices: "float32", "float16" or "int8".
        **options: not used: the program reads them in export.json.

    Returns:
        dict for export.json: "files" (name -> description), "signatures", "checked".

    Raises:
        ExportError: if CTranslate2 does not have such a model, or its outputs differ from the
            original.
    """
    folder, ctranslate2 = pathlib.Path(folder), needed("ctranslate2")
    write_model(original.model, original.special_tokens, folder, dtype)
    write_programs(folder, _PROGRAMS, engine="ctranslate2_engine.py")
    files = {
        "model.bin": "the model",
        "config.json": "its control tokens",
        **{file.name: "its tokens" for file in sorted(folder.glob("*_vocabulary.json"))},
        **_write_tokenizers(original, folder),
        **_PROGRAMS,
    }
    translator = ctranslate2.Translator(str(folder))

    def log_probs(sources, targets):
        names = [[[str(id) for id in ids] for ids in side] for side in (sources, targets)]
        names[1] = [ids[:-1] for ids in names[1]]  # the end token is added
        return [one.log_probs for one in translator.score_batch(*names)]

    version = f"ctranslate2 {ctranslate2.__version__}"
    checked = checks.check_tokens(original, log_probs, version, dtype)
    return {"files": files, "signatures": {}, "checked": checked}


def _write_tokenizers(translator, folder):
    tokenizers = {
        SOURCE_FILE: translator.source_tokenizer,
        TARGET_FILE: translator.target_tokenizer,
    }
    for name, tokenizer in tokenizers.items():
        if not hasattr(tokenizer, "to_tokenizer_json"):
            raise ExportError(f"The program cannot read tokenizers of kind {tokenizer.kind!r}.")
        (folder / name).write_text(tokenizer.to_tokenizer_json(), encoding="utf-8")
    return {
        SOURCE_FILE: "the tokenizer of the source language, for the package tokenizers",
        TARGET_FILE: "the tokenizer of the target language",
    }


def write_model(model, special, folder, dtype="float32"):
    """Writes a model without tokenizers.

    Args:
        model: `zoo.models.Transformer`.
        special: `zoo.decoding.SpecialTokens`.
        folder, dtype: see `write`.

    Raises:
        ExportError: if CTranslate2 does not have such a model.
    """
    specs = needed("ctranslate2").specs
    _check_kind(model)
    copy = plain_copy(model)
    spec = specs.TransformerSpec.from_config(
        (len(copy.encoder_blocks), len(copy.decoder_blocks)),
        copy.num_heads,
        pre_norm=copy.norm == "pre",
        activation=specs.Activation[_ACTIVATIONS[copy.activation]],
        layernorm_embedding=copy.normalize_embeddings,
    )
    spec.decoder.num_heads = np.int16(copy.decoder_num_heads or copy.num_heads)
    _copy_side(copy, "source", spec.encoder, spec.encoder.embeddings[0], copy.encoder_blocks)
    _copy_side(copy, "target", spec.decoder, spec.decoder.embeddings, copy.decoder_blocks)
    if copy.norm == "pre":
        _copy_norm(spec.encoder.layer_norm, copy.encoder_norm)
        _copy_norm(spec.decoder.layer_norm, copy.decoder_norm)
    if copy.output_projection is None:
        spec.decoder.projection.weight = _array(copy.target_embedding.embeddings)
    else:
        _copy_dense(spec.decoder.projection, copy.output_projection)
    if copy.logits_bias:
        spec.decoder.projection.bias = _array(copy.output_bias)
    spec.config.layer_norm_epsilon = copy.epsilon
    spec.config.bos_token = spec.config.decoder_start_token = str(special.start)
    spec.config.eos_token, spec.config.unk_token = str(special.end), str(special.pad)
    spec.register_source_vocabulary([*map(str, range(copy.source_vocab_size))])
    spec.register_target_vocabulary([*map(str, range(copy.target_vocab_size))])
    spec.validate()
    spec.optimize({"float32": None}.get(dtype, dtype))
    spec.save(str(folder))


def _check_kind(model):
    """Raises `ExportError` for models that CTranslate2 does not have."""
    if model.activation not in _ACTIVATIONS:
        reason = f"activation={model.activation!r}"
    elif model.positions in INSIDE_ATTENTION:
        reason = f"positions={model.positions!r}"
    elif model.key_dim is not None:
        reason = f"key_dim={model.key_dim!r}"
    else:
        return
    raise ExportError(f"CTranslate2 does not have translation models with {reason}.")


def _copy_side(model, side, stack, embeddings, blocks):
    table = getattr(model, f"{side}_positions")(ops.zeros((1, model.max_length, model.embed_dim)))
    stack.position_encodings.encodings = _array(table[0])
    stack.scale_embeddings = model.scale_embeddings
    embeddings.weight = _array(getattr(model, f"{side}_embedding").embeddings)
    if model.normalize_embeddings:
        _copy_norm(stack.layernorm_embedding, getattr(model, f"{side}_norm"))
    for layer, block in zip(stack.layer, blocks):
        _copy_block(layer, block)


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
    linear.weight = np.ascontiguousarray(_array(dense.kernel).T)
    if dense.bias is not None:
        linear.bias = _array(dense.bias)


def _copy_norm(norm, normalization):
    norm.gamma, norm.beta = _array(normalization.gamma), _array(normalization.beta)


def _array(tensor):
    return ops.convert_to_numpy(tensor)
