"""The data that the settings of a run select: images and sentence pairs."""

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


def pairs_key(settings):
    """What the sentence pairs that settings select depend on, for the key of a cache."""
    key = [settings.dataset, settings.seed]
    if settings.dataset not in (None, "phrasebook"):
        key += [parallel_text.tfds_version(settings.dataset, settings.data_dir)]
    return key + [path and file_key(path) for path in (settings.tsv, *sum(_files(settings), ()))]


def read_pairs(settings):
    """Reads the sentence pairs that settings select: `zoo.data.parallel_text.ParallelText`.

    Args:
        settings: `zoo.training.settings.TranslationSettings`.
    """
    seed, dataset = settings.seed, settings.dataset
    if settings.tsv:
        return parallel_text.tsv(settings.tsv, seed)
    if settings.source:
        train, *others = _files(settings)
        return parallel_text.parallel_files(
            *train, *(pair if any(pair) else None for pair in others), seed
        )
    if dataset == "phrasebook":
        return parallel_text.phrasebook(seed)
    return parallel_text.tfds_pairs(dataset, settings.data_dir, seed)


def _files(settings):
    """(source, target) for training, validation and test."""
    return [
        (settings.source, settings.target),
        (settings.valid_source, settings.valid_target),
        (settings.test_source, settings.test_target),
    ]
