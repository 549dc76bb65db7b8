"""zoo: translation Transformers and Vision Transformers on Keras 3 and TensorFlow."""

import sys
from importlib import import_module

__version__ = "0.1.0"

_HOMES = {
    "vit": "zoo.models.vit",
    "transformer": "zoo.models.transformer",
    "load": "zoo.loading",
    "export": "zoo.deploy.export",
    "layers": "zoo",
    "models": "zoo",
}

__all__ = [*_HOMES]


def __getattr__(name):
    # TensorFlow takes seconds to import: `import zoo` and `python -m zoo --help` do without.
    if name not in _HOMES:
        raise AttributeError(f"module 'zoo' has no attribute {name!r}")
    home = _HOMES[name]
    return import_module(f"zoo.{name}") if home == "zoo" else getattr(import_module(home), name)


def __dir__():
    return sorted([*globals(), *__all__])


if "keras" in sys.modules:
    # Keras can then open a saved model of ours: its classes must have been imported.
    import_module("zoo.models")
