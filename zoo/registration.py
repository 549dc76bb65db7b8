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

    The classes may depend on that module, and cannot be imported before it is complete.
    """

    running = 0  # imports of Keras and of modules of this package, which are nested

    def find_spec(self, name, path=None, target=None):
        if name != "keras" and not name.startswith("zoo."):
            return None
        for finder in sys.meta_path:
            if finder is self:
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader.exec_module = self._then_import(spec.loader.exec_module)
                return spec
        return None

    def _then_import(self, exec_module):
        """`exec_module` of a module's loader, followed by the import of the classes."""

        def execute(module):
            self.running += 1
            try:
                exec_module(module)
            finally:
                self.running -= 1
            is_outermost = self.running == 0
            if is_outermost and "keras" in sys.modules and self in sys.meta_path:
                sys.meta_path.remove(self)
                _import_classes()

        return execute


def _import_classes():
    for name in ("zoo.models", "zoo.training.optimizers", "zoo.training.losses"):
        importlib.import_module(name)
