"""SavedModels that `zoo.export` wrote, as models to evaluate."""

import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.deploy.export import DESCRIPTION_FILE
from zoo.errors import UserError, needed
from zoo.files import as_path, read_json, without_pattern

_KINDS = ("classifier", "text_classifier", "translator", "text_to_text")
_BATCH_SIZE = 32


class Exported:
    """A classifier or translator in a SavedModel, called through its signatures.

    Args:
        folder: a folder that `zoo.export` wrote.

    Attributes:
        refused: list of (index, reason), the items that the last call refused.

    Raises:
        UserError: if the export has another format, or does not return all classes by different
            names.
    """

    def __init__(self, folder):
        folder = as_path(folder)
        about = read_json(folder / DESCRIPTION_FILE)
        self.description_file = f"{about['kind']}.json"
        self.class_names = about.get("class_names", [])
        self.problem = about.get("problem", "single_label")
        source = about.get("source") or {}
        self.settings = source.get("config", {}).get("config")
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
            needed("tensorflow_text")
        with without_pattern(folder) as readable:
            self._model = tf.saved_model.load(str(readable))
        self._function = self._model.signatures["serving_default"]
        [self._input] = self._function.structured_input_signature[1]
        self.refused = []

    def probabilities(self, items, too_long=None, read=str):
        """The probability of each class for each item: float32 [B, classes].

        It is NaN for items that are refused. `read` converts an item to an input of the export.
        """
        numbers = {name.encode(): number for number, name in enumerate(self.class_names)}
        probabilities = np.full((len(items), len(numbers)), np.nan, np.float32)
        for output, row in zip(self._outputs(items, read), probabilities):
            if not output["error"]:
                order = [numbers[label] for label in output["labels"]]
                row[order] = output["probabilities"]
        return probabilities

    def __call__(self, texts):
        """The best translation of each text; "" for texts that are refused."""
        return [output["translations"][0].decode() for output in self._outputs(texts, str)]

    def _outputs(self, items, read):
        """Yields the outputs for each item, {name: value}."""
        self.refused = []
        for start in tqdm(
            range(0, len(items), _BATCH_SIZE), "evaluating", leave=False, disable=None
        ):
            batch = tf.constant([read(item) for item in items[start : start + _BATCH_SIZE]])
            outputs = self._function(**{self._input: batch})
            outputs = {name: value.numpy() for name, value in outputs.items()}
            for index, error in enumerate(outputs["error"], start):
                if error:
                    self.refused.append((index, error.decode()))
            for row in range(len(outputs["error"])):
                yield {name: values[row] for name, values in outputs.items()}
