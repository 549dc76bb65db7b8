"""Lets Keras open saved models of this package after `import zoo`, in any order of imports."""

import importlib.abc
import sys


def register_with_keras():
    """Imports the classes that Keras must know: now, or once Keras is imported.

    `import zoo`, which calls this, does not import Keras itself, as that takes seconds.
    """
    if "keras" in sys.modules:
        _import_classes()
    else:
        sys.meta_path.insert(0, _AfterKeras())


class _AfterKeras(importlib.abc.MetaPathFinder):
    """Imports these classes after Keras, or after the module of this package that imports Keras.

    They may depend on that module, and cannot be imported before it is complete.
    """

    running = 0  # imports of Keras and of our modules, which are nested

    def find_spec(self, name, path=None, target=None):
        if name != "keras" and not name.startswith("zoo."):
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            spec.loader.exec_module = self._counted(spec.loader.exec_module)
        return spec

    def _counted(self, exec_module):
        def counted(module):
            self.running += 1
            try:
                exec_module(module)
            finally:
                self.running -= 1
            if "keras" in sys.modules and not self.running and self in sys.meta_path:
                sys.meta_path.remove(self)
                _import_classes()

        return counted


def _import_classes():
    for name in ("zoo.models", "zoo.training.optimizers", "zoo.training.losses"):
        importlib.import_module(name)
