"""What all published models share: their creation, and the classification head."""

import re

from zoo.checkpoints.errors import CheckpointError
from zoo.errors import checked

# The tensors of heads, also of other tasks.
HEADS = r"(cls|pooler|qa_outputs|(?:cls_|distillation_)?classifier|head(?:_dist)?|predictions)[./]"


def head_classes(tensors, class_names, options):
    """The class names of the head, and whether it is not that of the file. An encoder has none.

    Args:
        tensors: `zoo.checkpoints.tensors.Tensors`.
        class_names: of the head in the file; empty if there is none.
        options: of `zoo.load`; `num_classes`, 0 for an encoder, is removed.

    Raises:
        TaskError: if `num_classes` is not a number of classes.
    """
    asked = options.pop("num_classes", None)
    count = len(class_names) if asked is None else checked("num_classes", asked, int, 0)
    if count == len(class_names) > 0:
        return class_names, False
    new = f"the classification head is new, with {count} classes."
    if not count:
        unused = sorted({match[1] for name in tensors if (match := re.match(HEADS, name))})
        new = "an encoder. For a classifier with a new head, pass num_classes."
        new += f" Not used: {', '.join(unused)}." if unused else ""
    print(f"{tensors.path}: {new}")
    return [str(index) for index in range(count)], True


def create_model(create, tensors, settings):
    """Calls `create`, such as `zoo.causal_lm`; raises `CheckpointError` if the settings are bad."""
    try:
        return create(**settings)
    except (TypeError, ValueError) as error:
        raise CheckpointError(f"{tensors.path}: {error}") from None
