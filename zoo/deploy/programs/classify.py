"""Classifies images with model.onnx; requires numpy and onnxruntime, and Pillow for image files.

    python classify.py cat.jpg dog.png --top-k 3
    python classify.py cat.jpg --threshold 0.5     # all classes with at least this probability
    python classify.py pixels.npy                  # uint8 [H, W, C], not resized

From Python, with this folder on the path:

    from classify import Classifier
    Classifier("folder of the export")(["cat.jpg"], top_k=3)      # [[("cat", 0.97), ...]]

Image files are resized and cropped at the center to the size of the model. Arrays must have this
size, or, if the model was exported with dynamic_size, one that its patch size divides. Axes: B
images, H image height, W image width, C channels.
"""

import argparse
import json
import pathlib

import numpy as np
import onnxruntime

_BATCH_SIZE = 32
_FORMATS = ("JPEG", "PNG", "GIF", "BMP", "WEBP")
_MAX_PIXELS = 50_000_000


class Classifier:
    """Classifies images.

    Args:
        folder: folder of the export; by default the folder of this file.
    """

    def __init__(self, folder=pathlib.Path(__file__).parent):
        path = pathlib.Path(folder) / "model.onnx"
        self._session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        about = json.loads((path.parent / "export.json").read_text("utf-8"))
        self.labels, self._problem = about["class_names"], about["problem"]
        self._resizing = about["preprocessing"]
        self.height, self.width = self._resizing["image_size"]
        self.channels = self._resizing["channels"]
        self._patch_size = about.get("patch_size", 0)  # 0: for one size of images

    def __call__(self, images, top_k=None, threshold=None):
        """Classifies images.

        Args:
            images: list of paths, or of arrays uint8 [H, W, C], which are not resized.
            top_k: maximum number of classes per image.
            threshold: minimum probability of a class, a number or one for each class. By default,
                `top_k` is 1; for models of several labels per image, the threshold is 0.5 instead.

        Returns:
            For each image a list of (label, probability), the likeliest first; it may be empty.

        Raises:
            ValueError: if an image or a threshold cannot be used.
        """
        if top_k is None and threshold is None:
            top_k, threshold = (None, 0.5) if self._problem == "multi_label" else (1, None)
        least = np.float32(0 if threshold is None else threshold)
        least = np.broadcast_to(least, len(self.labels))
        if not np.all((least >= 0) & (least <= 1)):
            raise ValueError(f"A threshold must be from 0 to 1. Received: {threshold}.")
        answers, images = [], list(images)
        count = 1 if self._patch_size else _BATCH_SIZE  # sizes may differ
        for start in range(0, len(images), count):
            pixels = np.stack([self.read(image) for image in images[start : start + count]])
            for row in self.probabilities(pixels):
                order = np.argsort(-row, kind="stable")
                best = order[row[order] >= least[order]][:top_k]
                answers.append([(self.labels[k], float(row[k])) for k in best])
        return answers

    def probabilities(self, pixels):
        """Maps uint8 [B, H, W, C] to float32 [B, classes]."""
        return self._session.run(["probabilities"], {"pixels": pixels})[0]

    def read(self, image):
        """Reads a file, or checks an array: uint8 [H, W, C]."""
        if isinstance(image, np.ndarray) or pathlib.Path(image).suffix == ".npy":
            pixels = image if isinstance(image, np.ndarray) else np.load(image)
            wanted, size = (self.height, self.width, self.channels), pixels.shape
            fits = size == wanted
            if self._patch_size:
                wanted = f"(H, W, {self.channels}), H and W multiples of {self._patch_size}"
                fits = size[2:] == (self.channels,) and not np.mod(size[:2], self._patch_size).any()
            if pixels.dtype != np.uint8 or not fits or not pixels.size:
                raise ValueError(
                    f"An array must be uint8 of shape {wanted}. "
                    f"Received: {pixels.dtype} of shape {size}."
                )
            return pixels
        return self._fit(_open(image, self.channels))

    def _fit(self, image):
        """Resizes a Pillow image and crops its center: uint8 [H, W, C]."""
        own, size = np.array([image.height, image.width]), np.array([self.height, self.width])
        resize = self._resizing["resize"]
        if resize is None:
            resize = np.round(own * (size / own).max()).astype(int)
        elif not isinstance(resize, list):
            resize = (resize * own / own.min()).astype(int)
        rows, columns = np.maximum(size, resize).tolist()
        pixels = _resized(image, rows, columns, self._resizing["interpolation"])
        pixels = pixels.reshape(rows, columns, self.channels)
        top, left = (rows - self.height) // 2, (columns - self.width) // 2
        return pixels[top : top + self.height, left : left + self.width]


def _resized(image, rows, columns, interpolation):
    from PIL import Image

    if (rows, columns) == (image.height, image.width):
        return np.asarray(image)
    if interpolation == "bicubic":
        # In the order of Pillow 13, whichever version is installed.
        rows_first = image.height - rows > 2 * max(0, image.width - columns)
        size = (image.width, rows) if rows_first else (columns, image.height)
        image = image.resize(size, Image.Resampling.BICUBIC)
        return np.asarray(image.resize((columns, rows), Image.Resampling.BICUBIC))
    # As floats, so that Pillow does not round between the two passes.
    size, bilinear = (columns, rows), Image.Resampling.BILINEAR
    channels = [channel.convert("F").resize(size, bilinear) for channel in image.split()]
    return np.clip(np.round(np.stack(channels, axis=-1)), 0, 255).astype(np.uint8)


def _open(path, channels):
    """Opens a file as a gray or RGB Pillow image; transparency and EXIF orientation are ignored."""
    from PIL import Image

    with Image.open(path, formats=_FORMATS) as image:
        if image.width * image.height > _MAX_PIXELS:
            raise ValueError(f"{path}: an image must have at most {_MAX_PIXELS:,} pixels.")
        if image.mode.startswith("I"):  # 16 bits: keep the upper 8
            image = Image.fromarray((np.asarray(image) // 256).astype(np.uint8))
        return image.convert("RGB").convert("L" if channels == 1 else "RGB")


def main(arguments=None):
    """Runs the command line."""
    parser = argparse.ArgumentParser(description="Classifies images.")
    parser.add_argument("images", metavar="IMAGE", nargs="+", help="file, or array (.npy)")
    parser.add_argument("--top-k", type=int, help="maximum number of classes per image (1)")
    parser.add_argument("--threshold", type=float, help="minimum probability of a class")
    args = parser.parse_args(arguments)
    try:
        answers = Classifier()(args.images, args.top_k, args.threshold)
    except (OSError, ValueError) as error:  # the message names the file
        parser.exit(2, f"error: {error}\n")
    for path, answer in zip(args.images, answers):
        print(f"{path}\t" + "\t".join(f"{name} {share:.1%}" for name, share in answer))


if __name__ == "__main__":
    main()
