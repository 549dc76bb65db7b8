"""`import zoo` is light, and its names are where they should be."""

import subprocess
import sys

HEAVY = ["keras_hub", "tensorflow_text", "tensorflow_datasets", "sklearn", "matplotlib"]


def python(code):
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return process.stdout, process.stderr


def test_import_is_light():
    out, err = python(f"import sys, zoo; print([m for m in {HEAVY} if m in sys.modules])")
    assert (out.strip(), err) == ("[]", "")


def test_building_a_model_needs_no_data_or_tokenizer_library():
    # Keras itself imports scikit-learn and matplotlib where they are installed.
    heavy = HEAVY[:3] + ["tensorboard", "tyro", "PIL.Image"]
    code = (
        "import zoo.startup, sys; zoo.startup.import_tensorflow_quietly(); import keras;"
        "before = set(sys.modules); import zoo; zoo.vit('Ti/16', num_layers=1);"
        f"print([m for m in {heavy} if m in set(sys.modules) - before])"
    )
    assert python(code)[0].strip() == "[]"


def test_public_names():
    import zoo

    assert set(zoo.__all__) <= set(dir(zoo))
    for name in zoo.__all__:
        assert getattr(zoo, name) is not None
    try:
        zoo.no_such_name  # noqa: B018
    except AttributeError as error:
        assert "no_such_name" in str(error)
    else:
        raise AssertionError("an unknown name must raise AttributeError")


def test_a_saved_model_opens_wherever_zoo_is_imported(tmp_path):
    import zoo

    settings = "input_shape=(8, 8, 3), patch_size=4, embed_dim=8, num_heads=2, num_layers=1"
    eval(f"zoo.vit({settings})", {"zoo": zoo}).save(tmp_path / "model.keras")
    path = str(tmp_path / "model.keras")
    python(f"import keras, zoo; keras.saving.load_model({path!r})")
    python(f"import zoo.models, keras; keras.saving.load_model({path!r})")


def test_start_is_quiet_and_errors_are_not_hidden():
    quiet = "from zoo.startup import import_tensorflow_quietly as quiet;"
    assert python(quiet + "quiet(); import tensorflow as tf; tf.zeros(2) + 1")[1] == ""
    # an import hook stands in for a TensorFlow that has something to say
    code = """
import os, sys

class Hook:
    @staticmethod
    def find_spec(name, *rest):
        if name == "tensorflow":
            os.write(2, b"a real warning\\n")

sys.meta_path.insert(0, Hook)
from zoo.startup import import_tensorflow_quietly
import_tensorflow_quietly()
"""
    assert python(code)[1] == "a real warning\n"
