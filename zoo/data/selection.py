"""The data that the settings of a run select: images, their class names, and sentence pairs."""

import functools

from zoo.data import images, parallel_text
from zoo.data.image_folder import folder_classes, image_folder
from zoo.data.preprocessing import ImagePreprocessing
from zoo.data.tfds_images import tfds_classes, tfds_images
from zoo.data.token_store import file_key
from zoo.errors import UserError


def load_images(settings, preprocessing=None, train_examples=None, streamed=False):
    """Finds the images that settings select: `zoo.data.images.ImageDataset`.

    Args:
        settings: `zoo.training.settings.ImageSettings`.
        preprocessing: `zoo.data.preprocessing.ImagePreprocessing` that resizes and crops them; by
            default they are resized to `image_size`.
        train_examples: number of training images to draw; all by default.
        streamed: whether the training images keep their sizes until they are needed, for random
            crops.
    """
    size = settings.image_size and (settings.image_size, settings.image_size)
    options = {"preprocessing": preprocessing, "train_examples": train_examples}
    if settings.dataset == "digits" and not settings.is_folder:
        options["preprocessing"] = preprocessing or (size and ImagePreprocessing(size, 1))
        data = images.digits(settings.seed, **options)
    elif not settings.is_folder:
        source = settings.dataset, settings.data_dir
        data = tfds_images(*source, size, settings.seed, streamed=streamed, **options)
    elif size or preprocessing:
        data = image_folder(settings.data_dir, size, settings.seed, streamed=streamed, **options)
    else:
        raise UserError(f"Pass --image-size, such as 64, for the image folder {settings.data_dir}.")
    return data.held_out(settings.validation_split, settings.seed)


def class_names(settings):
    """The class names of the images that settings select, without reading any image."""
    if settings.is_folder:
        return folder_classes(settings.data_dir)
    if settings.dataset == "digits":
        return images.DIGITS
    return tfds_classes(settings.dataset, settings.data_dir)


def text_source(settings):
    """Returns (identity of the sentence pairs, for the key of the cache; function that reads them:
    `zoo.data.parallel_text.ParallelText`)."""
    seed = settings.seed
    if settings.tsv:
        read = functools.partial(parallel_text.tsv, settings.tsv, seed)
        return [file_key(settings.tsv), seed], read
    if settings.source:
        files = [
            (settings.source, settings.target),
            (settings.valid_source, settings.valid_target),
            (settings.test_source, settings.test_target),
        ]
        identity = [path and file_key(path) for pair in files for path in pair]
        held_out = [pair if any(pair) else None for pair in files[1:]]
        read = functools.partial(parallel_text.parallel_files, *files[0], *held_out, seed)
        return [identity, None if all(held_out) else seed], read
    if settings.dataset == "phrasebook":
        return ["phrasebook", seed], functools.partial(parallel_text.phrasebook, seed)
    data = (settings.dataset, settings.data_dir, seed)
    return parallel_text.tfds_key(*data), functools.partial(parallel_text.tfds_pairs, *data)
