"""Makes torchvision importable beside a PyTorch for CPUs, before timm and transformers import it.

The package index has torchvision for GPUs only. Its import fails at operations of its library,
which does not load without CUDA. Declared here, they let everything else run.
"""

try:
    import torch
    import torchvision  # noqa: F401
except ImportError:
    pass
except RuntimeError:
    _library = torch.library.Library("torchvision", "FRAGMENT")  # declares as long as it lives
    for _name in ("nms", "qnms"):
        _library.define(f"{_name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
