"""Errors of wrong or damaged files, as one kind of error that names the path."""

import contextlib
import pathlib
import zipfile

import tensorflow as tf

from zoo.errors import CheckpointError, TaskError, TokenizerError, UserError

# Metadata and options are not validated: a wrong value fails where it is used.
_WRONG_VALUES = (
    ArithmeticError, AttributeError, LookupError, TypeError, ValueError, MemoryError,
    RecursionError, tf.errors.OpError, zipfile.BadZipFile,
)  # fmt: skip


@contextlib.contextmanager
def named_errors(path, options):
    """Context in which all errors of loading a path with these options become a `UserError`.

    The files need not be trusted.
    """
    try:
        yield
    except (TaskError, TokenizerError) as error:  # the files do not fit each other
        raise CheckpointError(f"{path} cannot be loaded: {error}") from None
    except UserError:
        raise
    except FileNotFoundError as error:
        if error.filename is None:  # our own, which is complete
            raise
        file = pathlib.Path(error.filename)
        name = file.relative_to(path) if file.is_relative_to(path) else file.name
        raise CheckpointError(f"{path} contains no {name}.") from None
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(f"{error.filename or path} cannot be read: {reason}.") from None
    except _WRONG_VALUES as error:
        source = "metadata"
        if options:
            given = ", ".join(f"{name}={value!r}" for name, value in options.items())
            source = f"metadata or the options {given}"
        reason = str(error)
        if isinstance(error, KeyError):
            key = error.args[0] if error.args else None
            is_sentence = isinstance(key, str) and " " in key  # as of h5py
            reason = key if is_sentence else f"there is no {error}"
        reason = reason.split("}} ")[-1].split(" [Op:")[0]  # without the names of operations
        reason = reason.removesuffix(".")
        raise CheckpointError(
            f"{path} cannot be loaded: the {source} cannot be used, or a file is damaged: {reason}."
        ) from error
