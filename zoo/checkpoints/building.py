"""Builds published models, and decides which classification head they have."""

import re

from zoo.errors import as_number

# The tensors of heads, also of other tasks and of pre-training.
HEADS = r"(cls|fc|pooler|qa_outputs|predictions|predictor|(\w+_)?classifier|(\w+_)?head(_\w+)?"
HEADS += r"|decoder(_\w+)?)[./].*"
# No published model exceeds these; damaged metadata would take hours or gigabytes to build.
MAX_CLASSES, MAX_LAYERS = 1_000_000, 1000
_MAXIMA = {"num_layers": MAX_LAYERS, "embed_dim": 100_000, "ff_dim": 100_000}


def head_classes(tensors, class_names, options):
    """Returns the class names, [] for an encoder, and whether the head of the file is not used.

    `class_names` are those of the head in the file, [] if it has none. `options` are those of
    `zoo.load`, from which `num_classes` is removed.
    """
    requested, count = options.pop("num_classes", None), len(class_names)
    if requested is not None:
        count = as_number("num_classes", requested, int, 0, MAX_CLASSES)
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


def create_model(create, settings, options):
    """Calls `create`, such as `zoo.causal_lm`, with `settings` updated by `options`, two dicts."""
    for name in ("input_shape", "num_classes", "src_lang", "tgt_lang", "shortlist"):
        if name in options and name not in settings:
            raise ValueError(f"{name} is not an option of this model")
    settings = {**settings, **options}
    for name, maximum in _MAXIMA.items():
        if settings.get(name) is not None:
            as_number(name, settings[name], int, 1, maximum)
    return create(**settings)
