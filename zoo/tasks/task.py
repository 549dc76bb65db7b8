"""The base classes of tasks."""

import contextlib
import functools
import json
import os
import tempfile
import threading
import zipfile
import zlib

import h5py
import keras
import numpy as np
import tensorflow as tf
from tqdm import tqdm

from zoo.decoding import Hypotheses, SpecialTokens
from zoo.errors import CheckpointError, TaskError, as_number, check_tensorflow
from zoo.files import (
    as_new_path,
    as_path,
    atomic,
    check_archive,
    read_json,
    stored_config,
    write_text,
)
from zoo.models.base import ZooModel
from zoo.tasks.padded_batches import pad_and_batch
from zoo.tasks.weight_names import check_size, check_weights
from zoo.text.saved_tokenizers import load_tokenizer, save_tokenizer

MODEL_FILE = "model.keras"  # which `keras.Model.save` wrote
WEIGHTS = "model.weights.h5"  # in a `MODEL_FILE`
_MAX_CONFIG = 2**24  # bytes of the config of a model
JIT_COMPILE = True  # False disables XLA for all tasks, also in exports
# XLA never gives back the memory of what it compiled. It compiles this number of functions of a
# task, and further ones run without it: of these, the task keeps the same number, those used last.
MAX_FUNCTIONS = 32
_lock = threading.Lock()


def _subclasses(kind):
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)


class Task:
    """Base class of tasks, which can be called, saved and loaded.

    Class attributes:
        description_file: name of its JSON file.
        verb: the command of ``python -m zoo`` that uses it.
        tokenizer_names: {attribute: name of the tokenizer in file names}.
        saved_arguments: names of constructor arguments that are saved in the JSON file.
        graph_constants: names of attributes that functions read when they are traced.

    Attributes:
        model: Keras model. It can be replaced by another one that fits.
        engine: function that computes in place of the model, see `zoo.load`. None by default.
        run_folder: the directory it was loaded from, or None.
        settings: the settings of the run that trained it, or None.
        jit_compile: whether XLA compiles the functions that call the model.
    """

    description_file = None
    verb = None
    tokenizer_names = {}
    saved_arguments = ()
    graph_constants = ()
    jit_compile = None

    def __init__(self, model):
        check_tensorflow()
        self.run_folder = None
        self.settings = None
        self.model = model

    @property
    def model(self):
        return self._model

    @model.setter
    def model(self, model):
        self.check_model(model)
        if isinstance(model, ZooModel) and not model.built:
            model.build()
        self._model = model
        self.engine = None  # it computes the old model
        self._drop_functions()

    def __getstate__(self):  # functions cannot be pickled
        omitted = ("_weights", "_cached_function", "_compiled_functions")
        return {name: value for name, value in vars(self).items() if name not in omitted}

    def __setstate__(self, state):
        vars(self).update(state)
        self._drop_functions()

    def _drop_functions(self):
        self._weights = self.model.weights  # that the functions read
        self._cached_function = functools.lru_cache(MAX_FUNCTIONS)(_compiled)
        self._compiled_functions = {}  # those that XLA compiles

    def check_model(self, model):
        """Raises `TaskError` if a model does not fit."""

    def description(self):
        """The content of the JSON file, a dict; subclasses add to it."""
        return {name: getattr(self, name) for name in self.saved_arguments}

    @classmethod
    def from_description(cls, description, model, *parts, **others):
        """Creates a task from its description, its model and other arguments."""
        # Arguments that an earlier version did not save keep their defaults.
        saved = {name: description[name] for name in cls.saved_arguments if name in description}
        return cls(model, *parts, **others, **saved)

    def save(self, folder):
        """Saves the model, the tokenizers and the description to a folder."""
        description = self.description()
        if self.settings is not None:
            description["settings"] = self.settings
        text = json.dumps(description, indent=2)
        folder = as_new_path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        with atomic(folder / MODEL_FILE) as partial:
            self.model.save(partial, include_optimizer=False)
        for attribute, name in self.tokenizer_names.items():
            save_tokenizer(getattr(self, attribute), folder, name)
        write_text(folder / self.description_file, text + "\n")
        for other in _subclasses(Task):  # of another kind of task that was there
            if other.description_file not in (None, self.description_file):
                (folder / other.description_file).unlink(missing_ok=True)

    @classmethod
    def load(cls, folder, **arguments):
        """Loads a folder that `save` wrote; `arguments` of the model replace its own."""
        folder = as_path(folder)
        description = read_json(folder / cls.description_file)
        if "first" in description.get("special_tokens", {}):
            raise CheckpointError(
                f"{folder} was saved by a version of zoo before 0.1.0, in which the weights of "
                "models of tokens have other names. Load it with that version, or train it again."
            )
        model = load_model(folder / MODEL_FILE, arguments)
        tokenizers = [load_tokenizer(folder, name) for name in cls.tokenizer_names.values()]
        task = cls.from_description(description, model, *tokenizers)
        task.run_folder = folder
        task.settings = description.get("settings") or stored_config(folder)
        return task

    def run(self, function, *tensors, specs=None, **constants):
        """Calls a function of tensors as a graph, and returns arrays.

        The function is traced once for each combination of shapes and constants. New values of the
        model's variables take effect immediately; if the variables are replaced, as by
        `enable_lora`, it is traced again.

        Args:
            function: called as ``function(*tensors, **constants)``.
            *tensors: arrays; None; or a named tuple, in which all but arrays are constants.
            specs: a `tf.TensorSpec` for each tensor; by default their own shapes and dtypes.
            **constants: hashable arguments.

        Raises:
            TaskError: if the tensors do not fit `specs`, or the model computes NaN.
        """
        tensors = keras.tree.map_structure(_as_tensor, tensors)
        received = keras.tree.map_structure(_as_spec, tensors)
        if specs is None:
            specs = received
        elif not all(map(tf.TensorSpec.is_compatible_with, specs, received)):
            raise TaskError(
                f"The inputs must be {_described(specs)}. Received: {_described(received)}."
            )
        jit_compile = self.jit_compile and JIT_COMPILE
        attributes = tuple(getattr(self, name) for name in self.graph_constants)
        with _lock:
            if list(map(id, self.model.weights)) != list(map(id, self._weights)):
                self._drop_functions()
            key = (function, specs, attributes, *constants.items())
            if jit_compile and key not in self._compiled_functions:
                if len(self._compiled_functions) < MAX_FUNCTIONS:
                    self._compiled_functions[key] = _compiled(
                        function, specs, jit_compile, attributes, **constants
                    )
                else:
                    jit_compile = None
            if jit_compile:
                compiled = self._compiled_functions[key]
            else:
                compiled = self._cached_function(
                    function, specs, jit_compile, attributes, **constants
                )
        # The first call traces, which may take seconds: without `_lock`, others need not wait.
        return without_nan(keras.tree.map_structure(np.asarray, compiled(*tensors)))


def _as_tensor(value):
    return tf.convert_to_tensor(value) if isinstance(value, (np.ndarray, np.generic)) else value


def _as_spec(value):
    return tf.TensorSpec.from_tensor(value) if tf.is_tensor(value) else value


def _described(specs):
    return ", ".join(f"{spec.dtype.name} {spec.shape}" for spec in specs)


class TextTask(Task):
    """Base class of tasks whose inputs are texts.

    Attributes:
        special_tokens: `zoo.decoding.SpecialTokens`.
        jit_compile: whether XLA compiles the functions that call the model, True by default.
            Compiling takes seconds for each padded shape, and saves time after some batches of that
            shape. Without it, results may differ by rounding.
    """

    jit_compile = True

    def __init__(self, model, special_tokens):
        limit = self._output_tokenizer.vocab_size - 1
        if not isinstance(special_tokens.prefix, (list, tuple)):
            raise TaskError(
                "special_tokens.prefix must be a tuple of token ids. "
                f"Received: {special_tokens.prefix!r}."
            )
        self.special_tokens = SpecialTokens(
            start=as_number("special_tokens.start", special_tokens.start, int, 0, limit),
            end=as_number("special_tokens.end", special_tokens.end, int, 0, limit),
            pad=as_number("special_tokens.pad", special_tokens.pad, int, 0, limit),
            prefix=tuple(
                as_number("special_tokens.prefix", token, int, 0, limit)
                for token in special_tokens.prefix
            ),
        )
        super().__init__(model)

    @property
    def _output_tokenizer(self):
        """The tokenizer of generated texts, or the only one."""
        return getattr(self, list(self.tokenizer_names)[-1])

    def check_model(self, model):
        for name in self.tokenizer_names:
            found = getattr(self, name).vocab_size
            side = name.removesuffix("tokenizer")  # "source_", "target_" or ""
            expected = getattr(model, f"{side}vocab_size")
            if found != expected:
                raise TaskError(
                    f"The model has {expected} {side.replace('_', ' ')}tokens. "
                    f"Received a tokenizer with {found} tokens."
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
        special_tokens = SpecialTokens(**description["special_tokens"])
        return super().from_description(
            description, model, *tokenizers, special_tokens=special_tokens
        )

    def map_batches(self, rows, function, buffer_length=0, hypotheses=1):
        """Applies a function to all rows of tokens, in batches.

        Args:
            rows, buffer_length, hypotheses: see `zoo.tasks.padded_batches.pad_and_batch`.
            function: from a `zoo.tasks.padded_batches.Batch` to arrays [B, ...].

        Returns:
            For each row a tuple of its rows of the arrays.
        """
        batches = pad_and_batch(
            rows, self.special_tokens, self.model.max_length, buffer_length, hypotheses
        )
        results = [None] * len(rows)
        # A bar is shown on a terminal, for work that takes longer than a moment.
        with tqdm(total=len(rows), unit="text", delay=1.0, leave=False, disable=None) as progress:
            for batch in batches:
                for index, values in zip(batch.indices, zip(*function(batch))):
                    results[index] = values
                progress.update(len(batch.indices))
        return results


def without_nan(outputs):
    """The outputs, an array or `zoo.decoding.Hypotheses`; raises `TaskError` if some are NaN."""
    numbers = outputs.log_probs if isinstance(outputs, Hypotheses) else outputs
    if np.isnan(numbers).any():
        raise TaskError(
            "There is no result: the model computed NaN. Check that its weights are finite; its "
            "training may have diverged."
        )
    return outputs


def _compiled(function, specs, jit_compile, attributes, **constants):
    """Returns a function of tensors that fit `specs`, which is traced when it is first called.

    A `tf.function` with several traces would look for one that fits, which takes about 1 ms in each
    call.
    """
    del attributes  # the values of `graph_constants` are only a part of the key of the cache
    graph = tf.function(
        lambda *tensors: function(*tensors, **constants), autograph=False, jit_compile=jit_compile
    )

    @functools.cache
    def trace():
        return graph.get_concrete_function(*specs)

    def call(*tensors):
        traced = trace()
        return traced(*tensors)

    return call


def read_config(path):
    """Reads config.json in a .keras file: class, arguments and shapes of the model."""
    with _opened(path) as archive:
        if archive.getinfo("config.json").file_size > _MAX_CONFIG:
            raise ValueError(f"its config.json has more than {_MAX_CONFIG:,} bytes")
        return json.loads(archive.read("config.json"))


@contextlib.contextmanager
def _opened(path):
    """Context with the `zipfile.ZipFile` of a .keras file, whose errors are `CheckpointError`."""
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(path, archive)
            yield archive
    except CheckpointError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError, ValueError) as error:
        reason = error.args[0] if isinstance(error, KeyError) else str(error)
        raise CheckpointError(
            f"{path} is damaged, or was not written by Keras: {reason.removesuffix('.')}. Copy it "
            "again from where it was trained, or train the model again."
        ) from None


def load_model(path, arguments):
    """Loads a .keras file; `arguments` of the constructor, such as `dtype`, override its own."""
    config = {**read_config(path), "compile_config": None}
    config["config"] = {**config["config"], **arguments}
    with unpacked_weights(path) as weights:
        if str(config.get("module")).startswith("zoo.models"):
            check_size(path, config["config"], os.path.getsize(weights))
        model = keras.saving.deserialize_keras_object(config)
        if type(model).__module__.startswith("zoo.models."):  # others may name weights differently
            with h5py.File(weights) as file:
                check_weights(path, file, model)
        model.load_weights(weights)
    return model


@contextlib.contextmanager
def unpacked_weights(path):
    """Context with the path of the weights of a .keras file, unpacked to a temporary folder.

    HDF5 reads them in any order, and compressed weights would be unpacked again and again.
    """
    with tempfile.TemporaryDirectory() as folder:
        with _opened(path) as archive:
            weights = archive.extract(WEIGHTS, folder)
        yield weights
