"""Hugging Face's folders of BERT (transformers: models/bert)."""

from zoo.checkpoints.building import create_model, head_classes
from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.hugging_face_config import activation, check_settings, class_names
from zoo.checkpoints.hugging_face_tokenizers import bert_wordpiece
from zoo.checkpoints.mapping import assign, dense, feed_forward, norm, same
from zoo.models.text_classifier import text_classifier
from zoo.tasks.classifier import TextClassifier

# The heads of pre-training and of other tasks, and the numbers of the positions.
IGNORED = (r"cls\..*", r"embeddings\.position_ids")
HEADS = (r"classifier\..*", r"qa_outputs\..*")
BLOCK = "encoder.layer.{i}."
QKV = [f"{BLOCK}attention.self.{name}" for name in ("query", "key", "value")]
DENSE = [f"{BLOCK}{name}.dense" for name in ("intermediate", "output")]
TABLE = {
    "token_embedding/embeddings": same("embeddings.word_embeddings.weight"),
    "token_positions/embeddings": same("embeddings.position_embeddings.weight"),
    "type_embedding/embeddings": same("embeddings.token_type_embeddings.weight"),
    **norm("token_norm", "embeddings.LayerNorm"),
    **dense("encoder_{i}/attention/qkv", *QKV),
    **dense("encoder_{i}/attention/output_projection", f"{BLOCK}attention.output.dense"),
    **norm("encoder_{i}/attention_norm", f"{BLOCK}attention.output.LayerNorm"),
    **feed_forward("encoder_{i}/feed_forward", *DENSE),
    **norm("encoder_{i}/feed_forward_norm", f"{BLOCK}output.LayerNorm"),
    **dense("pooler_layer", "pooler.dense"),
    **dense("head", "classifier"),
}
SETTINGS = {  # argument of `zoo.text_classifier`: its name in config.json, and its default there
    "vocab_size": ("vocab_size", 30522),
    "embed_dim": ("hidden_size", 768),
    "num_layers": ("num_hidden_layers", 12),
    "num_heads": ("num_attention_heads", 12),
    "ff_dim": ("intermediate_size", 3072),
    "dropout": ("hidden_dropout_prob", 0.1),
    "attention_dropout": ("attention_probs_dropout_prob", 0.1),
    "max_length": ("max_position_embeddings", 512),
    "num_token_types": ("type_vocab_size", 2),
    "epsilon": ("layer_norm_eps", 1e-12),
}
FIXED = {"is_decoder": False, "add_cross_attention": False, "position_embedding_type": "absolute"}


def load(folder, config, tensors, options):
    """The text classifier of a folder, see `zoo.load`; options: those of `zoo.text_classifier`."""
    check_settings(folder, config, FIXED)
    settings = {ours: config.get(*theirs) for ours, theirs in SETTINGS.items()}
    settings["activation"] = activation(folder, {"hidden_act": "gelu", **config})
    tensors = tensors.renamed(_renamed)
    settings["pooler"] = "pooler.dense.weight" in tensors
    names = _class_names(folder, config, tensors, options)
    names, is_new = head_classes(tensors, names, options)
    [size, _] = tensors.shape("embeddings.word_embeddings.weight", 2)
    tokenizer, special = bert_wordpiece(folder, size)
    settings |= {"num_classes": len(names), "pad_id": special.pad, **options}
    ignored, kept = ((*IGNORED, *HEADS), ["head/.*"]) if is_new else (IGNORED, ())
    model = create_model(text_classifier, tensors, settings)
    assign(model, tensors, TABLE, ignored, kept)
    return TextClassifier(model, tokenizer, names, special)


def _renamed(name):
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight").removeprefix("bert.")
    return name.replace("LayerNorm.beta", "LayerNorm.bias")


def _class_names(folder, config, tensors, options):
    """The names of the classes of the head in the file; [] if there is none, or it is not used."""
    [classes, *_] = tensors.shapes.get("classifier.weight", (0,))
    architectures = config.get("architectures") or ["BertForSequenceClassification"]
    problem = None
    if architectures != ["BertForSequenceClassification"]:
        problem = f"the head of {architectures[0]} does not choose one of several classes of a text"
    elif "pooler.dense.weight" not in tensors:
        problem = "there is no pooler.dense.weight, which the head needs"
    if problem and classes and "num_classes" not in options:
        raise CheckpointError(f"{folder}: {problem}. Pass num_classes=..., for a new head.")
    return [] if problem else class_names(folder, config, classes, options)
