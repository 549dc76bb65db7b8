"""SavedModels that `zoo.export` wrote, as models to evaluate."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from zoo.deploy.export import DESCRIPTION_FILE
from zoo.errors import UserError, needed

_KINDS = ("classifier", "text_classifier", "translator")
_BATCH = 32  # texts of a call
_SHOWN = 60  # characters of a text with an error


def is_exported(path):
    """Whether a path is a folder that `zoo.export` wrote."""
    return (pathlib.Path(path) / DESCRIPTION_FILE).is_file()


class Exported:
    """A classifier or translator in a SavedModel, called through its signatures.

    Args:
        folder: path of the export, such as "serving/digits/1".

    Attributes:
        errors: lines about the texts that were refused so far.

    Raises:
        UserError: if the export has another format, does not return all classes, or has several
            classes of the same name.
    """

    def __init__(self, folder):
        about = json.loads((pathlib.Path(folder) / DESCRIPTION_FILE).read_text("utf-8"))
        self.description_file = f"{about['kind']}.json"
        self.class_names = about.get("class_names", [])
        self.problem = about.get("problem", "single_label")
        self.run_folder = (about.get("source") or {}).get("run")
        if about["format"] != "saved_model" or about["kind"] not in _KINDS:
            raise UserError(
                f"{folder} cannot be evaluated: only SavedModels of classifiers and translators "
                f"can. Its format is {about['format']}, its kind {about['kind']}."
            )
        if len({*self.class_names}) < len(self.class_names):
            raise UserError(f"{folder} has classes of the same name, which cannot be told apart.")
        if about.get("top_k", len(self.class_names)) < len(self.class_names):
            raise UserError(
                f"{folder} returns {about['top_k']} of {len(self.class_names)} classes. Export it "
                f"with --top-k {len(self.class_names)} to evaluate it."
            )
        if "tensorflow-text" in about["needs"]:
            needed("tensorflow_text", package="tensorflow-text")
        self._model = tf.saved_model.load(str(folder))
        self._function = self._model.signatures["serving_default"]
        [self._input] = self._function.structured_input_signature[1]
        self.errors = []

    def probabilities(self, items, too_long=None):
        """The probability of each class for encoded images or texts: float32 [B, classes].

        It is NaN for images that cannot be read, and for texts that are too long.
        """
        places = {name.encode(): place for place, name in enumerate(self.class_names)}
        outputs = self._call(items)
        probabilities = np.full((len(items), len(places)), np.nan, np.float32)
        for row in np.flatnonzero(outputs["error"] == b""):
            order = [places[label] for label in outputs["labels"][row]]
            probabilities[row, order] = outputs["probabilities"][row]
        return probabilities

    def __call__(self, texts):
        """The best translation of each text, "" if it is too long."""
        parts = (texts[start : start + _BATCH] for start in range(0, len(texts), _BATCH))
        return [row[0].decode() for part in parts for row in self._call(part)["translations"]]

    def _call(self, items):
        outputs = self._function(**{self._input: tf.constant(items)})
        outputs = {name: value.numpy() for name, value in outputs.items()}
        self.errors += [
            f"{text[:_SHOWN]!r} ...: {error.decode()}"
            for text, error in zip(items, outputs["error"])
            if error and isinstance(text, str)
        ]
        return outputs
