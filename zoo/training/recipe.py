"""Runs a recipe: command line, exit statuses and error messages.

Import this module before Keras: it imports TensorFlow without its start-up messages.
"""

import argparse
import sys

from zoo.errors import UserError, check_tensorflow
from zoo.startup import (
    discard_output,
    escape_what_cannot_be_printed,
    import_tensorflow_quietly,
)
from zoo.training.interruption import exit_on_sigterm, how_to_resume

import_tensorflow_quietly()
try:
    check_tensorflow()
except UserError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(2)

from zoo.training.distribution import tell_failure  # noqa: E402
from zoo.training.settings import flags  # noqa: E402

_DISK = ("No space left on device", "Disk quota exceeded", "Read-only file system")


def run_recipe(main, config_class, presets, description, selector="dataset"):
    """Reads the command line into a config and runs `main` with it.

    Args:
        main: function that takes the config.
        config_class: dataclass; each field is a flag and its docstring is the help text.
        presets: {value of the selector: config with the default values for it}. A key may also be a
            flag, such as "--weights", which then takes precedence.
        description: text shown by ``--help``.
        selector: name of the field that selects the default values of the others.

    Exits with status 2 and a message if a flag, a file or the data is invalid or the disk is full,
    with status 130 after Ctrl-C and 143 after SIGTERM.
    """
    exit_on_sigterm()
    escape_what_cannot_be_printed()
    try:
        config = parse(sys.argv[1:], config_class, presets, description, selector)
        with tell_failure():
            main(config)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except BrokenPipeError:
        discard_output()
        print(f"error: Standard output was closed. {how_to_resume()}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt as interrupt:
        if not interrupt.args:  # otherwise the state was saved, and a message printed
            print(f"\nInterrupted. {how_to_resume()}")
        sys.exit(130)
    except Exception as error:
        # TensorBoard's log writer raises its own error types when the disk is full.
        if not any(reason in str(error) for reason in _DISK):
            raise
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(2)


def parse(arguments, config_class, presets, description, selector="dataset"):
    """Parses the command line: returns a config, see `run_recipe`."""
    import tyro  # only recipes need it

    # Which defaults --help shows depends on the selector and on the flags among the presets.
    selecting = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    flag_presets = [key for key in presets if key.startswith("--")]
    for flag in flag_presets:
        selecting.add_argument(flag, dest=flag)
    selecting.add_argument(
        f"--{selector}", dest=selector, default=getattr(config_class(), selector)
    )
    given, _ = selecting.parse_known_args(arguments)
    key = getattr(given, selector)
    for flag in flag_presets:
        if getattr(given, flag) is not None:
            key = flag
    default = presets.get(key, config_class())
    config = tyro.cli(config_class, args=arguments, default=default, description=description)
    names = [text[2:].partition("=")[0] for text in arguments if text.startswith("--")]
    names = [name.replace("-", "_") for name in names]
    for name in names:
        value = getattr(config, name, None)
        has_names = isinstance(value, tuple) and any(isinstance(one, str) for one in value)
        if has_names and names.count(name) > 1:  # of files or models, all of which may be meant
            raise UserError(f"{flags(name)} is given twice. Pass it once, with all its values.")
    config.check_flags(set(names))
    return config
