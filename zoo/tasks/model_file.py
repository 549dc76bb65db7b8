"""The file of a model, which `keras.Model.save` wrote: read, built once, weights assigned."""

import contextlib
import json
import pathlib
import tempfile
import zipfile

import keras

_CONFIG, _WEIGHTS = "config.json", "model.weights.h5"


def read_config(path):
    """The content of config.json in the file: class, arguments and shapes of the model."""
    with zipfile.ZipFile(path) as archive:
        return json.loads(archive.read(_CONFIG))


def build(config, arguments, input_shape=None):
    """The model of `read_config` with drawn weights.

    Args:
        config: dict.
        arguments: of its constructor that replace its own, such as `dtype`.
        input_shape: if it is not that of the config.
    """
    config = {**config, "compile_config": None, "config": {**config["config"], **arguments}}
    if input_shape is not None:
        config["build_config"] = {"input_shape": input_shape}
    return keras.saving.deserialize_keras_object(config)


def load_model(path, arguments):
    """The model of a file, with other `arguments` of its constructor, such as `dtype`."""
    if not arguments:
        return keras.saving.load_model(path, compile=False)
    model = build(read_config(path), arguments)
    with weights_file(path) as weights:
        model.load_weights(weights)
    return model


@contextlib.contextmanager
def weights_file(path):
    """The path of the weights in the file: a file that Keras and h5py read, while it is open."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        yield pathlib.Path(archive.extract(_WEIGHTS, folder))
