"""The functions that build a model of a published size, such as `zoo.vit`."""

import inspect


def arguments_of_size(
    name, size, sizes, arguments, required=("embed_dim", "num_layers", "num_heads")
):
    """Returns the arguments of a model: those of a published size, overridden by `arguments`.

    Args:
        name: name of the function that builds the model; the default of the model's `name`.
        size: a key of `sizes`, or None.
        sizes: {size: {argument: value}}.
        arguments: {argument: value}.
        required: names of the arguments that must be given without a size.

    Raises:
        ValueError: if the size is unknown or a required argument is missing.
    """
    of_size = {}
    if size is not None:
        if size not in sizes:
            raise ValueError(f"Unknown size {size!r}. A size is one of {', '.join(sizes)}.")
        of_size = sizes[size]
    arguments = {"name": name, **of_size, **arguments}
    missing = [argument for argument in required if argument not in arguments]
    if missing:
        example = next(iter(sizes))
        raise ValueError(
            f"Without a size such as {example!r}, zoo.{name} also needs {', '.join(missing)}."
        )
    return arguments


def describes_arguments_of(model_class):
    """Decorator of a function that builds a model: adds the model's arguments to its docstring."""

    def decorate(function):
        if function.__doc__ is not None:  # it is None with `python -OO`
            arguments = inspect.getdoc(model_class).partition("Args:\n")[2].partition("\n\n")[0]
            title = f"Arguments of `zoo.models.{model_class.__name__}`:"
            function.__doc__ = f"{inspect.getdoc(function)}\n\n{title}\n{arguments}\n"
        return function

    return decorate
