"""What all published models share: their creation, and the classification head."""

import re

import tensorflow as tf

from zoo.errors import CheckpointError, checked

# The tensors of heads, also of other tasks and of pre-training.
HEADS = r"(cls|fc|pooler|qa_outputs|predictions|predictor|(\w+_)?classifier|(\w+_)?head(_\w+)?"
HEADS += r"|decoder(_\w+)?)[./].*"
# More than any model has; others take hours, or gigabytes, for which TensorFlow waits 10 s.
MAX_CLASSES, MAX_LAYERS = 1_000_000, 1000
_MOST = {"num_layers": MAX_LAYERS, "embed_dim": 100_000, "ff_dim": 100_000}


def head_classes(tensors, class_names, options):
    """The class names of the head, and whether it is not that of the file. An encoder has none.

    `class_names` are those of the file, `options` those of `zoo.load`, which lose `num_classes`.
    """
    asked, count = options.pop("num_classes", None), len(class_names)
    if asked is not None:
        count = checked("num_classes", asked, int, 0, MAX_CLASSES)
    if count == len(class_names) > 0:
        return class_names, False
    new = f"the classification head is new, with {count} classes."
    if not count:
        new = "an encoder. For a classifier with a new head, pass num_classes."
    unused = {match[1] for name in tensors if (match := re.fullmatch(HEADS, name))}
    unused -= {"pooler"} if count else set()
    new += f" Not used: {', '.join(sorted(unused))}." * bool(unused)
    print(f"{tensors.path}: {new}")
    return [str(index) for index in range(count)], True


def create_model(create, tensors, settings, options=None):
    """Calls `create`, such as `zoo.causal_lm`, with `settings` that the dict `options` replaces."""
    options = options or {}
    try:
        if "input_shape" in options and "input_shape" not in settings:  # Keras would take it
            raise ValueError("input_shape is an option of models of images only.")
        settings = {**settings, **options}
        for name, most in _MOST.items():
            value = settings.get(name, 1)
            if (name, value) != ("ff_dim", None):
                checked(name, value, int, 1, most)
        return create(**settings)
    except (MemoryError, TypeError, ValueError, tf.errors.OpError) as error:
        reason = str(error).split("}} ")[-1].split(" [Op:")[0]  # without TensorFlow's names
        given = "".join(f", {name}={value!r}" for name, value in options.items())
        raise CheckpointError(f"{tensors.path}{given}: {reason}") from None
