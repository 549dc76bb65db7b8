"""The command line: ``python -m zoo classify|translate|generate|evaluate|export|serve|...``."""

import os
import sys

from zoo.errors import UserError

_ABOUT = """Use trained models, from your own runs or published. For example:

python -m zoo translate hf://Helsinki-NLP/opus-mt-en-es "Good morning."
"""


def main(arguments=None):
    """Runs a command and returns its exit status.

    It is 0, 1 if some images failed, 2 on errors or if all images failed, or 130 after Ctrl+C.
    """
    try:
        import tyro

        from zoo.commands import app

        options = {"prog": "python -m zoo", "config": (tyro.conf.FlagCreatePairsOff,)}
        options |= {"description": _ABOUT, "sort_subcommands": True}
        return app.cli(args=arguments, **options) or 0
    except BrokenPipeError:  # of `python -m zoo models | head`; nothing more can be printed
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(
            f"error: The module {error.name} is not installed. Run "
            "`pip install -r requirements.txt`.",
            file=sys.stderr,
        )
    except KeyboardInterrupt:
        return 130
    return 2


if __name__ == "__main__":
    sys.exit(main())
