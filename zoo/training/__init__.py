"""Training: settings, runs, the training step, checkpoints and reports."""


def __getattr__(name):  # TensorFlow takes seconds to import, which --help of a recipe should not
    if name == "Run":
        from zoo.training.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
