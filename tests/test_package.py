"""`import zoo` is light, and its names are where they should be."""

import subprocess
import sys

import pytest

import zoo

HEAVY = ["keras_hub", "tensorflow_text", "tensorflow_datasets", "sklearn", "matplotlib"]


def python(code, *arguments):
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout, process.stderr


def saved_model(folder):
    path = str(folder / "model.keras")
    sizes = {"patch_size": 4, "embed_dim": 8, "num_heads": 2, "num_layers": 1}
    model = zoo.vit(input_shape=(8, 8, 3), **sizes)
    model.compile(zoo.training.optimizers.adamw(0.1, 0.1), "mse")
    model.optimizer.build(model.trainable_variables)
    model.save(path)
    return path


@pytest.mark.ci
def test_start_is_quiet_and_imports_no_library_that_is_not_needed(tmp_path):
    """Nor to open a saved model, for which `import zoo` after Keras is enough, or to build one.

    `tests/test_commands.py` tests that `import zoo` imports neither TensorFlow nor Keras.
    """
    path = saved_model(tmp_path)
    # Keras itself imports Pillow where it is installed.
    unneeded = HEAVY + ["tensorboard", "tyro", "PIL.Image"]
    code = f"""
import zoo.startup, sys
zoo.startup.import_tensorflow_quietly()
import tensorflow as tf
tf.zeros(2) + 1
assert not {{"sklearn", "matplotlib"}} & set(sys.modules)
sys.meta_path.pop(0)
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
    with pytest.raises(AttributeError, match="no_such_name"):
        zoo.no_such_name  # noqa: B018


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


MINIMAL = """
import importlib.metadata, re, sys, tomllib

extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"].values()
names = {re.match("[A-Za-z0-9_-]+", name)[0] for extra in extras for name in extra}
names = {name.replace("-", "_").lower() for name in names}
for module, packages in importlib.metadata.packages_distributions().items():
    if module != "tests" and names & {name.replace("-", "_").lower() for name in packages}:
        sys.modules[module] = None  # `import` raises ModuleNotFoundError

folder = sys.argv[1]
import zoo, keras, numpy as np
keras.saving.load_model(folder + "/model.keras")  # which `import zoo` before Keras is enough for
from tests.deploy.small_models import small_classifier, small_translator
from zoo.__main__ import main
from zoo.errors import UserError
from zoo.tasks import task

task.JIT_COMPILE = False
classifier = small_classifier(num_layers=1)
classifier.save(folder + "/run")
pixels = np.full((2, *classifier.model.input_shape), 9, np.uint8)
assert len(zoo.load(folder + "/run")(pixels)) == 2
zoo.export(classifier, folder + "/1")
translator = small_translator(num_layers=1)
translator.save(folder + "/texts")
zoo.load(folder + "/texts")(["the cat"], max_length=4)
open(folder + "/a.safetensors", "wb").close()
for use in (
    lambda: zoo.export(classifier, folder + "/onnx", format="onnx"),
    lambda: zoo.export(translator, folder + "/2"),
    lambda: zoo.load(folder + "/run", engine="openvino"),
    lambda: zoo.load(folder + "/a.safetensors"),
    lambda: zoo.save_hf(classifier, folder + "/hf"),
):
    try:
        use()
    except UserError as error:
        print(re.search("package (.*) is not installed", str(error))[1])
assert main(["serve", folder + "/1"]) == 2
"""


@pytest.mark.ci
def test_the_dependencies_suffice_without_the_extras(tmp_path):
    saved_model(tmp_path)
    out, err = python(MINIMAL, str(tmp_path))
    assert out.split() == ["onnx", "tensorflow-text", "openvino", "safetensors", "safetensors"]
    assert "is not installed. Run `pip install -r requirements.txt`" in err
