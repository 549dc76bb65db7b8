"""Training: settings, runs, the training step, the training state and reports."""


def __getattr__(name):
    # Not an import at the top: `recipe.py` has to import TensorFlow first, without its messages.
    if name == "Run":
        from zoo.training.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
