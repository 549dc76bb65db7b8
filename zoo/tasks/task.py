"""The base classes of what `zoo.load` returns."""

import contextlib
import functools
import json
import operator
import pathlib
import tempfile
import threading
import zipfile

import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.decoding import Hypotheses, SpecialTokens
from zoo.errors import TaskError, as_number
from zoo.tasks.padded_batches import token_batches
from zoo.text.saved_tokenizers import load_tokenizer, save_tokenizer

MODEL_FILE = "model.keras"  # which `keras.Model.save` wrote
WEIGHTS = "model.weights.h5"  # in a `MODEL_FILE`
JIT_COMPILE = True  # by XLA; False for all functions, exported ones as well
MAX_FUNCTIONS = 32  # that a task keeps, the last used ones
_lock = threading.Lock()


class Task:
    """A model together with everything that is needed to use it, which can be saved and loaded.

    Class attributes:
        description_file: name of its JSON file.
        verb: the command of ``python -m zoo`` that uses it.
        tokenizer_names: {attribute: name of that tokenizer's files, see `save_tokenizer`}.
        settings: names of constructor arguments that are attributes and are saved.

    Attributes:
        model: Keras model. It can be replaced by another one that fits.
        engine: function that computes in place of the model, see `zoo.load`. None by default.
        run_folder: the directory it was loaded from, or None.
        jit_compile: whether XLA compiles the functions that call the model.
    """

    description_file, jit_compile, verb = None, None, "export"
    tokenizer_names, settings = {}, ()

    def __init__(self, model):
        self.run_folder = None
        self.model = model

    def __setattr__(self, name, value):
        """Assigns an attribute; functions that were traced with its old value are dropped."""
        if name == "model":
            self.check(value)
            self._variables = []  # of the model when the functions were traced
        if name in ("model", "problem", "shortlist"):
            self.engine = None  # it computes what the old value says
        super().__setattr__(name, value)
        if name not in ("jit_compile", "beam_size", "length_penalty"):  # arguments of functions
            super().__setattr__("_function", functools.lru_cache(MAX_FUNCTIONS)(_compiled))

    def check(self, model):
        """Raises `TaskError` if a model does not fit."""

    def description(self):
        """The content of the JSON file: a dict of the settings; subclasses add to it."""
        return {name: getattr(self, name) for name in self.settings}

    @classmethod
    def from_description(cls, description, model, *parts, **others):
        """Creates a task from its description, its model and other arguments."""
        # Earlier versions saved fewer settings, with the same effect as the defaults of the others.
        settings = {name: description[name] for name in cls.settings if name in description}
        return cls(model, *parts, **others, **settings)

    def save(self, folder):
        """Saves the model, the tokenizers and the description to a folder."""
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.model.save(folder / MODEL_FILE, include_optimizer=False)
        for attribute, name in self.tokenizer_names.items():
            save_tokenizer(getattr(self, attribute), folder, name)
        text = json.dumps(self.description(), indent=2)
        (folder / self.description_file).write_text(text + "\n")

    @classmethod
    def load(cls, folder, **arguments):
        """Loads a folder that `save` wrote; `arguments` of the model, such as `dtype`, override
        its own.
        """
        folder = pathlib.Path(folder)
        description = json.loads((folder / cls.description_file).read_text())
        model = load_model(folder / MODEL_FILE, arguments)
        tokenizers = [load_tokenizer(folder, name) for name in cls.tokenizer_names.values()]
        task = cls.from_description(description, model, *tokenizers)
        task.run_folder = folder
        return task

    def run(self, graph, *tensors, specs=None, **settings):
        """Computes ``graph(*tensors, **settings)`` in a `tf.function`; returns arrays.

        It is traced once for each combination of settings, which are constants, and of shapes, or
        of `specs`, a `tf.TensorSpec` for each tensor. New values of the model's variables take
        effect immediately; if the variables are replaced, as by `enable_lora`, it is traced again.

        Raises:
            TaskError: if the tensors do not fit `specs`, or the model computes NaN.
        """
        tensors = [tf.convert_to_tensor(tensor) for tensor in tensors]
        given = tuple(map(tf.TensorSpec.from_tensor, tensors))
        if specs is None:
            specs = given
        elif not all(map(tf.TensorSpec.is_compatible_with, specs, given)):
            wanted, given = (
                ", ".join(f"{spec.dtype.name} {spec.shape}" for spec in each)
                for each in (specs, given)
            )
            raise TaskError(f"The inputs must be {wanted}. Received: {given}.")
        with _lock:
            now, before = self.model.weights, self._variables
            if len(now) != len(before) or any(map(operator.is_not, now, before)):
                self._variables = now
            function = self._function(graph, specs, self.jit_compile and JIT_COMPILE, **settings)
        return without_nan(keras.tree.map_structure(np.asarray, function(*tensors)))


class TextTask(Task):
    """Base class of tasks whose inputs are texts.

    Args:
        model: see `Task`.
        special_tokens: `zoo.decoding.SpecialTokens`.

    Attributes:
        special_tokens: as given.
        jit_compile: whether XLA compiles the functions that call the model, True by default.
            Compiling takes seconds for each padded shape, and saves time after some batches of that
            shape. Without it, results may differ by rounding.
    """

    jit_compile = True

    def __init__(self, model, special_tokens):
        limit = self._tokenizers()[-1].vocab_size - 1
        tokens = special_tokens._asdict()
        for name, token in tokens.items():
            if (name, token) != ("first", None):
                tokens[name] = as_number(f"special_tokens.{name}", token, int, 0, limit)
        self.special_tokens = SpecialTokens(**tokens)
        super().__init__(model)

    def _tokenizers(self):
        return [getattr(self, name) for name in self.tokenizer_names]

    def check(self, model):
        for name, tokenizer in zip(self.tokenizer_names, self._tokenizers()):
            side, size = name.removesuffix("tokenizer"), tokenizer.vocab_size
            if getattr(model, f"{side}vocab_size") != size:
                raise TaskError(
                    f"The model has {getattr(model, f'{side}vocab_size')} {side.replace('_', ' ')}"
                    f"tokens. Received a tokenizer with {size} tokens."
                )
        pad = self.special_tokens.pad
        if getattr(model, "pad_id", pad) != pad:  # a language model has none
            raise TaskError(
                f"The model's padding token is {model.pad_id} (pad_id). "
                f"Received special tokens with pad={pad}."
            )

    def description(self):
        return {"special_tokens": self.special_tokens._asdict(), **super().description()}

    @classmethod
    def from_description(cls, description, model, *tokenizers):
        special = {"special_tokens": SpecialTokens(**description["special_tokens"])}
        return super().from_description(description, model, *tokenizers, **special)

    def compute(self, rows, function, buffer_length=0):
        """Applies ``function(batch)``, which returns arrays [B, ...], to all rows of tokens.

        Rows are batched by `zoo.tasks.padded_batches.token_batches`. Returns for each row a tuple
        of its part of the arrays.
        """
        results = [None] * len(rows)
        limits = (self.model.max_length, buffer_length)
        # A bar is shown on a terminal, for work that takes longer than a moment.
        with tqdm(total=len(rows), unit="text", delay=1.0, leave=False, disable=None) as progress:
            for batch in token_batches(rows, self.special_tokens, *limits):
                for index, values in zip(batch.indices, zip(*function(batch))):
                    results[index] = values
                progress.update(len(batch.indices))
        return results


def without_nan(outputs):
    """The outputs, an array or `zoo.decoding.Hypotheses`; raises `TaskError` if some are NaN."""
    if np.isnan(outputs.log_probs if isinstance(outputs, Hypotheses) else outputs).any():
        raise TaskError(
            "There is no result: the model computed NaN. Check that its weights are finite; its "
            "training may have diverged."
        )
    return outputs


def _compiled(graph, specs, jit_compile, **settings):
    """A function of tensors that fit `specs`; the first call traces it.

    It does not look for a trace that fits, which would take about 1 ms in each call.
    """
    function = tf.function(
        lambda *tensors: graph(*tensors, **settings), autograph=False, jit_compile=jit_compile
    )
    traced = functools.cache(lambda: function.get_concrete_function(*specs))
    return lambda *tensors: traced()(*tensors)


def read_config(path):
    """The content of config.json in a .keras file: class, arguments and shapes of the model."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read("config.json"))


def load_model(path, arguments):
    """Loads a .keras file; `arguments` of the constructor, such as `dtype`, override its own."""
    config = {**read_config(path), "compile_config": None}
    config["config"] = {**config["config"], **arguments}
    model = keras.saving.deserialize_keras_object(config)
    with unpacked_weights(path) as weights:
        model.load_weights(weights)
    return model


@contextlib.contextmanager
def unpacked_weights(path):
    """Context with the path of the weights of a .keras file, unpacked to a temporary folder.

    HDF5 reads them in any order, and compressed weights would be unpacked again and again.
    """
    with zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as folder:
        yield archive.extract(WEIGHTS, folder)
