"""Records what transformers computes for small image models of each kind.

Run it in an environment with PyTorch and transformers:

    python tests/parity/record_hugging_face.py

It writes tests/checkpoints/goldens/hugging_face_vit.json: for each kind config.json, the names and
shapes of the tensors, and the logits of drawn weights and images; see tests/checkpoints/drawn.py.
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

from tests.checkpoints import drawn  # noqa: E402

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


def record():
    found = {}
    for name, (family, task, settings) in KINDS.items():
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
        images = torch.tensor(drawn.images(32, 32)).permute(0, 3, 1, 2)
        with torch.no_grad():
            outputs = model(images)
        values = outputs.logits if hasattr(outputs, "logits") else outputs.last_hidden_state
        values = np.round(values.numpy().astype(float), 6).tolist()
        found[name] = {"config": config, "shapes": shapes, "outputs": values}
    return found


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    text = json.dumps({"transformers": transformers.__version__, "kinds": record()}, indent=None)
    (GOLDENS / "hugging_face_vit.json").write_text(text + "\n")
