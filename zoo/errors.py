"""Errors that users can fix, as opposed to bugs, and common checks of arguments."""

import importlib
import importlib.metadata
import math
import operator
import os
import re
import sys

# Packages whose modules have other names.
_PACKAGES = {
    "PIL": "pillow",
    "sklearn": "scikit-learn",
    "tensorflow_serving": "tensorflow-serving-api",
    "yaml": "pyyaml",
}


class UserError(ValueError):
    """An error that the user can fix: the message says what is wrong, where, and what to do.

    Recipes and the command line print the message without a traceback and exit with status 2.
    """


class TaskError(UserError):
    """An invalid argument, input or model; the message says which and why."""


class DataError(UserError):
    """Data that cannot be used; the message says which, why and what to do."""


class CheckpointError(UserError):
    """Published weights that cannot be used; the message names the file and says why."""


class TokenizerError(UserError):
    """An invalid text, id or tokenizer file; the message says which and why."""


class ExportError(UserError):
    """A model cannot be exported, or the outputs of the export differ; the message says why."""


class ServerError(UserError):
    """A model or an option of the server is invalid; the message says which and why."""


def as_number(name, value, number, low=-math.inf, high=math.inf):
    """Converts an option to `number`, int or float; raises `TaskError` if it is out of range.

    NaN, infinity, bools, and floats in place of ints are errors as well.
    """
    try:
        converted = operator.index(value) if number is int else float(+value)
    except (TypeError, OverflowError):
        converted = math.nan
    is_valid = low <= converted <= high and abs(converted) < math.inf
    if isinstance(value, bool) or not is_valid:
        expected = "an integer" if number is int else "a finite number"
        least = "" if low == -math.inf else f" of at least {low}"
        limits = least if high == math.inf else f" from {low} to {high}"
        raise TaskError(f"{name} must be {expected}{limits}. Received: {name}={value!r}.")
    return converted


def check_bool(name, value):
    """Raises `TaskError` if an option is not True or False: "no" would be true."""
    if not isinstance(value, bool):
        raise TaskError(f"{name} must be True or False. Received: {name}={value!r}.")


def check_choice(name, value, choices):
    """Raises ValueError if an argument is not one of `choices`, a tuple."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {choices}. Received: {name}={value!r}.")


def check_at_least_1(**numbers):
    """Raises ValueError unless the numbers are integers of at least 1."""
    for name, number in numbers.items():
        as_number(name, number, int, 1)


def check_tensorflow():
    """Raises `UserError` if Keras has another backend than TensorFlow."""
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    if backend == "tensorflow" or "keras" in sys.modules:  # another may not be installed
        import keras

        backend = keras.backend.backend()
    if backend != "tensorflow":
        raise UserError(
            f"Keras computes with {backend}, and training, zoo.load and what it returns need "
            "TensorFlow: set KERAS_BACKEND=tensorflow. Layers, models and searches run on any "
            "backend of Keras."
        )


def describe_string(text):
    """Says in an error message what a string in place of a file is; "" if it may be a path."""
    if re.match(r"data:[^,]{0,99},", text):
        return "is a data URL, whose Base64 begins after the comma"
    if re.match(r"[a-z0-9]+://", text, re.IGNORECASE):
        return "is a URL, and nothing is downloaded"
    digits = text[:1_000_000].replace("\r", "").replace("\n", "")
    is_base64 = re.fullmatch(r"[A-Za-z0-9+/_-]{16,}={0,2}", digits)
    return "looks like Base64" if is_base64 else ""


def needed(module):
    """Imports a module of an optional package; raises `UserError` if it is not installed."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UserError(f"{missing_package(module)} ({error})") from None


def missing_package(module):
    """Says that a package is not installed, and how to install it.

    Where zoo is installed, this names the extra of zoo that the package belongs to, such as
    `recipes`, and its versions. pyproject.toml lists the extras.
    """
    name = module.partition(".")[0]
    package = _PACKAGES.get(name, name.replace("_", "-"))
    for requirement in _requirements():
        # such as "onnx<2,>=1.23; extra == 'onnx'"
        versions, _, condition = requirement.partition(";")
        extra = re.search(r"extra == ['\"](\w+)['\"]", condition)
        if extra and re.match(r"[\w.-]+", versions)[0].replace("_", "-").lower() == package:
            return (
                f"The package {package} is not installed. Run `pip install 'zoo[{extra[1]}]'`, "
                f"which installs {versions.strip()}."
            )
    return f"The package {package} is not installed. Run `pip install {package}`."


def _requirements():
    """The packages that zoo needs, with those of its extras."""
    try:
        return importlib.metadata.requires("zoo")
    except importlib.metadata.PackageNotFoundError:  # a checkout that is not installed
        return []
