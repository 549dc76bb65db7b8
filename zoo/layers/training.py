"""The `training` argument in methods that are not called through Keras's ``__call__``."""


def passed_on(training):
    """Keyword arguments that pass `training` on to a layer, none if it is None.

    Inside a layer's ``__call__`` Keras hands `training` down by itself, and an explicit None would
    override it. Elsewhere, as in a model's `call` on JAX in `fit`, it has to be passed on.
    """
    return {} if training is None else {"training": training}
