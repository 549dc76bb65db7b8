"""Settings that the recipes for image classifiers share."""

import dataclasses
import pathlib

from zoo.errors import UserError
from zoo.training.run_settings import RunSettings


@dataclasses.dataclass(frozen=True)
class ImageSettings(RunSettings):
    """Settings of a run and its data."""

    dataset: str = "cifar10"
    """digits (built in), or an image classification data set by its TensorFlow Datasets name."""
    data_dir: str | None = None
    """Folder of prepared TFDS data, or of images: train/<class>/*.jpg, test/<class>/*.jpg."""
    image_size: int | None = None
    """Side in pixels to resize images to; required if they differ in size."""
    validation_split: float = 0.0
    """Share of the training images to hold out and test on in place of the test images, to choose
    settings."""

    @property
    def data_name(self):
        """The name of the data set or folder."""
        return pathlib.Path(self.data_dir).name if self._is_folder else self.dataset

    def class_names(self):
        """The class names of the data set or folder, without reading any image."""
        from zoo.data.image_folder import folder_classes
        from zoo.data.images import DIGITS
        from zoo.data.tfds_images import tfds_classes

        if self._is_folder:
            return folder_classes(self.data_dir)
        return DIGITS if self.dataset == "digits" else tfds_classes(self.dataset, self.data_dir)

    def load_data(self, preprocessing=None, train_examples=None, streamed=False):
        """Finds the images: `zoo.data.images.ImageDataset`.

        Args:
            preprocessing: `zoo.data.preprocessing.ImagePreprocessing` that resizes and crops them;
                by default they are resized to `image_size`.
            train_examples: number of training images to draw; all by default.
            streamed: whether the training images keep their sizes until they are needed, for
                random crops.
        """
        data = self._images(preprocessing, train_examples, streamed)
        return data.held_out(self.validation_split, self.seed)

    def _images(self, preprocessing, train_examples, streamed):
        from zoo.data.image_folder import image_folder
        from zoo.data.images import digits, resizing
        from zoo.data.tfds_images import tfds_images

        size = self.image_size and (self.image_size, self.image_size)
        settings = {"preprocessing": preprocessing, "train_examples": train_examples}
        if self.dataset == "digits" and not self._is_folder:
            settings["preprocessing"] = preprocessing or (size and resizing(size, 1))
            return digits(self.seed, **settings)
        settings["streamed"] = streamed
        if not self._is_folder:
            return tfds_images(self.dataset, self.data_dir, size, self.seed, **settings)
        if not size and not preprocessing:
            raise UserError(f"Pass --image-size, such as 64, for the image folder {self.data_dir}.")
        return image_folder(self.data_dir, size, self.seed, **settings)

    @property
    def _is_folder(self):
        return self.data_dir is not None and pathlib.Path(self.data_dir, "train").is_dir()


def augmentation(config, **settings):
    """`Augmentation` with the settings of a recipe that have the names of its arguments.

    `settings` override those of the recipe.
    """
    from zoo.training.augmentation import Augmentation

    names = [
        field.name for field in dataclasses.fields(Augmentation) if hasattr(config, field.name)
    ]
    try:
        return Augmentation(**{**{name: getattr(config, name) for name in names}, **settings})
    except ValueError as error:
        raise UserError(str(error)) from None
