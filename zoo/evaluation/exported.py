"""SavedModels that `zoo.export` wrote, as models to evaluate."""

import json
import pathlib

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.deploy.export import DESCRIPTION_FILE
from zoo.errors import UserError, needed

_KINDS = ("classifier", "text_classifier", "translator")
_BATCH = 32  # items of a call
_SHOWN = 60  # characters of a text with an error


class Exported:
    """A classifier or translator in a SavedModel, called through its signatures.

    `errors` are lines about the texts that it refused so far. Raises `UserError` if the export has
    another format, or does not return each class by a name of its own.
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
        count = len(self.class_names)
        if len({*self.class_names}) < count:
            raise UserError(f"{folder} has classes of the same name, which cannot be told apart.")
        if about.get("top_k", count) < count:
            raise UserError(
                f"{folder} returns {about['top_k']} of {count} classes. Export it with --top-k "
                f"{count} to evaluate it."
            )
        if "tensorflow-text" in about["needs"]:
            needed("tensorflow_text", package="tensorflow-text")
        self._model = tf.saved_model.load(str(folder))
        self._function = self._model.signatures["serving_default"]
        [self._input] = self._function.structured_input_signature[1]
        self.errors = []

    def probabilities(self, items, too_long=None, read=str):
        """The probability of each class for items, which ``read`` converts to the input: float32
        [B, classes]. It is NaN for images that cannot be read, and for texts that are too long.
        """
        places = {name.encode(): place for place, name in enumerate(self.class_names)}
        probabilities = np.full((len(items), len(places)), np.nan, np.float32)
        for start, outputs in self._outputs(items, read):
            for row in np.flatnonzero(outputs["error"] == b""):
                order = [places[label] for label in outputs["labels"][row]]
                probabilities[start + row, order] = outputs["probabilities"][row]
        return probabilities

    def __call__(self, texts):
        """The best translation of each text, "" if it is too long."""
        batches = self._outputs(texts, str)
        return [row[0].decode() for _, outputs in batches for row in outputs["translations"]]

    def _outputs(self, items, read):
        """Yields the place of the first item of each batch, and the outputs."""
        starts = range(0, len(items), _BATCH)
        for start in tqdm(starts, "evaluating", leave=False, disable=None):
            batch = [read(item) for item in items[start : start + _BATCH]]
            outputs = self._function(**{self._input: tf.constant(batch)})
            outputs = {name: value.numpy() for name, value in outputs.items()}
            for item, error in zip(batch, outputs["error"]):
                if error and isinstance(item, str):
                    self.errors.append(f"{item[:_SHOWN]!r} ...: {error.decode()}")
            yield start, outputs
