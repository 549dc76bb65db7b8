"""`import zoo` is light, and its names are where they should be."""

import importlib.metadata
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tomllib

import numpy as np
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from PIL import Image

import zoo
from tests.test_imports import imported
from zoo.errors import UserError, missing_package, needed

ROOT = pathlib.Path(__file__).parents[1]

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


def packages():
    """Lines of pyproject.toml such as "onnx>=1.23,<2", and those of the extras with their names."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for requirement in project["dependencies"]:
        yield requirement, None
    for extra, requirements in project["optional-dependencies"].items():
        for requirement in requirements:
            yield requirement, extra


def test_the_versions_that_are_tested_are_in_the_bounds_of_the_package():
    pinned = {}
    for line in (ROOT / "requirements.txt").read_text().splitlines():
        requirement = line.partition("#")[0].strip()
        if "==" in requirement:
            requirement = Requirement(requirement)
            pinned[canonicalize_name(requirement.name)] = str(requirement.specifier)[2:]
    found = set()
    for line, _ in packages():
        requirement = Requirement(line)
        name = canonicalize_name(requirement.name)
        assert pinned[name] in requirement.specifier, line
        found.add(name)
    assert pinned.keys() - found == {"keras-nlp"}  # a part of keras-hub


def test_each_package_that_is_imported_has_an_extra(monkeypatch):
    """And an error names it, with its versions."""
    lines = [f'{line}; extra == "{extra}"' if extra else line for line, extra in packages()]
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    modules = set()
    for path in sorted((ROOT / "zoo").rglob("*.py")):
        if path.parent.name != "programs":  # copied into exports
            modules.update(name.partition(".")[0] for name in imported(path))
            modules.update(re.findall(r'needed\("(\w+)', path.read_text()))
    modules -= {*sys.stdlib_module_names, "zoo"}
    modules -= {"google", "grpc", "h5py", "ml_dtypes"}  # of TensorFlow and Keras
    messages = {module: missing_package(module) for module in modules}
    without_extra = {name for name, message in messages.items() if "zoo[" not in message}
    assert without_extra <= {"keras", "numpy", "sentencepiece", "tensorflow", "tqdm", "tyro"}
    assert messages["sklearn"] == (
        "The package scikit-learn is not installed. Run `pip install 'zoo[recipes]'`, which "
        "installs scikit-learn>=1.9,<2."
    )
    assert "'zoo[texts]'`, which installs tensorflow-text>=" in messages["tensorflow_text"]


def test_without_metadata_an_error_names_the_package(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    expected = r"pyyaml is not installed. Run `pip install pyyaml`. \(import of yaml halted"
    monkeypatch.setitem(sys.modules, "yaml", None)  # `import` raises ModuleNotFoundError
    with pytest.raises(UserError, match=expected):
        needed("yaml")


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
assert main(["classify", folder + "/run", folder]) == 2  # it has no images
assert main(["serve", folder + "/1"]) == 2
"""


@pytest.mark.ci
def test_the_dependencies_suffice_without_the_extras(tmp_path):
    saved_model(tmp_path)
    out, err = python(MINIMAL, str(tmp_path))
    assert out.split() == ["onnx", "tensorflow-text", "openvino", "safetensors", "safetensors"]
    assert "error: The folder" in err and "has no images" in err
    assert "error: The package h11 is not installed. Run `pip install" in err


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder with what the wheel installs, and environment variables to use it."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    shutil.copytree(ROOT / "zoo", source / "zoo", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = [sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = (folder / "dist").glob("*.whl")
    assert [path.name for path in (folder / "dist").glob("*.tar.gz")] == ["zoo-0.1.0.tar.gz"]
    packages = folder / "packages"
    install = [sys.executable, "-m", "pip", "install", "--no-deps", "--target", str(packages)]
    subprocess.run([*install, str(wheel)], check=True, capture_output=True)
    return packages, {**os.environ, "PYTHONPATH": str(packages)}


@pytest.mark.ci
def test_the_wheel_works_without_the_checkout(installed, tmp_path):
    packages, environment = installed
    for name in ("translate_spa", "vit_cifar10"):
        shutil.copytree(ROOT / "docs" / "results" / name, tmp_path / name)
    Image.fromarray(np.full((32, 32, 3), 200, np.uint8)).save(tmp_path / "gray.png")

    def output(*command):
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def zoo_command(*arguments):
        return output(sys.executable, str(packages / "bin" / "zoo"), *arguments)

    code = "import zoo; print(zoo.__file__); print(zoo.load('translate_spa')(['Good morning.']))"
    file, translations = output(sys.executable, "-c", code).splitlines()
    assert pathlib.Path(file).is_relative_to(packages)
    assert translations == "['Buenos días.']"
    assert zoo_command("--help").startswith("usage: zoo [-h] {classify,evaluate,")
    assert "hf://openai-community/gpt2" in zoo_command("models", "gpt2")
    assert zoo_command("translate", "translate_spa", "Good morning.") == "Buenos días.\n"
    assert zoo_command("classify", "vit_cifar10", "gray.png").startswith("gray.png\t")
    code = "from zoo.errors import missing_package; print(missing_package('matplotlib'))"
    assert "Run `pip install 'zoo[recipes]'`" in output(sys.executable, "-c", code)


def test_the_citation_and_the_changelog_name_the_version():
    assert f"\nversion: {zoo.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {zoo.__version__}" in (ROOT / "CHANGELOG.md").read_text()
