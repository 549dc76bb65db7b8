"""Imports `zoo.models` with Keras, so that saved models open in any order of imports."""

import importlib.abc
import sys


def register_with_keras():
    """Imports `zoo.models` if Keras is imported already, and otherwise once it is.

    Keras opens a saved model only if its classes have been imported, and `import zoo` does not
    import Keras.
    """
    if "keras" in sys.modules:
        importlib.import_module("zoo.models")
    else:
        sys.meta_path.insert(0, _AfterKeras())


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Finds Keras like Python's own finders, and imports `zoo.models` after it."""

    def find_spec(self, name, path=None, target=None):
        if name != "keras":
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module):
                load(module)
                if self in sys.meta_path:
                    sys.meta_path.remove(self)
                if "zoo.layers" not in sys.modules:  # which calls `register_with_keras`
                    importlib.import_module("zoo.models")

            spec.loader.exec_module = exec_module
        return spec
