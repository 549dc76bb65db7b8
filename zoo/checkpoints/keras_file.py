"""Reads the weights in Keras's files, by the names of layers."""

import collections
import functools
import re

import h5py
import ml_dtypes

from zoo.checkpoints.mapping import same
from zoo.checkpoints.tensors import Tensors
from zoo.errors import CheckpointError

# States of random generators, which are no weights.
SEEDS = (r"(.*/)?seed_generator(_\d+)?/\d+",)


def read(path, file):
    """Reads the `Tensors` of an open `h5py.File` that `keras.Model.save_weights` wrote.

    The name of a tensor is the path of its layer in the model, and its index among the variables of
    that layer: "encoder_0/attention/qkv/1" is a bias. `path` is for messages.
    """
    entries = {}

    def add(place, item):
        if not isinstance(item, h5py.Dataset):
            return
        # Such as "encoder_blocks/transformer_encoder/attention/qkv/vars/1". Groups have the names
        # of attributes and classes; the names of layers are attributes of their groups "vars".
        *groups, _, index = place.split("/")
        layers = []
        for count in range(1, len(groups) + 1):
            variables = file.get("/".join([*groups[:count], "vars"]))
            if variables is not None:
                layers.append(variables.attrs["name"])
        if item.external or item.id.get_storage_size() != item.nbytes:
            raise CheckpointError(f"{path} is damaged: {place} is not stored in the file.")
        entries["/".join([*layers, index])] = (item.shape, functools.partial(_array, item))

    file.visititems(add)  # does not follow links to other files
    return Tensors(path, entries)


def _array(dataset):
    array = dataset[()]
    is_bfloat16 = dataset.attrs.get("dtype") == "bfloat16"
    return array.view(ml_dtypes.bfloat16) if is_bfloat16 else array


def table(model):
    """The table, see `zoo.checkpoints.mapping`, of a model in its own files."""
    entries = {}
    counts = collections.Counter()
    for variable in model.weights:
        path = variable.path.split("/", 1)[1]
        layer = path.rpartition("/")[0]
        index = counts[layer]
        counts[layer] += 1
        blocks = re.sub(r"^(encoder_|decoder_)\d+", r"\1{i}", path)
        entries[blocks] = same(f"{blocks.rpartition('/')[0]}/{index}")
    return entries
