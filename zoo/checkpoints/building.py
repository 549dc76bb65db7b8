"""What all published models share: their creation, and the classification head."""

import math
from numbers import Integral, Real

from zoo.checkpoints.errors import CheckpointError

# Arguments that are whole numbers,
_NUMBERS = "embed_dim num_heads decoder_num_heads patch_size max_length".split()
# also rows of a matrix with `embed_dim` columns, and those of blocks.
_ROWS = ("vocab_size", "source_vocab_size", "target_vocab_size", "num_token_types")
_BLOCKS = (("num_layers", "ff_dim"), ("num_decoder_layers", "decoder_ff_dim"))


def head_classes(tensors, class_names, options):
    """The class names of the head, and whether it is new.

    Args:
        tensors: `zoo.checkpoints.tensors.Tensors`.
        class_names: of the head in the file; empty if there is none.
        options: of `zoo.load`; `num_classes` is removed.

    Raises:
        CheckpointError: if there is no head and no `num_classes`, or it is not a number of classes.
    """
    asked = options.pop("num_classes", None)
    if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int) or asked < 1):
        raise CheckpointError(f"num_classes must be a positive integer. Received: {asked!r}.")
    count = asked or len(class_names)
    if not count:
        raise CheckpointError(
            f"{tensors.path} has no classification head. Pass num_classes=..., for a new one."
        )
    if count == len(class_names):
        return class_names, False
    print(f"{tensors.path}: the classification head is new, with {count} classes.")
    return [str(index) for index in range(count)], True


def create_model(create, tensors, settings):
    """Calls `create`, such as `zoo.causal_lm`, with the settings of these tensors.

    Raises:
        CheckpointError: if the settings do not fit together, or are far too large for the tensors.
    """
    _check_numbers(tensors, settings)
    _check_sizes(tensors, settings)
    try:
        return create(**settings)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{tensors.path}: {error}") from None


def _check_numbers(tensors, settings):
    """Raises `CheckpointError` for settings that layers take and that fail or are wrong later."""
    for name in (*_NUMBERS, *_ROWS, *sum(_BLOCKS, ())):
        value = settings.get(name)
        if isinstance(value, bool) or not (value is None or isinstance(value, Integral)):
            raise CheckpointError(f"{tensors.path}: {name}={value!r} is not a whole number.")
    epsilon = settings.get("epsilon", 1e-6)
    if not (isinstance(epsilon, Real) and 0 < epsilon < 1):
        reason = f"epsilon={epsilon!r} is not a number between 0 and 1"
        raise CheckpointError(f"{tensors.path}: {reason}.")


def _check_sizes(tensors, settings):
    """Refuses a model that its file cannot hold: it would take hours or all memory to build it."""
    sizes = {name: value for name, value in settings.items() if isinstance(value, Integral)}
    width, tables = sizes.get("embed_dim", 0), [*_ROWS]
    if settings.get("positions", "learned") == "learned":
        tables.append("max_length")
    rows = [sizes.get(name, 0) for name in tables]
    rows += [sizes.get(n, 0) * max(width, sizes.get(hidden, 0)) for n, hidden in _BLOCKS]
    held = sum(map(math.prod, tensors.shapes.values()))
    if max(rows) * width > held:
        names = {"embed_dim", *tables, *(name for pair in _BLOCKS for name in pair)}
        received = ", ".join(f"{name}={value}" for name, value in sizes.items() if name in names)
        raise CheckpointError(
            f"{tensors.path} holds {held:,} numbers, too few for a model with {received}."
        )
