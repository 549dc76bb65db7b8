"""`zoo.load`: loads a trained model with its preprocessing or tokenizers."""

import gc
import json
import pathlib
import zipfile

from zoo import checkpoints, engines
from zoo.checkpoints.images import changed_vit
from zoo.errors import UserError
from zoo.models import ViT
from zoo.models.base import copy_model
from zoo.tasks import classifier, generator, translator

_DTYPES = ("float32", "bfloat16", "float16", "mixed_bfloat16", "mixed_float16", "int8")
_MOST_LAYERS = 1000


def load(path, dtype=None, engine=None, **options):
    """Loads the trained model of a run, or published weights.

    Args:
        path: run directory, such as "runs/vit_cifar10"; or a folder or file of published weights,
            see docs/checkpoints.md.
        dtype: dtype policy of the model, such as "bfloat16", or "mixed_bfloat16", which keeps the
            weights in float32; by default that of the run, or the global one of Keras. Or "int8",
            for translators and text generators: weight matrices and the inputs of their products
            are quantized, all else is float32. With an engine: "float32" by default, "bfloat16" for
            OpenVINO, or "int8" for the others.
        engine: "onnxruntime" or "openvino" for an image classifier, or "ctranslate2" for a
            translator, to compute probabilities and translations in place of TensorFlow, on CPUs;
            see docs/engines.md.
        **options: arguments of the model that replace its own, for published weights and for runs
            with a Vision Transformer: ``num_classes=7`` gives it a new head, unless its own has
            as many classes, and another `input_shape` resizes its positions. Translation models
            have no such options; those of several languages need `src_lang` and `tgt_lang`.

    Returns:
        `zoo.tasks.classifier.ImageClassifier`, `zoo.tasks.classifier.TextClassifier`,
        `zoo.tasks.translator.Translator` or `zoo.tasks.generator.TextGenerator`.

    Raises:
        FileNotFoundError: if there is no such path, or it contains no finished run.
        zoo.checkpoints.CheckpointError: if published weights cannot be used.
        zoo.errors.UserError: if there are options for a run without a Vision Transformer, a file of
            the run is damaged, or `dtype` or `engine` is unknown or not available for this kind of
            model.
    """
    dtypes = _DTYPES if engine is None else engines.dtypes(engine)
    if dtype not in (None, *dtypes):
        given = "without an engine" if engine is None else f"with engine={engine!r}"
        raise UserError(f"dtype must be one of {dtypes} {given}. Received: dtype={dtype!r}.")
    loaded = _load(pathlib.Path(path), options)
    if engine is not None:
        loaded.engine = engines.create_engine(loaded, engine, dtype or "float32")
        return loaded
    policy = "float32" if dtype == "int8" else dtype
    if policy not in (None, loaded.model.dtype_policy.name):
        loaded.model = copy_model(loaded.model, dtype=policy)
    if dtype == "int8":
        _quantize(loaded)
    return loaded


def _quantize(loaded):
    """Replaces the weight matrices of a translator or text generator by integers of 8 bits."""
    import keras

    if not isinstance(loaded, (translator.Translator, generator.TextGenerator)):
        raise UserError(
            'dtype="int8" without an engine is for translators and text generators; for an image '
            'classifier, use engine="onnxruntime", or export it with format="onnx" or "litert" and '
            f'dtype="int8". Received: {type(loaded).__name__}.'
        )
    kinds = (keras.layers.Dense, keras.layers.Embedding)  # Keras would warn about all others
    was_frozen = gc.get_freeze_count() > 0
    if not was_frozen:
        gc.freeze()  # Keras collects garbage after each matrix, which takes longer than the rest
    try:
        loaded.model.quantize("int8", filters=lambda layer: isinstance(layer, kinds))
    finally:
        if not was_frozen:
            gc.unfreeze()


def _load(folder, options):
    if checkpoints.is_checkpoint(folder):
        return checkpoints.load(folder, **options)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no file or folder {folder}.")
    classes = {
        classifier.DESCRIPTION_FILE: classifier.ImageClassifier,
        classifier.TEXT_DESCRIPTION_FILE: classifier.TextClassifier,
        translator.DESCRIPTION_FILE: translator.Translator,
        generator.DESCRIPTION_FILE: generator.TextGenerator,
    }
    for description, model_class in classes.items():
        if all((folder / name).is_file() for name in (description, classifier.MODEL_FILE)):
            return _changed(_loaded(model_class, folder, description), folder, options)
    raise FileNotFoundError(
        f"{folder} contains no finished run: there must be a {classifier.MODEL_FILE} and a "
        f"{' or '.join(classes)} in it; of published weights, a config.json with a model_type. "
        "If training was interrupted, run the same command with --resume."
    )


def _loaded(model_class, folder, description):
    """The model of a run, whose files a stranger may have written."""
    try:
        with zipfile.ZipFile(folder / classifier.MODEL_FILE) as archive:
            config = json.loads(archive.read("config.json"))["config"]
        for name in ("num_layers", "num_decoder_layers", "blocks_per_stage"):
            if (config.get(name) or 0) > _MOST_LAYERS:  # to build them would take hours
                raise ValueError(f"{name} is {config[name]:,}")
        return model_class.load(folder)
    except UserError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, zipfile.BadZipFile) as error:
        reason = next(iter(str(error).splitlines()), "")
        raise UserError(
            f"{folder} cannot be loaded: {description} or {classifier.MODEL_FILE} is damaged "
            f"({type(error).__name__}: {reason})."
        ) from None


def _changed(model, folder, options):
    """The model of a run, with other arguments if there are `options`."""
    if not options:
        return model
    if not isinstance(model.model, ViT):
        raise UserError(
            f"{folder} is a run, which is loaded as it was trained: only runs with a Vision "
            f"Transformer take options. Received: {', '.join(options)}."
        )
    return changed_vit(model, folder, options)
