"""Models of published settings, with the published classification head or a new one."""

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.mapping import assign


def head_classes(tensors, class_names, options):
    """The class names of the head, and whether it is new.

    Args:
        tensors: `zoo.checkpoints.tensors.Tensors`.
        class_names: those of the head in the file; empty if there is none.
        options: what the caller asks for; `num_classes` is taken out.

    Raises:
        CheckpointError: if there is no head and no `num_classes`, or it is no number of classes.
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


def built(make, tensors, table, settings, ignored=(), kept=()):
    """A model with its variables assigned: `make`, such as `zoo.causal_lm`, of the `settings`.

    For the other arguments see `zoo.checkpoints.mapping.assign`.

    Raises:
        CheckpointError: if the settings do not fit together; see also
            `zoo.checkpoints.mapping.assign`.
    """
    try:
        model = make(**settings)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{tensors.path}: {error}") from None
    assign(model, tensors, table, ignored, kept)
    return model
