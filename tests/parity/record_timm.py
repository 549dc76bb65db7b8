"""Records what timm computes for small models of each kind, from its own files and Google's.

Run it in an environment with PyTorch, timm and torchvision, which need not be the zoo's:

    python tests/parity/record_timm.py

It writes tests/checkpoints/goldens/timm_vit.json and google_vit.json: for each kind the names and
shapes of the tensors, of Google's those that the file has, and the logits of drawn weights and
images; see tests/checkpoints/drawn.py.
"""

import json
import pathlib
import sys
import tempfile

import numpy as np
import torch

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
GOLDENS = ROOT / "tests" / "checkpoints" / "goldens"

from tests.checkpoints import drawn  # noqa: E402
from tests.parity import conftest, timm_models  # noqa: E402, F401 the second needs the first


def record_timm():
    found = {}
    for name in (*timm_models.KINDS, *timm_models.EVA):
        model = timm_models.build(name)
        shapes = {key: list(value.shape) for key, value in model.state_dict().items()}
        tensors = {key: torch.tensor(value) for key, value in drawn.tensors(shapes).items()}
        model.load_state_dict(tensors)
        heads = model.blocks[0].attn.num_heads
        size = model.patch_embed.img_size
        found[name] = {"shapes": shapes, "num_heads": heads, "logits": {}}
        found[name]["logits"][f"{size[0]}x{size[1]}"] = logits(model, size)
        patch = model.patch_embed.patch_size[0]
        size = (2 * size[0], size[1] + 3 * patch)
        model.set_input_size(size)
        found[name]["logits"][f"{size[0]}x{size[1]}"] = logits(model, size)
    return found


def record_google():
    found = json.loads((GOLDENS / "google_vit.json").read_text())["kinds"]
    for name, golden in found.items():
        model = timm_models.build("plain", **timm_models.GOOGLE[name])
        with tempfile.TemporaryDirectory() as folder:
            path, tensors = f"{folder}/weights.npz", drawn.tensors(golden["shapes"])
            np.savez(path, **{golden["prefix"] + key: value for key, value in tensors.items()})
            timm_models.vision_transformer._load_weights(model, path, golden["prefix"])
        golden["logits"]["32x32"] = logits(model, (32, 32))
    return found


def logits(model, size):
    images = torch.tensor(drawn.images(*size)).permute(0, 3, 1, 2)
    with torch.no_grad():
        return np.round(model.eval()(images).numpy().astype(float), 6).tolist()


if __name__ == "__main__":
    for file, record in (("timm_vit", record_timm), ("google_vit", record_google)):
        text = json.dumps({"timm": timm_models.timm.__version__, "kinds": record()}, indent=None)
        (GOLDENS / f"{file}.json").write_text(text + "\n")
