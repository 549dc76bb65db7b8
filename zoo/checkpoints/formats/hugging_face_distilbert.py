"""Hugging Face's folders of DistilBERT (transformers: models/distilbert)."""

from zoo.checkpoints.formats import hugging_face_bert
from zoo.checkpoints.hugging_face_config import activation
from zoo.checkpoints.mapping import dense, feed_forward, norm

MODEL_TYPES = ("distilbert",)
ANCHOR = hugging_face_bert.ANCHOR
BLOCK = "transformer.layer.{i}."
QKV = [f"{BLOCK}attention.{name}_lin" for name in "qkv"]
TABLE = {
    **norm("encoder_embedding/norm", "embeddings.LayerNorm"),
    **dense("encoder_{i}/attention/qkv", *QKV),
    **dense("encoder_{i}/attention/output_projection", f"{BLOCK}attention.out_lin"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}sa_layer_norm"),
    **feed_forward("encoder_{i}/feed_forward", f"{BLOCK}ffn.lin1", f"{BLOCK}ffn.lin2"),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}output_layer_norm"),
}
ARGUMENTS = {  # argument of `zoo.text_classifier`: its name in config.json, and its default there
    "vocab_size": ("vocab_size", 30522),
    "embed_dim": ("dim", 768),
    "num_layers": ("n_layers", 6),
    "num_heads": ("n_heads", 12),
    "ff_dim": ("hidden_dim", 3072),
    "dropout": ("dropout", 0.1),
    "attention_dropout": ("attention_dropout", 0.1),
    "max_length": ("max_position_embeddings", 512),
}


def load(folder, config, tensors, options):
    """Loads the model of a folder; options are arguments of `zoo.text_classifier`."""
    arguments = {ours: config.get(*theirs) for ours, theirs in ARGUMENTS.items()}
    arguments["activation"] = activation(folder, {"hidden_act": config.get("activation", "gelu")})
    arguments |= {"num_token_types": 0, "pooler_activation": "relu"}
    return hugging_face_bert.load_encoder(
        folder, config, tensors, options, arguments, TABLE, "pre_classifier"
    )
