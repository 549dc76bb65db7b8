"""Records small files of PyTorch, of both formats, for tests without PyTorch.

Run it in an environment with PyTorch:

    python tests/parity/record_torch.py

It writes tests/checkpoints/goldens/torch_new.pth and torch_old.pth, the format before 1.6.
"""

import pathlib
import sys

import torch

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
GOLDENS = ROOT / "tests" / "checkpoints" / "goldens"

from tests.checkpoints import drawn  # noqa: E402

if __name__ == "__main__":
    tensors = {name: torch.tensor(x) for name, x in drawn.tensors(drawn.TORCH_SHAPES).items()}
    tensors["half"], tensors["bfloat16"] = tensors["half"].half(), tensors["bfloat16"].bfloat16()
    tensors["whole"] = (100 * tensors["whole"]).long()
    tensors["parameter"] = torch.nn.Parameter(tensors["parameter"])
    tensors["view"] = tensors["transposed"].T  # of the same storage
    training = {"optimizer": {"state": {0: torch.arange(5)}}, "model": tensors, "epoch": 3}
    torch.save(training, GOLDENS / "torch_new.pth")
    torch.save(tensors, GOLDENS / "torch_old.pth", _use_new_zipfile_serialization=False)
