"""Records anew what transformers computes for small models of each kind.

Run it in an environment with PyTorch and transformers:

    python tests/parity/record_hugging_face.py

It rewrites hugging_face_{vit,text,text_to_text,clip}.json in tests/checkpoints/goldens: for each
kind config.json, which it reads there, so that a kind is added
by its `config`, the names and shapes of the tensors, and the logits of drawn weights and inputs;
see tests/checkpoints/drawn.py.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch
import transformers
from safetensors.numpy import load_file, save_file

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
GOLDENS = ROOT / "tests" / "checkpoints" / "goldens"

from tests.checkpoints import clip_folders, drawn  # noqa: E402
from tests.parity import conftest  # noqa: E402, F401 for torchvision


def record(name, inputs):
    """Rewrites a file of goldens; `inputs` is a function of a config -> tensor or dict."""
    path = GOLDENS / f"{name}.json"
    kinds = json.loads(path.read_text())["kinds"]
    found = {kind: recorded(golden["config"], inputs) for kind, golden in kinds.items()}
    content = {"transformers": transformers.__version__, "kinds": found}
    path.write_text(json.dumps(content, indent=None) + "\n")


def recorded(config, inputs):
    """Config, shapes and outputs of a model."""
    kind = getattr(transformers, config["architectures"][0])
    with tempfile.TemporaryDirectory() as folder:
        kind(kind.config_class(**config)).save_pretrained(folder)
        path = pathlib.Path(folder) / "model.safetensors"
        shapes = {name: list(tensor.shape) for name, tensor in load_file(path).items()}
        if config["model_type"] == "pegasus":  # computed, if they are not in the file
            shapes = {name: shapes[name] for name in shapes if "embed_positions" not in name}
        save_file(drawn.tensors(shapes), path, {"format": "pt"})
        model = kind.from_pretrained(folder).eval()
        config = json.loads((path.parent / "config.json").read_text())
    with torch.no_grad():
        found = inputs(config)
        outputs = model(**found) if isinstance(found, dict) else model(found)
    if hasattr(outputs, "logits_per_image"):
        values = outputs.logits_per_image
    elif hasattr(outputs, "logits"):
        values = outputs.logits
    else:
        values = outputs.last_hidden_state
    values = np.round(values[..., : drawn.RECORDED].numpy().astype(float), 6).tolist()
    return {"config": config, "shapes": shapes, "outputs": values}


def record_clip(images):
    """Rewrites goldens/hugging_face_clip.json: logits of images and of `clip_folders.TEXTS`."""
    path = GOLDENS / "hugging_face_clip.json"
    kinds = json.loads(path.read_text())["kinds"]
    for golden in kinds.values():
        settings = golden["tokenizer"]
        fills = settings["tokenizer_class"] != "CLIPTokenizer"
        with tempfile.TemporaryDirectory() as folder:
            clip_folders.write_tokenizer(pathlib.Path(folder), settings)
            tokenizer = getattr(transformers, settings["tokenizer_class"]).from_pretrained(folder)
            texts = tokenizer(
                clip_folders.TEXTS, padding="max_length" if fills else True, return_tensors="pt"
            )

        def inputs(config, texts=texts):
            return {"pixel_values": images, **texts}

        golden |= recorded(golden["config"], inputs)
    content = {"transformers": transformers.__version__, "kinds": kinds}
    path.write_text(json.dumps(content, indent=None) + "\n")


def source_and_target(config):
    """The same tokens as source and target."""
    tokens = torch.tensor(drawn.tokens(config["vocab_size"]))
    return {"input_ids": tokens, "decoder_input_ids": tokens}


if __name__ == "__main__":
    images = torch.tensor(drawn.images(32, 32)).permute(0, 3, 1, 2)
    record("hugging_face_vit", lambda config: images)
    record_clip(images)
    record("hugging_face_text", lambda config: torch.tensor(drawn.tokens(config["vocab_size"])))
    record("hugging_face_text_to_text", source_and_target)
