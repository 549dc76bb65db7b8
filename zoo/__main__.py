"""The command line: ``python -m zoo COMMAND``, or ``zoo COMMAND`` of an installed package."""

import pathlib
import sys

from zoo.errors import UserError, missing_package
from zoo.startup import discard_output, escape_what_cannot_be_printed

_ABOUT = """Use trained models, from your own runs or published. For example:

python -m zoo translate hf://Helsinki-NLP/opus-mt-en-es "Good morning."
"""


def main(arguments=None):
    """Runs a command and returns its exit status.

    It is 0, 1 if some images failed, 2 on errors or if all images failed, or 130 after Ctrl+C.
    """
    escape_what_cannot_be_printed()
    try:
        return _run(arguments) or 0
    except BrokenPipeError:  # of `python -m zoo models | head`; nothing more can be printed
        discard_output()
    except (UserError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(f"error: {missing_package(error.name)}", file=sys.stderr)
    except KeyboardInterrupt:
        return 130
    return 2


def _run(arguments):
    import tyro

    from zoo.commands.classify import classify
    from zoo.commands.evaluate import evaluate
    from zoo.commands.export import export
    from zoo.commands.generate import generate
    from zoo.commands.info import info
    from zoo.commands.launch import launch
    from zoo.commands.models import models
    from zoo.commands.serve import serve
    from zoo.commands.translate import translate

    commands = {
        "classify": classify,
        "evaluate": evaluate,
        "export": export,
        "generate": generate,
        "info": info,
        "launch": launch,
        "models": models,
        "serve": serve,
        "translate": translate,
    }
    is_script = pathlib.Path(sys.argv[0]).stem == "zoo"
    given = sys.argv[1:] if arguments is None else arguments
    try:
        return tyro.extras.subcommand_cli_from_dict(
            commands,
            prog="zoo" if is_script else "python -m zoo",
            description=_ABOUT,
            args=arguments,
            config=(tyro.conf.FlagCreatePairsOff,),
        )
    except SystemExit as ending:
        if ending.code == 2 and "--" not in given and any(text[:1] == "-" for text in given):
            print('A text that begins with "-" comes after --: RUN -- "-text"', file=sys.stderr)
        raise


if __name__ == "__main__":
    sys.exit(main())
