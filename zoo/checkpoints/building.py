"""Builds published models, and decides which classification head they have."""

import math
import re

from zoo.errors import as_number
from zoo.tasks.weight_names import check_size

# Tensors of heads, also those of other tasks and of pre-training.
HEADS = (
    r"(cls|fc|pooler|qa_outputs|predictions|predictor|(\w+_)?classifier|(\w+_)?head(_\w+)?"
    r"|decoder(_\w+)?)[./].*"
)
# No published model exceeds this; damaged metadata would take hours or gigabytes to build.
MAX_CLASSES = 1_000_000


def head_classes(tensors, class_names, options):
    """Decides which classification head a model has, and prints a line if it is not the file's.

    Args:
        tensors: `Tensors` of the file.
        class_names: class names of the head in the file; [] if it has none.
        options: options of `zoo.load`, from which `num_classes` is removed.

    Returns:
        The class names, [] for an encoder; and whether the model does not have the file's head.
    """
    count = len(class_names)
    requested = options.pop("num_classes", None)
    if requested is not None:
        count = as_number("num_classes", requested, int, 0, MAX_CLASSES)
    if count == len(class_names) > 0:
        return class_names, False
    unused = set()
    for name in tensors:
        match = re.fullmatch(HEADS, name)
        if match:
            unused.add(match[1])
    if count:
        line = f"the classification head is new, with {count} classes."
        unused -= {"pooler", "pre_classifier"}
    else:
        line = "an encoder. For a classifier with a new head, pass num_classes."
    if unused:
        line += f" Not used: {', '.join(sorted(unused))}."
    print(f"{tensors.path}: {line}")
    return [str(index) for index in range(count)], True


def create_model(create, tensors, arguments, options):
    """Calls a function such as `zoo.causal_lm`; options of `zoo.load` override its arguments.

    `tensors` are the `Tensors` of its weights; a model that needs many more is not built.
    """
    for name in ("input_shape", "num_classes", "classes", "src_lang", "tgt_lang", "shortlist"):
        if name in options and name not in arguments:
            raise ValueError(f"{name} is not an option of this model")
    arguments = {**arguments, **options}
    # Patches, positions and the head are adapted to the options.
    sizes = {**arguments, "input_shape": None, "num_classes": None}
    check_size(tensors.path, sizes, sum(map(math.prod, tensors.shapes.values())))
    return create(**arguments)
