"""Maps the tensors of a file to the variables of a model, by a table of names.

The keys of a table are paths of variables without the name of the model, the values say which
tensors of the file a variable is computed from:

    {"encoder_{i}/norm/gamma": same("layer.{i}.norm.weight"), "head/kernel": linear("head.weight")}

``{i}`` stands for the index of a block.
"""

import math
import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from zoo.errors import CheckpointError

# Numbers that are not weights.
_BUFFERS = r"(.*[./])?(position_ids|num_batches_tracked|relative_position_index)"


class Source(NamedTuple):
    """The tensors that a variable is computed from."""

    names: tuple
    convert: Callable  # (*arrays of the tensors) -> value of the variable
    invert: Callable | None = None  # (value, number of tensors) -> list of arrays


def same(name):
    """One tensor, unchanged."""
    return Source((name,), lambda x: x, lambda x, _: [x])


def linear(*names):
    """PyTorch's matrices [out, in], transposed and concatenated: [in, sum of out]."""
    return Source(
        names,
        lambda *arrays: np.concatenate([x.T for x in arrays], axis=-1),
        lambda x, count: [part.T for part in np.split(x, count, axis=-1)],
    )


def dense(path, *names):
    """The entries of a dense layer that concatenates the outputs of PyTorch's linear layers."""
    return {
        f"{path}/kernel": linear(*(f"{name}.weight" for name in names)),
        f"{path}/bias": joined(*(f"{name}.bias" for name in names)),
    }


def feed_forward(path, hidden, output, dense=dense):
    """The entries of a feed-forward network; `dense` is the function for each of its layers."""
    return {**dense(f"{path}/hidden", hidden), **dense(f"{path}/output_projection", output)}


def norm(path, name, gamma=".weight", beta=".bias"):
    """The entries of a layer normalization."""
    return {f"{path}/gamma": same(name + gamma), f"{path}/beta": same(name + beta)}


def merged_dense(path, *names, to_heads=False, kernel="/kernel", bias="/bias"):
    """Like `dense`, for layers of Flax or Keras.

    Kernels [.., out], or [in, heads, width] if `to_heads`, become matrices, and biases vectors.
    """
    kernels = [name + kernel for name in names]
    biases = [name + bias for name in names]

    def convert(*arrays):
        shapes = [(len(x), -1) if to_heads else (-1, x.shape[-1]) for x in arrays]
        return np.concatenate([x.reshape(shape) for x, shape in zip(arrays, shapes)], axis=-1)

    return {
        f"{path}/kernel": Source(tuple(kernels), convert),
        f"{path}/bias": changed(joined(*biases), np.ravel),
    }


def joined(*names):
    """Concatenated vectors."""
    return Source(names, lambda *arrays: np.concatenate(arrays), np.split)


def biases(width, *names):
    """Concatenated biases of this width, zeros for each name that is None."""

    def convert(*arrays):
        found = iter(arrays)
        return np.concatenate([np.zeros(width) if name is None else next(found) for name in names])

    return Source(tuple(name for name in names if name is not None), convert)


def stacked(*names):
    """Concatenated tokens or positions, [1, n, E] or [n, E]: [sum of n, E]."""
    return Source(
        names,
        lambda *arrays: np.concatenate([x.reshape(-1, x.shape[-1]) for x in arrays]),
        lambda x, count: [part[None] for part in np.split(x, count)],
    )


def patches(name, channels=3):
    """PyTorch's kernel of a convolution, [E, C, P, P], as that of a dense layer: [P·P·C, E]."""

    def invert(x, _):
        side = math.isqrt(len(x) // channels)
        return [x.reshape(side, side, channels, -1).transpose(3, 2, 0, 1)]

    return Source((name,), lambda x: x.transpose(2, 3, 1, 0).reshape(-1, x.shape[0]), invert)


def changed(source, function):
    """A source whose value is `function` of that of another source; it has no inverse."""
    return Source(source.names, lambda *arrays: function(source.convert(*arrays)))


def row(name):
    """A matrix of one row [1, n], as a vector [n]."""
    return Source((name,), lambda x: x.reshape(-1), lambda x, _: [x[None]])


def assign(model, tensors, table, ignored=(), kept=()):
    """Assigns all variables of a built model.

    Args:
        model, tensors: Keras model, and `zoo.checkpoints.tensors.Tensors`.
        table: {path of a variable: `Source`}.
        ignored: regular expressions of the names of tensors that need not be used.
        kept: regular expressions of the paths of variables that keep their value.

    Raises:
        CheckpointError: if tensors are missing or left over, a variable has no entry in the table,
            or a shape or dtype is wrong; the message names all of them.
    """
    plan = []
    unknown = []
    missing = []
    used = set()
    for variable in model.weights:
        path = variable.path.split("/", 1)[1]
        if _matches(kept, path):
            continue
        source = _source(table, path)
        if source is None:
            unknown.append(path)
            continue
        missing += [name for name in source.names if name not in tensors]
        used.update(source.names)
        plan.append((variable, path, source))
    ignored = (*ignored, _BUFFERS)
    unused = [name for name in tensors if name not in used and not _matches(ignored, name)]
    problems = {
        "Tensors that are missing": missing,
        "Tensors that have no place in the model": unused,
        "Variables of the model without a tensor": unknown,
    }
    if any(problems.values()):
        lists = [f"{title}: {', '.join(names)}." for title, names in problems.items() if names]
        raise CheckpointError(
            f"{tensors.path} does not fit the model that its metadata describes. {' '.join(lists)}"
        )
    for variable, path, source in plan:
        variable.assign(_value(tensors, source, path, variable))


def _value(tensors, source, path, variable):
    """The value of the variable at `path`; raises `CheckpointError` if it does not fit."""
    arrays = [tensors[name] for name in source.names]
    for name, array in zip(source.names, arrays):
        if array.dtype.kind in "iub":  # quantized, for example
            raise CheckpointError(f"{tensors.path}: {name} must have floats, not {array.dtype}.")
    try:
        value = np.asarray(source.convert(*arrays), variable.dtype)
        if value.shape == tuple(variable.shape):
            return value
        reason = f"would give {path} the shape {value.shape}"
    except (TypeError, ValueError, IndexError) as error:
        reason = f"cannot become {path}: {error}"
    shapes = ", ".join(f"{name} {array.shape}" for name, array in zip(source.names, arrays))
    raise CheckpointError(
        f"{tensors.path}: {shapes} {reason}. Its shape in the model is {tuple(variable.shape)}."
    )


def collect(model, table):
    """The inverse of `assign`: returns {name of a tensor: array}.

    Raises `CheckpointError` if a variable has no entry in the table, or one without an inverse.
    """
    tensors = {}
    for variable in model.weights:
        source = _source(table, variable.path.split("/", 1)[1])
        if source is None or source.invert is None:
            raise CheckpointError(f"{variable.path} has no counterpart in this format.")
        arrays = source.invert(np.asarray(variable.value), len(source.names))
        tensors.update(zip(source.names, arrays, strict=True))
    return tensors


def _source(table, path):
    """The `Source` of the variable at `path`, with the index of its block; None without one."""
    block = re.match(r"(encoder_|decoder_)(\d+)", path)
    if block is None:
        return table.get(path)
    source = table.get(f"{block[1]}{{i}}{path[block.end() :]}")
    if source is None:
        return None
    return source._replace(names=[name.replace("{i}", block[2]) for name in source.names])


def _matches(patterns, name):
    return any(re.fullmatch(pattern, name) for pattern in patterns)
