"""What is LiteRT's own: inputs, operations and what it cannot express; answers: test_formats.py."""

import numpy as np
import pytest
import tensorflow as tf
from ai_edge_litert.interpreter import Interpreter

from tests.deploy.small_models import small_classifier
from zoo.deploy import litert_format
from zoo.deploy.errors import ExportError

pytestmark = pytest.mark.ci


def test_files_need_no_other_operations(tmp_path):
    litert_format.write(small_classifier(num_layers=1), tmp_path)
    interpreter = Interpreter(model_path=str(tmp_path / "model.tflite"))
    # What the converter has no operation for it makes "Flex" or custom ones.
    operations = {operation["op_name"] for operation in interpreter._get_ops_details()}
    assert not any("flex" in name.lower() or "custom" in name.lower() for name in operations)
    inputs = interpreter.get_signature_runner("serving_default").get_input_details()
    assert inputs["pixels"]["dtype"] == np.uint8


def test_what_cannot_be_expressed_is_said(tmp_path):
    """Preprocessing of another kind, in operations that LiteRT has not."""
    classifier = small_classifier(num_layers=1)
    preprocessing = classifier.preprocessing

    class Digamma(type(preprocessing)):
        def normalize(self, pixels):
            return tf.math.digamma(1.0 + preprocessing.normalize(pixels) ** 2)

    classifier.preprocessing = Digamma(**vars(preprocessing))
    with pytest.raises(ExportError, match="LiteRT cannot convert this model"):
        litert_format.write(classifier, tmp_path)
