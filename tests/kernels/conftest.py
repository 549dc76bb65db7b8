import keras
import pytest
import tensorflow as tf

from zoo import kernels


@pytest.fixture(autouse=True)
def kernels_on(monkeypatch):
    """Also if the suite runs with ZOO_KERNELS=0."""
    if keras.backend.backend() != "tensorflow" or tf.config.list_physical_devices("GPU"):
        pytest.skip("Kernels are for TensorFlow on CPUs. Others run the plain functions.")
    monkeypatch.setattr(kernels, "enabled", True)
