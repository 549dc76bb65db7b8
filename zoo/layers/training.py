"""The `training` argument in methods other than ``call``."""


def training_argument(training):
    """``{"training": training}``, or ``{}`` if it is None.

    Within ``__call__`` Keras passes `training` to nested layers itself, and an explicit None would
    override it. On JAX, `fit` runs a subclassed model's `call` outside ``__call__``.
    """
    return {} if training is None else {"training": training}
