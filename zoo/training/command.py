"""What every recipe does around its own page: flags, quiet start, clear errors."""

import argparse
import dataclasses
import sys

import tyro

from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly
from zoo.training.interruption import exit_on_sigterm

_UNRELATED = (  # to what comes out of a run
    *("out", "overwrite", "resume", "strategy", "devices"),
    *("checkpoint_minutes", "checkpoint_steps", "checkpoints_kept"),
)
_DISK = ("No space left on device", "Disk quota exceeded", "Read-only file system")


def run_recipe(main, config_class, presets, description):
    """Reads the command line into a config and runs `main` with it.

    Args:
        main: function of the config.
        config_class: dataclass with a field `dataset`; each field is a flag, its docstring the
            help.
        presets: {data set: config whose values are the defaults for it}.
        description: shown by ``--help``.

    Exits with status 2 and one message if a flag, a file or the data are wrong or the disk is full,
    with status 130 if interrupted by Ctrl-C and 143 if by SIGTERM.
    """
    exit_on_sigterm()
    try:
        config = parse(sys.argv[1:], config_class, presets, description)
        import_tensorflow_quietly()
        main(config)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nInterrupted. The same command with --resume goes on from the last checkpoint.")
        sys.exit(130)
    except Exception as error:
        # TensorFlow's writer of logs raises errors of its own kinds.
        if not any(reason in str(error) for reason in _DISK):
            raise
        print(f"error: {str(error).splitlines()[0]}", file=sys.stderr)
        sys.exit(2)


def settings_of(config):
    """The settings of a config, as a dict, that what comes out of a run depends on."""
    return {name: value for name, value in vars(config).items() if name not in _UNRELATED}


def parse(arguments, config_class, presets, description):
    """Command line -> config; the data set it names sets the defaults of the other flags."""
    first = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    first.add_argument("--dataset", default=config_class().dataset)
    dataset = first.parse_known_args(arguments)[0].dataset
    default = presets.get(dataset) or dataclasses.replace(config_class(), dataset=dataset)
    return tyro.cli(config_class, args=arguments, default=default, description=description)
