"""What formats of other libraries cannot express."""


def unsupported_settings(model, required):
    """Lists the settings of a model that a format lacks, such as ``["norm='post'"]``.

    `required` is {name: value} of the settings that have only one value in the format.
    """
    unsupported = []
    for name, only_value in {"norm_type": "layer", **required}.items():  # "rms" has no format
        value = getattr(model, name)
        if value != only_value:
            unsupported.append(f"{name}={value!r}")
    return unsupported
