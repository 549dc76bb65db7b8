"""Commands for training; each recipe is a program of its own."""

from tyro.conf import Positional

from zoo.commands.shared import app, flag


@app.command
def launch(command: flag(Positional[tuple[str, ...]], "-- COMMAND") = (), workers: int = 2):
    """Run a recipe with several workers on this machine.

    Args:
        command: such as: -- python recipes/NAME.py FLAGS
        workers: number of processes
    """
    from zoo.launch import launch

    return launch(command, workers)
