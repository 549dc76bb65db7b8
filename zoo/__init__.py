"""zoo: Transformers for images, translation and texts on Keras 3 and TensorFlow."""

from importlib import import_module
from importlib.util import find_spec

from zoo.registration import register_with_keras

__version__ = "0.1.0"

_FUNCTIONS = {
    "vit": "zoo.models.vit",
    "transformer": "zoo.models.transformer",
    "causal_lm": "zoo.models.causal_lm",
    "text_classifier": "zoo.models.text_classifier",
    "load": "zoo.loading",
    "evaluate": "zoo.evaluation.evaluate",
    "export": "zoo.deploy.export",
    "save_hf": "zoo.checkpoints.save",
}

__all__ = [*_FUNCTIONS, "layers", "models", "decoding"]


def __getattr__(name):
    # TensorFlow takes seconds to import: `import zoo` and `python -m zoo --help` do not import it.
    if name in _FUNCTIONS:
        return getattr(import_module(_FUNCTIONS[name]), name)
    if name.isidentifier() and not name.startswith("_") and find_spec(f"zoo.{name}"):
        return import_module(f"zoo.{name}")
    raise AttributeError(f"module 'zoo' has no attribute {name!r}")


def __dir__():
    return sorted([*globals(), *__all__])


register_with_keras()
