"""Small folders of seq2seq models in the published layout, with drawn weights."""

import json

import numpy as np
from safetensors.numpy import save_file

from tests.checkpoints.text_folders import roberta_tokenizer
from tests.text.library import pieces, spm
from zoo.data.phrasebook import phrasebook_pairs

E = 8
FF = 12
LENGTH = 64


def write_marian(folder, **changed):
    """Some pieces of the source are not in the vocabulary."""
    symbols = {"byte_fallback": True, "user_defined_symbols": "<sep>", "size": 480}
    sides = [spm(lines, rules="nmt_nfkc", **symbols) for lines in zip(*phrasebook_pairs(200))]
    vocab = list(dict.fromkeys([*pieces(sides[0])[:-9], *pieces(sides[1])]))
    vocab = ["</s>", "<unk>", *vocab, ">>es<<", ">>fr<<", "<pad>"]
    for name, side in zip(("source", "target"), sides):
        (folder / f"{name}.spm").write_bytes(side)
    write_json(folder / "vocab.json", {token: id for id, token in enumerate(vocab)})
    pad = len(vocab) - 1
    size = len(vocab)
    config = {"model_type": "marian", "activation_function": "swish", "vocab_size": size}
    config |= {"pad_token_id": pad, "decoder_start_token_id": pad, "eos_token_id": 0}
    config |= {"num_beams": 3, "max_length": 16, "share_encoder_decoder_embeddings": True}
    return _write(folder, {**config, **changed}, final_logits_bias=[1, size])


def write_m2m100(folder, is_nllb=False, **changed):
    """Writes a folder of M2M100, whose ids are not those of SentencePiece, or of NLLB."""
    lines = [line for pair in phrasebook_pairs(200) for line in pair]
    model = spm(lines, "bpe", "nmt_nfkc", size=400)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    size = len(pieces(model)) + 4 + 205
    if not is_nllb:
        vocab = ["<s>", "<pad>", "</s>", "<unk>", *reversed(pieces(model)[7:])]
        write_json(folder / "vocab.json", {token: id for id, token in enumerate(vocab)})
        size = len(vocab) + 108
    config = {"model_type": "m2m_100", "activation_function": "relu", "num_beams": 2}
    config |= {"vocab_size": size, "pad_token_id": 1, "eos_token_id": 2}
    norms = {f"model.{coder}.layer_norm": [E] for coder in ("encoder", "decoder")}
    return _write(folder, {**config, **changed}, norms)


def write_mbart50(folder, **changed):
    lines = [line for pair in phrasebook_pairs(200) for line in pair]
    model = spm(lines, rules="nmt_nfkc", size=400)
    (folder / "sentencepiece.bpe.model").write_bytes(model)
    size = changed.pop("vocab_size", len(pieces(model)) + 3 + 1 + 52 + 1)
    config = {"model_type": "mbart", "activation_function": "gelu", "vocab_size": size}
    config |= {"pad_token_id": 1, "eos_token_id": 2}
    coders = [f"model.{coder}." for coder in ("encoder", "decoder")]
    norms = {f"{c}{name}": [E] for c in coders for name in ("layer_norm", "layernorm_embedding")}
    others = {f"{c}embed_positions.weight": [LENGTH + 2, E] for c in coders}
    return _write(folder, {**config, **changed}, norms, final_logits_bias=[1, size], **others)


def write_bart(folder, **changed):
    """By default, the model has no <mask>, as bart-large-cnn."""
    for name, text in roberta_tokenizer().items():
        (folder / name).write_text(text, encoding="utf-8")
    config = {"model_type": "bart", "activation_function": "gelu", "vocab_size": 401}
    config |= {"architectures": ["BartForConditionalGeneration"], "scale_embedding": False}
    config |= {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2}
    config |= {"forced_bos_token_id": 0, "forced_eos_token_id": 2, "num_beams": 4}
    config |= {"min_length": 9, "max_length": 24, "no_repeat_ngram_size": 3, "early_stopping": True}
    config |= {"length_penalty": 2.0, **changed}
    coders = [f"model.{coder}." for coder in ("encoder", "decoder")]
    others = {f"{coder}embed_positions.weight": [LENGTH + 2, E] for coder in coders}
    norms = {f"{coder}layernorm_embedding": [E] for coder in coders}
    bias = [1, config["vocab_size"]]
    return _write(folder, config, norms, final_logits_bias=bias, **others)


def write_pegasus(folder, **changed):
    """With the piece "<n>" for a new line."""
    lines = [line for pair in phrasebook_pairs(200) for line in pair]
    first = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "user_defined_symbols": "<n>"}
    model = spm(lines, rules="nmt_nfkc", size=400, **first)
    (folder / "spiece.model").write_bytes(model)
    size = len(pieces(model)) + 3 + 103
    config = {"model_type": "pegasus", "activation_function": "relu", "vocab_size": size}
    config |= {"architectures": ["PegasusForConditionalGeneration"], "scale_embedding": True}
    config |= {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
    config |= {"forced_eos_token_id": 1, "num_beams": 8, "length_penalty": 0.8, "max_length": 24}
    norms = {f"model.{coder}.layer_norm": [E] for coder in ("encoder", "decoder")}
    return _write(folder, {**config, **changed}, norms, final_logits_bias=[1, size])


T5_KINDS = {  # changes of config.json: T5 1.0, Flan-T5 and T5 1.1, mT5, ByT5, MADLAD-400
    "t5": {"feed_forward_proj": "relu"},
    "flan": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "mt5": {"model_type": "mt5", "tie_word_embeddings": False, "num_decoder_layers": 1},
    "silu": {"feed_forward_proj": "gated-silu", "num_decoder_layers": 1},
    "byt5": {"feed_forward_proj": "gated-gelu", "tokenizer_class": "ByT5Tokenizer"},
    "madlad": {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
}


def write_t5(folder, kind="t5", scale=1.0, **changed):
    """Writes a folder of T5's kin; `scale` multiplies the weights. Heads are 4 wide."""
    lines = [line for pair in phrasebook_pairs(200) for line in pair]
    ids = {"unk_id": 0, "bos_id": -1, "eos_id": 2, "pad_id": 1}
    symbols = {"byte_fallback": True, "user_defined_symbols": ["<2de>", "<2es>"]}
    if kind != "madlad":
        ids = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
        symbols = {}
    model = spm(lines, rules="nmt_nfkc", size=500, **ids, **symbols)
    config = {"model_type": "t5", "d_model": E, "d_kv": 4, "d_ff": FF, "num_heads": 3}
    config |= {"num_layers": 2, "num_decoder_layers": 2, "vocab_size": len(pieces(model)) + 103}
    config |= {"decoder_start_token_id": 0, "pad_token_id": 0, "eos_token_id": 1}
    if kind == "madlad":
        config |= {"decoder_start_token_id": 1, "pad_token_id": 1, "eos_token_id": 2}
    if kind == "byt5":
        config["vocab_size"] = 384
    config |= {**T5_KINDS[kind], **changed}
    if kind != "byt5":
        (folder / "spiece.model").write_bytes(model)
    write_json(folder / "config.json", config)
    tensors = _t5_tensors(config, scale)
    save_file(tensors, folder / "model.safetensors")
    return tensors


def _t5_tensors(config, scale):
    shapes = {"shared.weight": [config["vocab_size"], E]}
    if not config.get("tie_word_embeddings", True):
        shapes["lm_head.weight"] = shapes["shared.weight"]
    width = config["d_kv"] * config["num_heads"]
    is_gated = config.get("feed_forward_proj", "gated-gelu").startswith("gated")
    hidden = ("wi_0", "wi_1") if is_gated else ("wi",)
    layers = {"encoder": ["SelfAttention"], "decoder": ["SelfAttention", "EncDecAttention"]}
    counts = {"encoder": config["num_layers"], "decoder": config["num_decoder_layers"]}
    norms = {}
    for coder, attentions in layers.items():
        norms[f"{coder}.final_layer_norm.weight"] = [E]
        name = f"{coder}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        shapes[name] = [32, config["num_heads"]]
        for block in range(counts[coder]):
            prefix = f"{coder}.block.{block}.layer"
            for number, attention in enumerate(attentions):
                name = f"{prefix}.{number}.{attention}"
                shapes |= {f"{name}.{letter}.weight": [width, E] for letter in "qkv"}
                shapes[f"{name}.o.weight"] = [E, width]
                norms[f"{prefix}.{number}.layer_norm.weight"] = [E]
            name = f"{prefix}.{len(attentions)}.DenseReluDense"
            shapes |= {f"{name}.{part}.weight": [FF, E] for part in hidden}
            shapes[f"{name}.wo.weight"] = [E, FF]
            norms[f"{prefix}.{len(attentions)}.layer_norm.weight"] = [E]
    random = np.random.default_rng(0)
    tensors = {n: random.normal(0, 0.5 * scale, s) for n, s in shapes.items()}
    tensors |= {n: random.normal(1, 0.3, s) for n, s in norms.items()}
    return {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def _write(folder, config, norms=(), **others):
    """Writes config.json and model.safetensors; returns the tensors."""
    config = {
        "d_model": E,
        "encoder_layers": 1,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": FF,
        "decoder_ffn_dim": FF + 2,
        "max_position_embeddings": LENGTH,
        "scale_embedding": True,
        **config,
    }
    write_json(folder / "config.json", config)
    random = np.random.default_rng(0)
    norms = dict(norms)
    shapes = {"model.shared.weight": [config["vocab_size"], E], **others}
    for coder, layers, attentions in (
        ("encoder", 1, ["self_attn"]),
        ("decoder", 2, ["self_attn", "encoder_attn"]),
    ):
        for layer in range(layers):
            name = f"model.{coder}.layers.{layer}"
            ff = config[f"{coder}_ffn_dim"]
            linear = {f"{a}.{p}_proj": [E, E] for a in attentions for p in ("q", "k", "v", "out")}
            linear |= {"fc1": [ff, E], "fc2": [E, ff]}
            for part, shape in linear.items():
                shapes |= {f"{name}.{part}.weight": shape, f"{name}.{part}.bias": shape[:1]}
            norms |= {f"{name}.{a}_layer_norm": [E] for a in (*attentions, "final")}
    for name, shape in norms.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape}
    tensors = {n: random.normal(0, 0.5, s).astype(np.float32) for n, s in shapes.items()}
    tensors["model.shared.weight"][config["pad_token_id"]] = 0
    save_file(tensors, folder / "model.safetensors")
    return tensors


def write_json(path, content):
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
