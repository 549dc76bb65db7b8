"""Hugging Face's folders of GPT-2 (transformers: models/gpt2)."""

import functools

from zoo.checkpoints.building import create_model
from zoo.checkpoints.generation_config import search_settings
from zoo.checkpoints.hugging_face_config import activation, check_settings, read_json
from zoo.checkpoints.hugging_face_tokenizers import byte_level_bpe
from zoo.checkpoints.mapping import assign, feed_forward, linear, merged_dense, norm, same
from zoo.decoding import SpecialTokens
from zoo.models.causal_lm import causal_lm
from zoo.tasks.generator import TextGenerator

MODEL_TYPES = ("gpt2",)
ANCHOR = "wpe.weight"
EMBEDDING = "wte.weight"
OUTPUT = "lm_head.weight"
# The causal mask, and the head of GPT2DoubleHeadsModel.
IGNORED = (r"h\.\d+\.attn\.(masked_)?bias", r"multiple_choice_head\..*", OUTPUT)
conv1d = functools.partial(merged_dense, kernel=".weight", bias=".bias")  # matrices [in, out]
TABLE = {
    "decoder_embedding/positions/embeddings": same(ANCHOR),
    **norm("decoder_{i}/self_attention_norm", "h.{i}.ln_1"),
    **conv1d("decoder_{i}/self_attention/qkv", "h.{i}.attn.c_attn"),
    **conv1d("decoder_{i}/self_attention/output_projection", "h.{i}.attn.c_proj"),
    **norm("decoder_{i}/feed_forward_norm", "h.{i}.ln_2"),
    **feed_forward("decoder_{i}/feed_forward", "h.{i}.mlp.c_fc", "h.{i}.mlp.c_proj", conv1d),
    **norm("decoder_norm", "ln_f"),
    "output_projection/kernel": linear(OUTPUT),
}
ARGUMENTS = {  # argument of `zoo.causal_lm`: its name in config.json, and its default there
    "vocab_size": ("vocab_size", 50257),
    "max_length": ("n_positions", 1024),
    "embed_dim": ("n_embd", 768),
    "num_layers": ("n_layer", 12),
    "num_heads": ("n_head", 12),
    "ff_dim": ("n_inner", None),
    "dropout": ("resid_pdrop", 0.1),
    "attention_dropout": ("attn_pdrop", 0.1),
    "epsilon": ("layer_norm_epsilon", 1e-5),
    "tie_weights": ("tie_word_embeddings", True),
}
FIXED = {
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "add_cross_attention": False,
}


def load(folder, config, tensors, options):
    """Loads the text generator of a folder; options are arguments of `zoo.causal_lm`."""
    check_settings(folder / "config.json", config, FIXED)
    arguments = {ours: config.get(*theirs) for ours, theirs in ARGUMENTS.items()}
    arguments["activation"] = activation(folder, {"activation_function": "gelu_new", **config})
    # Shared tensors may be stored once, under any of their names.
    is_stored = EMBEDDING in tensors or not arguments["tie_weights"]
    embedding = EMBEDDING if is_stored else OUTPUT
    [size, _] = tensors.shape(embedding, 2)
    tokenizer, add_start_token = byte_level_bpe(folder, size)
    model = create_model(causal_lm, tensors, arguments, options)
    table = {**TABLE, "decoder_embedding/tokens/embeddings": same(embedding)}
    assign(model, tensors, table, IGNORED)
    special = _special(folder, config)
    _, search_options = search_settings(folder, config, special, applied=())
    return TextGenerator(model, tokenizer, special, add_start_token, search_options)


def _special(folder, config):
    config = config | read_json(folder / "generation_config.json", {})
    end = config.get("eos_token_id", 50256)
    if isinstance(end, list) and len(end) == 1:
        [end] = end
    start = config.get("bos_token_id", 50256)
    if start is None:
        start = end
    return SpecialTokens(start=start, end=end, pad=end)
