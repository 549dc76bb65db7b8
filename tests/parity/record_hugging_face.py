"""Records what transformers computes for small models of each kind.

Run it in an environment with PyTorch and transformers:

    python tests/parity/record_hugging_face.py

It writes tests/checkpoints/goldens/hugging_face_vit.json and hugging_face_text.json: for each kind
config.json, the names and shapes of the tensors, and the logits of drawn weights and inputs; see
tests/checkpoints/drawn.py; and the tokens of odd texts.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors import safe_open
from safetensors.numpy import save_file

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
GOLDENS = ROOT / "tests" / "checkpoints" / "goldens"

from tests.checkpoints import drawn, text_folders  # noqa: E402

SIZES = {
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "image_size": 32,
    "patch_size": 8,
    "num_labels": 5,
}
VIT = {**SIZES, "intermediate_size": 36}
KINDS = {
    "vit": ("ViT", "ForImageClassification", VIT),
    "vit, no head": ("ViT", "Model", VIT),
    "vit, other options": (
        "ViT",
        "ForImageClassification",
        {**VIT, "qkv_bias": False, "hidden_act": "gelu_new", "num_hidden_layers": 3},
    ),
    "deit": ("DeiT", "ForImageClassification", VIT),
    "deit, distilled": ("DeiT", "ForImageClassificationWithTeacher", VIT),
    "dinov2": ("Dinov2", "ForImageClassification", SIZES),
    "dinov2, giant": ("Dinov2", "ForImageClassification", {**SIZES, "use_swiglu_ffn": True}),
    "dinov2, registers": ("Dinov2WithRegisters", "ForImageClassification", SIZES),
}


GPT2 = {"n_embd": 24, "n_layer": 2, "n_head": 3, "n_positions": 32, "vocab_size": 400}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0}
BERT = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300}
BERT |= {"intermediate_size": 36, "max_position_embeddings": 128, "num_labels": 5}
TEXT_KINDS = {
    "gpt2": ("GPT2", "LMHeadModel", GPT2),
    "gpt2, other options": (
        "GPT2",
        "LMHeadModel",
        {**GPT2, "n_inner": 40, "activation_function": "relu", "tie_word_embeddings": False},
    ),
    "bert": ("Bert", "ForSequenceClassification", BERT),
    "bert, other options": (
        "Bert",
        "ForSequenceClassification",
        {**BERT, "hidden_act": "gelu_new", "type_vocab_size": 1, "layer_norm_eps": 1e-3},
    ),
    "bert, no head": ("Bert", "Model", BERT),
}
TOKENIZERS = {
    "gpt2": ("GPT2", text_folders.gpt2_tokenizer()),
    "bert, uncased": ("Bert", text_folders.bert_tokenizer()),
    "bert, cased": ("Bert", text_folders.bert_tokenizer(lowercase=False)),
}


def record(kinds, inputs):
    """{kind: config, shapes, outputs} of `inputs`, a function of the sizes -> tensor."""
    found = {}
    for name, (family, task, settings) in kinds.items():
        config = getattr(transformers, f"{family}Config")(**settings)
        kind = getattr(transformers, family + task)
        with tempfile.TemporaryDirectory() as folder:
            kind(config).save_pretrained(folder)
            path = f"{folder}/model.safetensors"
            with safe_open(path, "np") as file:
                shapes = {key: file.get_slice(key).get_shape() for key in file.keys()}  # noqa: SIM118
            save_file(drawn.tensors(shapes), path, {"format": "pt"})
            model = kind.from_pretrained(folder).eval()
            config = json.loads((pathlib.Path(folder) / "config.json").read_text())
        with torch.no_grad():
            outputs = model(inputs(settings))
        values = outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state
        values = np.round(values[..., : drawn.RECORDED].numpy().astype(float), 6).tolist()
        found[name] = {"config": config, "shapes": shapes, "outputs": values}
    return found


def record_tokens():
    """{kind: the tokens of each of the odd texts}."""
    found = {}
    for name, (family, files) in TOKENIZERS.items():
        with tempfile.TemporaryDirectory() as folder:
            for file, text in files.items():
                (pathlib.Path(folder) / file).write_text(text, encoding="utf-8")
            tokenizer = getattr(transformers, f"{family}Tokenizer").from_pretrained(folder)
        found[name] = [
            tokenizer(text, split_special_tokens=True)["input_ids"]
            for text in text_folders.ODD_TEXTS
        ]
    return found


def write(name, **content):
    text = json.dumps({"transformers": transformers.__version__, **content}, indent=None)
    (GOLDENS / f"{name}.json").write_text(text + "\n")


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    images = torch.tensor(drawn.images(32, 32)).permute(0, 3, 1, 2)
    write("hugging_face_vit", kinds=record(KINDS, lambda sizes: images))
    kinds = record(TEXT_KINDS, lambda sizes: torch.tensor(drawn.tokens(sizes["vocab_size"])))
    write("hugging_face_text", kinds=kinds, tokens=record_tokens())
