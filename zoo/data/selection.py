"""The data that the settings of a run select: images and sentence pairs."""

import functools

from zoo.data import parallel_text
from zoo.data.image_folder import image_folder
from zoo.data.images import digits
from zoo.data.tfds_images import tfds_images
from zoo.data.token_store import file_key


def find_images(settings):
    """Finds the images that settings select, without decoding any: `zoo.data.images.ImageSource`.

    Args:
        settings: `zoo.training.settings.ImageSettings`.
    """
    if settings.is_folder:
        return image_folder(settings.data_dir, settings.seed)
    if settings.dataset == "digits":
        return digits(settings.seed)
    return tfds_images(settings.dataset, settings.data_dir)


def load_images(settings, source=None, **options):
    """Loads the images that settings select: `zoo.data.images.ImageDataset`.

    Args:
        settings: `zoo.training.settings.ImageSettings`.
        source: what `find_images` returned, if it was called before.
        **options: `preprocessing`, `train_examples` and `streamed` of `ImageSource.dataset`; by
            default, images are resized to the `image_size` of the settings.
    """
    size = settings.image_size and (settings.image_size, settings.image_size)
    source = source or find_images(settings)
    data = source.dataset(size, seed=settings.seed, **options)
    return data.held_out(settings.validation_split, settings.seed)


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
