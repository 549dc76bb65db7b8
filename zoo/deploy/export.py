"""`zoo.export`: writes a trained model to a folder that can be used without the zoo."""

import copy
import importlib
import json
import os
import pathlib
import shutil
import tempfile
from importlib.metadata import version

from zoo.deploy.readme import readme
from zoo.errors import ExportError, as_number
from zoo.models.base import dtype_name
from zoo.models.vit import ViT
from zoo.tasks.classifier import Classifier, ImageReader, TextReader
from zoo.tasks.generation import GenerationTask
from zoo.tasks.generator import NEW_TOKENS, TextGenerator
from zoo.tasks.task import Task
from zoo.tasks.translator import Translator

DTYPES = ("float32", "float16", "int8")  # of weight matrices in formats other than SavedModel
DESCRIPTION_FILE = "export.json"


def export(
    model,
    folder,
    format="saved_model",
    dtype=None,
    top_k=None,
    n_best=None,
    beam_size=None,
    length_penalty=None,
    max_new_tokens=None,
    sentences=True,
    dynamic_size=False,
    overwrite=False,
):
    """Exports a trained model for serving, and checks the outputs of the export.

    Args:
        model: a classifier, an encoder, a translator or a text generator, as `zoo.load` returns it.
        folder: path of a new folder. TensorFlow Serving requires a version number as its name,
            such as "serving/vit/1".
        format: "saved_model"; "onnx" or "litert" for a classifier; "ctranslate2" for a translator.
        dtype: dtype of the weight matrices, for formats other than "saved_model": "float32" by
            default; "float16"; or "int8", with one scale per row or column. A SavedModel has the
            dtypes of the model, see `zoo.load`.
        top_k: number of classes that a classifier returns; by default 5, or fewer if there are
            fewer classes; for the problem "multi_label" all, so that clients can apply thresholds.
        n_best: number of translations or continuations per text; 1 by default.
        beam_size, length_penalty: arguments of beam search; by default those of the translator, or
            `n_best` and 0 for a generator.
        max_new_tokens: maximum number of new tokens of a generator; by default 64, or as many as
            fit.
        sentences: whether a translator translates texts sentence by sentence and keeps their
            layout, see `zoo.tasks.translator.Translator`, or translates texts as they are.
        dynamic_size: whether the pixels for a Vision Transformer may have any height and width that
            its patch size divides. By default, ONNX and LiteRT take pixels of the size of the
            model, and a SavedModel resizes pixels to it.
        overwrite: whether to replace an existing export.

    Returns:
        The path of the folder. It contains export.json and README.md, which describe the export.

    Raises:
        ExportError, TaskError: if an option is invalid, the folder is not empty, or the outputs of
            the export differ from those of the model. Nothing is written in these cases.
    """
    folder = pathlib.Path(folder)
    if not isinstance(model, Task):
        received = type(model).__name__
        raise ExportError(f"model must be a task that zoo.load returns. Received: {received}.")
    model = copy.copy(model)
    model.engine = model.shortlist = None  # the export is compared with the model itself
    options = {"top_k": top_k, "n_best": n_best, "beam_size": beam_size}
    options |= {"length_penalty": length_penalty, "max_new_tokens": max_new_tokens}
    options |= {"sentences": None if sentences else False, "dynamic_size": dynamic_size or None}
    _check_format(model, format, dtype)
    options = _options(model, {k: value for k, value in options.items() if value is not None})
    _check_folder(folder, overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as partial:
            partial = pathlib.Path(partial) / folder.name
            partial.mkdir()
            _write(model, partial, format, dtype, options, folder.resolve())
            if folder.is_dir():
                shutil.rmtree(folder)
            os.replace(partial, folder)
    except OSError as error:
        raise ExportError(f"{folder} cannot be written to: {error.strerror or error}.") from None
    return folder


def _write(model, folder, format, dtype, options, final):
    """Writes the model, export.json and README.md; `final` is the final path of the folder.

    The module of a format, such as `zoo.deploy.onnx_format`, has a function ``write(model, folder,
    dtype, **options)``. It writes into an existing folder, with weight matrices of this dtype,
    compares the outputs with those of the model (`ExportError` if they differ), and returns a dict
    for export.json: "needs", the packages that run the export; "signatures"; "checked";
    optionally "search", and "made_with", the packages that write it.
    """
    # The packages of a format are imported only if it is used.
    writer = importlib.import_module(f"zoo.deploy.{format}_format")
    dtype = dtype_name(model.model) if format == "saved_model" else dtype or DTYPES[0]
    written = writer.write(model, folder, dtype, **options)
    search, made_with = written.pop("search", {}), written.pop("made_with", ())
    packages = ("keras", "tensorflow", *written["needs"], *made_with)
    description = {
        "zoo_export": 1,
        "kind": pathlib.Path(model.description_file).stem,
        "format": format,
        "dtype": dtype,
        **written,
        **_described(model, options, search),
        "parameters": model.model.count_params(),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "versions": {name: version(name) for name in packages},
        "source": _source(model.run_folder),
    }
    (folder / "README.md").write_text(readme(description, final), encoding="utf-8")
    text = json.dumps(description, indent=2, ensure_ascii=False)
    (folder / DESCRIPTION_FILE).write_text(text + "\n", encoding="utf-8")


def _check_format(model, format, dtype):
    formats = ("saved_model",)
    if isinstance(model, Classifier):
        formats += ("onnx", "litert")
    elif isinstance(model, Translator):
        formats += ("ctranslate2",)
    if format not in formats:
        raise ExportError(
            f"A {type(model).__name__} can be exported as {', '.join(formats)}. "
            f"Received: format={format!r}."
        )
    if dtype is not None and format == "saved_model":
        raise ExportError(
            "A SavedModel has the dtypes of its model: pass dtype to zoo.load, for example "
            f'zoo.load(path, dtype="bfloat16"). Received: dtype={dtype!r}.'
        )
    if dtype not in (None, *DTYPES):
        raise ExportError(f"dtype must be one of {DTYPES}. Received: dtype={dtype!r}.")
    if format != "saved_model" and dtype_name(model.model) == "int8":
        raise ExportError(
            'A model that was loaded with dtype="int8" can only be exported as a saved_model. Load '
            'it without dtype, and pass dtype="int8" to zoo.export.'
        )


def _options(model, given):
    """The checked options of this kind of model, by default for those that are not given."""
    options = {}
    if isinstance(model, GenerationTask):
        n = as_number("n_best", given.get("n_best", 1), int, 1)
        beam_size = given.get("beam_size", max(n, model.beam_size))
        length_penalty = given.get("length_penalty", model.length_penalty)
        options["n_best"] = n
        options["beam_size"] = as_number("beam_size", beam_size, int, n)
        options["length_penalty"] = as_number("length_penalty", length_penalty, float)
    if isinstance(model, Translator):
        options["sentences"] = given.get("sentences", True)
    if isinstance(model, TextGenerator):
        most, limit = given.get("max_new_tokens"), model.model.max_length
        most = None if most is None else as_number("max_new_tokens", most, int, 1, limit)
        options["max_new_tokens"] = most
    if isinstance(model, Classifier):
        classes = len(model.class_names)
        default = classes if model.problem == "multi_label" else min(5, classes)
        options["top_k"] = as_number("top_k", given.get("top_k", default), int, 1, classes)
    if isinstance(model.model, ViT):
        options["dynamic_size"] = given.get("dynamic_size", False)
    for name in given.keys() - options.keys():
        kind, computes = type(model).__name__, type(model.model).__name__
        raise ExportError(f"A {kind} has no option {name}. Its model is a {computes}.")
    return options


def _check_folder(folder, overwrite):
    if folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder} is a file. Choose a new folder.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / DESCRIPTION_FILE).is_file():
        raise ExportError(f"{folder} is not empty and contains no export. Choose another folder.")
    if not overwrite:
        raise ExportError(
            f"{folder} already contains an export. Choose the next version number, or pass "
            "overwrite=True (--overwrite)."
        )


def _described(model, options, search):
    """The preprocessing and labels, or the arguments of the search, for export.json."""
    description = model.description()
    if isinstance(model, ImageReader):
        divisor = {"patch_size": model.model.patch_size} if options.get("dynamic_size") else {}
        return description | options | divisor
    settings = {**options, "max_length": model.model.max_length, **search}
    if isinstance(model, TextReader):
        return description | settings
    if isinstance(model, TextGenerator):
        most = options["max_new_tokens"]
        settings["max_new_tokens"] = most or NEW_TOKENS
        settings["max_prompt_length"] = model.max_prompt_length(most)
    return description | {"search": settings}


def _source(run_folder):
    """The settings and metrics of the run of the model; None if it was not loaded from a run."""
    if run_folder is None:
        return None
    files = {name: run_folder / f"{name}.json" for name in ("metrics", "config")}
    found = {name: json.loads(file.read_text()) for name, file in files.items() if file.is_file()}
    return {"run": str(run_folder), **found}
