"""`import zoo` is light, and its names are where they should be."""

import subprocess
import sys

import pytest

import zoo

HEAVY = ["keras_hub", "tensorflow_text", "tensorflow_datasets", "sklearn", "matplotlib"]


def python(code):
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout, process.stderr


def test_import_is_light():
    out, err = python(f"import sys, zoo; print([m for m in {HEAVY} if m in sys.modules])")
    assert (out.strip(), err) == ("[]", "")


@pytest.mark.ci
@pytest.mark.parametrize(
    "first",
    [
        "zoo, tensorflow, keras",
        pytest.param("zoo.layers", marks=pytest.mark.slow),
        pytest.param("zoo.translator", marks=pytest.mark.slow),
    ],
)
def test_any_module_may_be_imported_first(first, tmp_path):
    """In a process of its own; Keras opens our models afterwards."""
    settings = {"patch_size": 4, "embed_dim": 8, "num_heads": 2, "num_layers": 1}
    zoo.vit(input_shape=(8, 8, 3), **settings).save(tmp_path / "model.keras")
    path = str(tmp_path / "model.keras")
    python(f"import {first}; import keras; keras.saving.load_model({path!r})")


@pytest.mark.ci
def test_start_is_quiet_and_imports_no_library_that_is_not_needed(tmp_path):
    """Nor to open a saved model, for which `import zoo` is enough, or to build one."""
    path = str(tmp_path / "model.keras")
    zoo.vit(input_shape=(8, 8, 3), patch_size=4, embed_dim=8, num_heads=2, num_layers=1).save(path)
    # Keras itself imports Pillow where it is installed.
    unneeded = HEAVY + ["tensorboard", "tyro", "PIL.Image"]
    code = f"""
import zoo.startup, sys
zoo.startup.import_tensorflow_quietly()
import tensorflow as tf
tf.zeros(2) + 1
assert not {{"sklearn", "matplotlib"}} & set(sys.modules)
del sys.modules["zoo"]  # as if it had not been imported before Keras
import keras
before = set(sys.modules)
import zoo
keras.saving.load_model({path!r})
zoo.vit('Ti/16', num_layers=1)
print([m for m in {unneeded} if m in set(sys.modules) - before])
import sklearn, matplotlib.pyplot
"""
    out, err = python(code)
    assert (out.strip(), err) == ("[]", "")


def test_public_names():
    assert set(zoo.__all__) <= set(dir(zoo))
    for name in zoo.__all__:
        assert getattr(zoo, name) is not None
    try:
        zoo.no_such_name  # noqa: B018
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("an unknown name must raise AttributeError")


def test_errors_of_the_start_are_not_hidden():
    # an import hook stands in for a TensorFlow that has something to say, and then fails
    code = """
import os, sys

class Hook:
    @staticmethod
    def find_spec(name, *rest):
        if name == "tensorflow":
            os.write(2, b"a real warning\\n")
            raise ImportError("no TensorFlow")

sys.meta_path.insert(0, Hook)
from zoo.startup import import_tensorflow_quietly
try:
    import_tensorflow_quietly()
except ImportError as error:
    print(error)
"""
    assert python(code) == ("no TensorFlow\n", "a real warning\n")
