"""What everything that `zoo.load` returns has in common."""

import json
import pathlib

import keras
import numpy as np

from zoo.decoding import SpecialTokens
from zoo.tasks.compiled_functions import CompiledFunctions, without_nan
from zoo.tasks.model_file import load_model
from zoo.tasks.options import checked
from zoo.tasks.padded_batches import token_batches
from zoo.text.saved_tokenizers import load_tokenizer

MODEL_FILE = "model.keras"


class Task:
    """A model with all that it takes to use it, in memory and in a folder.

    A subclass has `description`, the content of its JSON file, and `from_description`, the inverse;
    and `check`, which raises an error for a model that does not fit.

    Class attributes:
        description_file: name of its JSON file.
        tokenizer_files: {attribute: name of the file of that tokenizer}.

    Attributes:
        model: Keras model. Another one that fits may be assigned at any time.
        engine: function that computes in place of the model, see `zoo.load`. None by default.
        run_folder: the directory it was loaded from, or None.
        jit_compile: whether XLA compiles what computes with the model.
    """

    description_file, jit_compile = None, None
    tokenizer_files = {}

    def __init__(self, model):
        self.run_folder = None
        self.model = model

    @property
    def model(self):
        return self._model

    @model.setter
    def model(self, model):
        self.check(model)
        self._model, self.engine = model, None
        self._functions = CompiledFunctions(model)

    def save(self, folder):
        """Writes the model and all that belongs to it into `folder`."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / MODEL_FILE, include_optimizer=False)
        for name, file in self.tokenizer_files.items():
            getattr(self, name).save(folder / file)
        text = json.dumps(self.description(), indent=2)
        (folder / self.description_file).write_text(text + "\n")

    @classmethod
    def load(cls, folder, **arguments):
        """Loads what `save` wrote; `arguments` of the model, such as `dtype`, replace its own."""
        folder = pathlib.Path(folder)
        description = json.loads((folder / cls.description_file).read_text())
        model = load_model(folder / MODEL_FILE, arguments)
        tokenizers = [load_tokenizer(folder / file) for file in cls.tokenizer_files.values()]
        task = cls.from_description(description, model, *tokenizers)
        task.run_folder = folder
        return task

    def call(self, graph, *tensors, specs=None, **settings):
        """Computes ``graph(*tensors, **settings)``, see `CompiledFunctions.call`."""
        return self._functions.call(graph, tensors, self.jit_compile, settings, specs)

    def run(self, graph, *tensors, **settings):
        """The same as arrays; raises `TaskError` if the model computes NaN."""
        outputs = self.call(graph, *tensors, **settings)
        return without_nan(keras.tree.map_structure(np.asarray, outputs))


class TextTask(Task):
    """A task of texts, which computes with batches of tokens.

    Args:
        model: see `Task`.
        special_tokens: `zoo.decoding.SpecialTokens`.
        vocab_size: number of tokens, of which they are some.

    Attributes:
        special_tokens: as given.
        jit_compile: whether XLA compiles the functions, as it does by default. It takes seconds for
            each padded shape, and pays off after some batches of that shape. Without it, results
            may differ by rounding.
    """

    def __init__(self, model, special_tokens, vocab_size):
        self.jit_compile = True
        tokens = special_tokens._asdict()
        for name, token in tokens.items():
            if (name, token) != ("first", None):
                tokens[name] = checked(f"special_tokens.{name}", token, int, 0, vocab_size - 1)
        self._special_tokens = SpecialTokens(**tokens)
        super().__init__(model)

    @property
    def special_tokens(self):
        return self._special_tokens

    def compute(self, rows, function, buffer_length=0):
        """Computes with rows of tokens in batches.

        Args:
            rows, buffer_length: see `zoo.tasks.padded_batches.token_batches`.
            function: function of a `zoo.tasks.padded_batches.Batch` -> arrays [B, ...].

        Returns:
            For each row a tuple of arrays.
        """
        results = [None] * len(rows)
        limits = (self.model.max_length, buffer_length)
        batches = token_batches(rows, self.special_tokens, *limits)
        for batch, arrays in self._functions.each(function, batches):
            for index, values in zip(batch.indices, zip(*arrays)):
                results[index] = values
        return results
