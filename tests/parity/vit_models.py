"""What the comparisons of Vision Transformers have in common: drawn weights, images, pixels."""

import io

import numpy as np
import PIL.Image
import torch

from tests.checkpoints import drawn

torch.set_num_threads(1)
# width and height
SIZES = [(131, 97), (500, 333), (201, 640), (333, 500), (640, 201), (48, 48), (30, 41), (41, 30)]


def with_drawn_weights(model):
    """A model of PyTorch whose weights all matter, in evaluation."""
    shapes = {name: tensor.shape for name, tensor in model.state_dict().items()}
    drawn_tensors = {name: torch.tensor(value) for name, value in drawn.tensors(shapes).items()}
    model.load_state_dict(drawn_tensors)
    return model.eval()


def assert_same_outputs(found, model, size, outputs="logits"):
    """Compares a function of images [B, H, W, C] with a model of PyTorch at a size (H, W).

    Tolerance: 1e-4, for the same float32 operations in another order.
    """
    images = drawn.images(*size)
    with torch.no_grad():
        expected = model(torch.tensor(images).permute(0, 3, 1, 2))
    expected = getattr(expected, outputs, expected).numpy()
    assert np.abs(expected[0] - expected[1]).max() > 0.1 < np.ptp(expected)
    np.testing.assert_allclose(found(images), expected, atol=1e-4)


def photographs():
    """Images of odd sizes, smooth with edges and noise, as a camera stores them."""
    random = np.random.default_rng(0)
    for width, height in SIZES:
        coarse = PIL.Image.fromarray(random.integers(0, 256, (5, 7, 3), np.uint8))
        pixels = np.array(coarse.resize((width, height), PIL.Image.Resampling.BICUBIC), float)
        pixels[height // 3 :, width // 4 : width // 2] *= 0.3
        pixels += random.normal(0, 8, pixels.shape)
        file = io.BytesIO()
        PIL.Image.fromarray(pixels.clip(0, 255).astype("uint8")).save(file, "jpeg", quality=90)
        yield PIL.Image.open(file)


def assert_same_pixels(preprocessing, reference):
    """Compares preprocessing with a function of a PIL image that gives normalized [C, H, W].

    Tolerance: one level of 255, as both round to whole levels.
    """
    for image in photographs():
        expected = np.asarray(reference(image)).transpose(1, 2, 0)
        found = preprocessing.normalize(preprocessing.read(image)).numpy()
        assert found.shape == expected.shape
        levels = np.abs(found - expected) * np.asarray(preprocessing.std) * 255
        assert levels.max() < 1.01, image.size
