"""What all published models share: their creation, and the classification head."""

from zoo.checkpoints.errors import CheckpointError


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
    """Calls `create`, such as `zoo.causal_lm`; raises `CheckpointError` if the settings are bad."""
    try:
        return create(**settings)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{tensors.path}: {error}") from None
