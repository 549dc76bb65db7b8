"""Names of the weights in the files that Keras writes, and of those of a model.

A weight is named by the path of its layer and its index among the variables of the layer, such as
"encoder_0/attention/qkv/1" for a bias.
"""

import collections
import re

import h5py

from zoo.data.preprocessing import MAX_SIDE
from zoo.errors import CheckpointError, as_number

MAX_LAYERS = 1000
_VOCABULARIES = ("vocab_size", "source_vocab_size", "target_vocab_size")
_OTHER_ROWS = (
    "num_classes", "num_class_tokens", "num_registers", "representation_dim", "num_token_types"
)  # fmt: skip
# States of random number generators, which are not weights.
SEEDS = r"(.*/)?seed_generator(_\d+)?/\d+"


def weights_in_file(path, file):
    """Returns {name: `h5py.Dataset`} of an open `h5py.File` of a model that Keras wrote.

    `path` is for messages.
    """
    places = []
    file.visit(places.append)  # does not follow links to other files
    found = {}
    for place in places:
        array = file[place]
        if not isinstance(array, h5py.Dataset) or place.startswith("optimizer/"):
            continue
        if array.external or array.id.get_storage_size() != array.nbytes:
            raise CheckpointError(f"{path} is damaged: {place} is not stored in the file.")
        found[_name(file, place)] = array
    return found


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


def weights_of_model(model):
    """Returns {name: variable} of a model of the zoo."""
    found = {}
    counts = collections.Counter()  # variables of each layer
    for variable in model.weights:
        layer, slash, _ = path_in_model(variable).rpartition("/")  # of the model itself: ""
        found[f"{layer}{slash}{counts[layer]}"] = variable
        counts[layer] += 1
    return found


def path_in_model(variable):
    """The path of a variable without the name of the model: "encoder_0/attention/qkv/bias"."""
    return variable.path.split("/", 1)[1]


def check_size(path, arguments, most):
    """Raises an error if a model is too large for its file, before it is built.

    Args:
        path: for messages.
        arguments: of a model of the zoo, a dict.
        most: number of weights in the file, or of bytes.

    Raises:
        TaskError: if an argument is not a number, there are more than 1,000 layers, or a side of
            the images has more than 16,384 pixels.
        CheckpointError: if embeddings, patches, positions, heads and the larger matrices of the
            blocks alone would have more weights than the file.
    """
    numbers = {"num_layers": MAX_LAYERS, "num_decoder_layers": MAX_LAYERS}
    numbers |= dict.fromkeys(("embed_dim", "ff_dim", "decoder_ff_dim", *_VOCABULARIES), most)
    numbers |= dict.fromkeys(("num_heads", "decoder_num_heads", "key_dim"), most)
    if arguments.get("positions", "learned") == "learned":
        numbers["max_length"] = most
    given = {}
    for name, maximum in numbers.items():
        if arguments.get(name) is not None:
            given[name] = as_number(name, arguments[name], int, 1, maximum)
    as_number("epsilon", arguments.get("epsilon", 0), float, 0)
    width = given.get("embed_dim", 1)
    hidden = given.get("ff_dim", 4 * width)
    rows = given.get("num_layers", 1) * hidden  # of all matrices [rows, embed_dim]
    if "target_vocab_size" in given:
        layers = given.get("num_decoder_layers", given.get("num_layers", 1))
        rows += layers * given.get("decoder_ff_dim", hidden)
    rows += max(given.get(name, 0) for name in _VOCABULARIES)
    heads = max(given.get("num_heads", 1), given.get("decoder_num_heads", 1))
    rows += given.get("num_layers", 1) * heads * given.get("key_dim", 0)
    rows += given.get("max_length", 0)
    for name in _OTHER_ROWS:
        rows += as_number(name, arguments.get(name) or 0, int, 0, most)
    if arguments.get("input_shape") is not None:
        side = as_number("patch_size", arguments["patch_size"], int, 1, MAX_SIDE)
        shape = [as_number("input_shape", n, int, 1, MAX_SIDE) for n in arguments["input_shape"]]
        rows += side**2 * shape[2]
        if arguments.get("positions", "learned") == "learned":
            rows += (shape[0] // side) * (shape[1] // side)
        if arguments.get("positions") == "relative_table":
            tables = heads * given.get("num_layers", 1)
            rows += (shape[0] // side) * (shape[1] // side) * tables // width
    if width * rows > most:
        raise CheckpointError(
            f"{path} does not fit the model that its metadata describes, which would have more "
            f"than {width * rows:,} weights: it is damaged."
        )


def check_weights(path, file, model):
    """Raises `CheckpointError` if a file does not contain exactly the weights of a model.

    Keras ignores weights in a file that have no place in the model.

    Args:
        path: for messages.
        file: open `h5py.File`.
        model: a built model of the zoo.
    """
    found = weights_in_file(path, file)
    expected = weights_of_model(model)
    fits = f"{path} does not fit the model that its config.json describes"
    for name, variable in expected.items():
        weight = path_in_model(variable)
        if name not in found:
            raise CheckpointError(f"{fits}: it contains no {weight}.")
        if found[name].shape != tuple(variable.shape):
            raise CheckpointError(
                f"{fits}: {weight} has the shape {found[name].shape} in the file and "
                f"{tuple(variable.shape)} in the model."
            )
    for name in found:
        if name not in expected and not re.fullmatch(SEEDS, name):
            raise CheckpointError(f"{fits}: {name} has no place in the model.")
