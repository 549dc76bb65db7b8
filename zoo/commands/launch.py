"""``python -m zoo launch``."""

from tyro.conf import Positional

from zoo.commands.shared import flag


def launch(command: flag(Positional[tuple[str, ...]], "-- COMMAND") = (), workers: int = 2):
    """Run a recipe with several workers on this machine.

    For example: python -m zoo launch --workers 2 -- python recipes/vit_cifar10.py

    Args:
        command: command that every worker runs, with its flags
        workers: number of processes
    """
    from zoo.launch import launch

    return launch(command, workers)
