"""What formats of other libraries cannot express."""


def unsupported_settings(model, required):
    """Lists the settings of a model that a format of another library does not support.

    Args:
        model: a model of `zoo.models`.
        required: {name: value} of the settings that have only one value in the format. No format
            has another `norm_type` than "layer".

    Returns:
        list of str, such as ``["norm='post'"]``.
    """
    unsupported = []
    for name, only_value in {"norm_type": "layer", **required}.items():
        value = getattr(model, name)
        if value != only_value:
            unsupported.append(f"{name}={value!r}")
    return unsupported
