"""`zoo.load`: loads a trained model with its preprocessing or tokenizers."""

import gc
import os
import re

from zoo import engines
from zoo.checkpoints import hub, saved_runs
from zoo.checkpoints.formats import registry
from zoo.checkpoints.loading_errors import named_errors
from zoo.checkpoints.other_programs import advice
from zoo.checkpoints.tensor_files import SUFFIXES
from zoo.errors import UserError, check_tensorflow
from zoo.files import as_path
from zoo.tasks.generator import TextGenerator
from zoo.tasks.translator import Translator

_DTYPES = ("float32", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16", "int8")


def load(path, dtype=None, engine=None, revision=None, **options):
    """Loads the trained model of a run, or published weights.

    Args:
        path: run directory, such as "runs/vit_cifar10"; a folder or file of published weights, see
            docs/checkpoints.md; or the name of a published model, which is downloaded:
            "hf://owner/name" for the Hugging Face Hub, "kaggle://owner/model/framework/variation".
            Weights without a classification head give an encoder.
        dtype: dtype policy of the model, such as "bfloat16", or "mixed_bfloat16", which keeps the
            weights in float32; by default that of the run, or the global one of Keras. For
            translators and text generators also "int8": weight matrices and the inputs of their
            products are quantized, everything else is float32. With an engine: "float32", the
            default; "bfloat16" for OpenVINO; "int8" for the others.
        engine: "onnxruntime" or "openvino" for an image classifier, or "ctranslate2" for a
            translator, to compute probabilities and translations in place of TensorFlow, on CPUs;
            see docs/engines.md.
        revision: branch, tag or commit of a model on the Hugging Face Hub.
        **options: constructor arguments that override those of the model, for published weights
            and for runs with a Vision Transformer. ``num_classes=7`` adds a new head, unless the
            model's head has 7 classes; ``num_classes=0`` removes it; another `input_shape` resizes
            the positions and adapts the patches to the number of channels. With ``classes=["a cat",
            "a dog"]``, CLIP and SigLIP classify images by these texts. Translation models of
            several languages need `src_lang` and `tgt_lang`. With ``shortlist=True``, a model of
            the program Marian uses its lexical shortlist. With ``ema=False``, weights are loaded
            even if the file has their moving average as well.

    Returns:
        `zoo.tasks.classifier.ImageClassifier`, `zoo.tasks.classifier.TextClassifier`,
        `zoo.tasks.encoder.ImageEncoder`, `zoo.tasks.encoder.TextEncoder`,
        `zoo.tasks.translator.Translator`, `zoo.tasks.text_to_text.TextToTextGenerator` or
        `zoo.tasks.generator.TextGenerator`.

    Raises:
        FileNotFoundError: if the path does not exist or does not contain a finished run.
        zoo.checkpoints.CheckpointError: if published weights cannot be used.
        zoo.errors.UserError: if a run does not take the options, a file of the run is damaged, or
            `dtype` or `engine` is unknown or not available for this kind of model.
    """
    check_tensorflow()
    dtypes = _DTYPES if engine is None else engines.dtypes(engine)
    if dtype not in (None, *dtypes):
        given = "without an engine" if engine is None else f"with engine={engine!r}"
        raise UserError(f"dtype must be one of {dtypes} {given}. Received: dtype={dtype!r}.")
    if engine is not None and options.get("shortlist"):
        raise UserError(f"shortlist=True is for searches without an engine. Received: {engine=}.")
    if dtype is not None and engine is None:
        options["dtype"] = "float32" if dtype == "int8" else dtype
    if hub.is_name(path):
        path = hub.download(path, revision)
    elif revision is not None:
        raise UserError(
            "revision is for models of the Hugging Face Hub, hf://owner/name. Received: "
            f"path={os.fspath(path)!r}."
        )
    path = as_path(path)
    if not path.exists():
        raise FileNotFoundError(_missing(path))
    with named_errors(path, options):
        if registry.is_checkpoint(path) and saved_runs.saved_task(path) is None:
            loaded = registry.load(path, dict(options))
        else:
            loaded = saved_runs.load(path, dict(options))
    if engine is not None:
        loaded.engine = engines.create_engine(loaded, engine, dtype or "float32")
    elif dtype == "int8":
        _quantize(loaded)
    return loaded


def _missing(file):
    """The error message for a missing path, which may be a name on the Hugging Face Hub."""
    path = str(file)
    is_in_folder = file.parent.name != "" and file.parent.exists()
    others = file.parent.iterdir() if file.parent.is_dir() else ()
    similar = sorted(other.name for other in others if other.name.startswith(f"{file.name}."))
    message = f"There is no file or folder {path}.{advice(similar)}"
    host = r"(?:https?:/+[^/]+/|hf:/+|hf[-_]hub:)?"  # as in other libraries, or with one slash
    name = re.fullmatch(host + r"((?:[\w-][\w.-]*/)?[\w-][\w.-]*)", path)
    is_file = file.suffix in (*SUFFIXES, ".zip")
    if name and not is_file and not is_in_folder:
        message += (
            " Nothing is downloaded for a name alone: for the model of the Hugging Face Hub, pass "
            f"hf://{name[1]}; see docs/checkpoints.md."
        )
    return message


def _quantize(loaded):
    """Quantizes the weight matrices of a translator or text generator to 8 bits."""
    import keras

    if not isinstance(loaded, (Translator, TextGenerator)):
        raise UserError(
            'dtype="int8" without an engine is for translators and text generators. A classifier '
            'takes "bfloat16"; one of images also engine="onnxruntime", or can be exported in '
            f"int8. Received: {type(loaded).__name__}."
        )
    layers = (keras.layers.Dense, keras.layers.Embedding)  # Keras would warn about all others
    gc.freeze()  # Keras collects garbage after each matrix, which takes longer than the rest
    try:
        loaded.model.quantize("int8", filters=lambda layer: isinstance(layer, layers))
    finally:
        gc.unfreeze()
