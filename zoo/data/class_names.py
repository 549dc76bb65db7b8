"""Class names of data and of models that mean the same."""

import collections
import re
import unicodedata

import numpy as np

from zoo.errors import DataError


def matched_classes(names, class_names, advice=""):
    """Finds the classes of data among those of a model.

    They are matched by name, by name in any case, by a synonym, by number, or by their order.

    Args:
        names: class names of the data.
        class_names: those of the model.
        advice: what to do if a class is missing, for the error.

    Returns:
        (the number of each class of the data in the model, lines about how they were matched).

    Raises:
        DataError: if the model does not have a class of the data, or has several of its name.
    """
    class_names = [str(name) for name in class_names]  # they may be numbers
    if list(names) == class_names:  # of which several may have the same name
        return list(range(len(names))), ()
    numbers = _numbers(names, class_names)
    missing = [name for name, number in zip(names, numbers) if number is None]
    if not missing:
        return numbers, ()
    if len(missing) == len(names):
        are_decimal = all(name.isdecimal() for name in names)
        if are_decimal and all(int(name) < len(class_names) for name in names):
            numbers = [int(name) for name in names]
            return numbers, (_note("number", names, class_names, numbers),)
        if len(names) == len(class_names):
            order = range(len(names))
            if are_decimal:
                order = sorted(order, key=lambda place: int(names[place]))
            numbers = np.argsort(order).tolist()  # of each class of the data, its place in order
            return numbers, (_note("order", names, class_names, numbers),)
    message = (
        f"The model lacks {len(missing)} of the {len(names)} classes of the data, such as "
        f"{missing[0][:60]!r}. Its classes begin with: {', '.join(class_names[:5])}."
    )
    raise DataError(f"{message} {advice}".rstrip())


def _note(what, names, class_names, numbers):
    pairs = sorted(zip(numbers, names))
    examples = ", ".join(f"{name} is {class_names[number]}" for number, name in pairs[:3])
    return f"Classes are matched by their {what}: {examples}. Check this."


def _numbers(names, class_names):
    """The number in `class_names` of each name, or None; `DataError` if it is that of several.

    A name that is found as it is written is not looked for in another spelling.
    """
    numbers = [None for _ in names]
    for spellings in (_as_written, _in_any_case, _synonyms):
        known = collections.defaultdict(set)
        for number, class_name in enumerate(class_names):
            for spelling in spellings(class_name):
                known[spelling].add(number)
        for place, name in enumerate(names):
            if numbers[place] is not None:
                continue
            found = set().union(*(known.get(spelling, ()) for spelling in spellings(name)))
            if len(found) > 1:
                several = ", ".join(f"{number} ({class_names[number]})" for number in sorted(found))
                raise DataError(
                    f"The class {name!r} of the data has the name of several classes of the model: "
                    f"{several}. Write their names in full, or use the numbers of the classes as "
                    "their names."
                )
            numbers[place] = min(found, default=None)
    return numbers


def _as_written(name):
    return [unicodedata.normalize("NFC", name)]


def _in_any_case(name):
    """The name in lower case, with spaces in place of underscores and hyphens between words."""
    folded = unicodedata.normalize("NFC", name.casefold()).strip()
    return [re.sub(r"(?<=[^\W_])[\s_-]+(?=[^\W_])", " ", folded)]


def _synonyms(name):
    """The parts of a name such as "n02012849 crane, bird", with the number that WordNet gave it."""
    [folded] = _in_any_case(name)
    parts = re.sub(r"^(n\d{8})\b", r"\1,", folded).split(",")
    return [part.strip() for part in parts if part.strip()]
