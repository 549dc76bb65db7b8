"""Reads the weights in Keras's files, by the names of layers."""

import functools
import re

import ml_dtypes

from zoo.checkpoints.mapping import same
from zoo.checkpoints.tensors import Tensors
from zoo.tasks.weight_names import path_in_model, weights_in_file, weights_of_model


def read(path, file):
    """Reads the `Tensors` of an open `h5py.File` that `keras.Model.save_weights` wrote.

    For their names see `zoo.tasks.weight_names`. `path` is for messages.
    """
    entries = {}
    for name, array in weights_in_file(path, file).items():
        entries[name] = (array.shape, functools.partial(_read, array))
    return Tensors(path, entries)


def _read(array):
    is_bfloat16 = array.attrs.get("dtype") == "bfloat16"
    return array[()].view(ml_dtypes.bfloat16) if is_bfloat16 else array[()]


def table(model):
    """The table of the weights of a model in its own files; see `zoo.checkpoints.mapping`."""
    entries = {}
    for name, variable in weights_of_model(model).items():
        entries[_without_index(path_in_model(variable))] = same(_without_index(name))
    return entries


def _without_index(path):
    return re.sub(r"^(encoder_|decoder_)\d+", r"\1{i}", path)
