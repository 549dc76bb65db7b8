"""Loads the images that the settings of a run select."""

from zoo.data.image_folder import image_folder
from zoo.data.images import digits
from zoo.data.tfds_images import tfds_images


def find_images(settings):
    """Finds the images that `zoo.training.settings.ImageSettings` select: `ImageSource`."""
    if settings.is_folder:
        return image_folder(settings.data_dir, settings.seed)
    if settings.dataset == "digits":
        return digits(settings.seed)
    return tfds_images(settings.dataset, settings.data_dir)


def load_images(settings, source=None, **options):
    """Loads the images that settings select: `zoo.data.images.ImageDataset`.

    Args:
        settings: `zoo.training.settings.ImageSettings`.
        source: the result of `find_images`, if it was called before.
        **options: `preprocessing`, `train_examples` and `streamed` of `ImageSource.dataset`; by
            default, images are resized to the `image_size` of the settings.
    """
    size = settings.image_size and (settings.image_size, settings.image_size)
    source = source or find_images(settings)
    data = source.dataset(size, seed=settings.seed, **options)
    return data.held_out(settings.validation_split, settings.seed)
