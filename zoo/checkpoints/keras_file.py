"""Reads the weights in Keras's files, by the names of layers."""

import collections
import functools
import re

import h5py
import ml_dtypes

from zoo.checkpoints.mapping import same
from zoo.checkpoints.tensors import Tensors
from zoo.errors import CheckpointError

# States of random number generators, which are not weights.
SEEDS = (r"(.*/)?seed_generator(_\d+)?/\d+",)


def read(path, file):
    """Reads the `Tensors` of an open `h5py.File` that `keras.Model.save_weights` wrote.

    A tensor is named by the path of its layer and its index among the variables of the layer, such
    as "encoder_0/attention/qkv/1" for a bias. `path` is for messages.
    """
    places = []
    file.visit(places.append)  # does not follow links to other files
    entries = {}
    for place in places:
        array = file[place]
        if not isinstance(array, h5py.Dataset):
            continue
        if array.external or array.id.get_storage_size() != array.nbytes:
            raise CheckpointError(f"{path} is damaged: {place} is not stored in the file.")
        entries[_name(file, place)] = (array.shape, functools.partial(_read, array))
    return Tensors(path, entries)


def _name(file, place):
    """The name of the array at "encoder_blocks/transformer_encoder/attention/qkv/vars/1".

    The groups of the file are named by attributes and classes. The name of the layer is in each
    group "vars".
    """
    *groups, _, index = place.split("/")
    layers = []
    for count in range(len(groups)):
        variables = "/".join([*groups[: count + 1], "vars"])
        if variables in file:
            layers.append(file[variables].attrs["name"])
    return "/".join([*layers, index])


def _read(array):
    is_bfloat16 = array.attrs.get("dtype") == "bfloat16"
    return array[()].view(ml_dtypes.bfloat16) if is_bfloat16 else array[()]


def table(model):
    """The table of the weights of a model in its own files; see `zoo.checkpoints.mapping`."""
    entries = {}
    counts = collections.Counter()  # variables of each layer
    for variable in model.weights:
        path = variable.path.split("/", 1)[1]
        layer = path.rpartition("/")[0]
        tensor = f"{layer}/{counts[layer]}"
        counts[layer] += 1
        entries[_without_index(path)] = same(_without_index(tensor))
    return entries


def _without_index(path):
    return re.sub(r"^(encoder_|decoder_)\d+", r"\1{i}", path)
