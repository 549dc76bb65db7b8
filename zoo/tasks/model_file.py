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


def load_model(path, arguments):
    """The model of a file, with other `arguments` of its constructor, such as `dtype`."""
    if not arguments:
        return keras.saving.load_model(path, compile=False)
    config = {**read_config(path), "compile_config": None}
    config["config"] = {**config["config"], **arguments}
    model = keras.saving.deserialize_keras_object(config)
    with weights_file(path) as weights:
        model.load_weights(weights)
    return model


@contextlib.contextmanager
def weights_file(path):
    """The path of the weights in the file: a file that Keras and h5py read, while it is open."""
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(path) as archive:
        yield pathlib.Path(archive.extract(_WEIGHTS, folder))
