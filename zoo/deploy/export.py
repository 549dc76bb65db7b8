"""`zoo.export`: writes a trained model to a folder that can be used without the zoo."""

import copy
import json
import os
import pathlib
import tempfile
from importlib.metadata import version
from typing import NamedTuple

from zoo.deploy.readme import readme
from zoo.errors import ExportError, as_number
from zoo.files import as_new_path, check_utf8, printable, read_json
from zoo.layers.quantization import quantization_mode
from zoo.models.vit import ViT
from zoo.tasks.classifier import Classifier, EncodedTextTask, ImageTask
from zoo.tasks.generation import GenerationTask
from zoo.tasks.generator import TextGenerator
from zoo.tasks.task import Task
from zoo.tasks.translator import Translator

DTYPES = ("float32", "float16", "int8")  # of weight matrices in formats other than SavedModel
DESCRIPTION_FILE = "export.json"


class ExportOptions(NamedTuple):
    """The options of `export`; None if it is not given, or the task does not have it."""

    n_best: int | None = None
    beam_size: int | None = None
    length_penalty: float | None = None
    sentences: bool | None = None
    max_new_tokens: int | None = None
    top_k: int | None = None
    dynamic_size: bool | None = None


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
        beam_size: number of hypotheses of beam search; by default that of the translator, or
            `n_best` for a generator.
        length_penalty: exponent of the length in the scores of beam search, see
            `zoo.decoding.length_penalty`; by default that of the translator, or 0 for a generator.
        max_new_tokens: maximum number of new tokens of a generator; by default 64, or as many as
            fit.
        sentences: whether a translator translates texts sentence by sentence and keeps their
            layout, see `zoo.tasks.translator.Translator`, or translates texts as they are. A
            `zoo.tasks.text_to_text.TextToTextGenerator` always reads texts as they are.
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
    folder = as_new_path(folder)
    if folder.is_symlink():
        folder = folder.resolve()
    check_utf8(folder)
    if not isinstance(model, Task):
        received = type(model).__name__
        raise ExportError(f"model must be a task that zoo.load returns. Received: {received}.")
    if getattr(model, "keep_signs", False):
        raise ExportError("Exports cannot keep signs that are not tokens. Set keep_signs to False.")
    model = copy.copy(model)
    model.engine = model.shortlist = None  # the export is compared with the model itself
    _check_format(model, format, dtype)
    given = ExportOptions(
        top_k=top_k,
        n_best=n_best,
        beam_size=beam_size,
        length_penalty=length_penalty,
        max_new_tokens=max_new_tokens,
        sentences=None if sentences else False,
        dynamic_size=True if dynamic_size else None,
    )
    options = _options(model, given)
    _check_folder(folder, overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(
            dir=folder.parent, prefix=f".{folder.name}.", ignore_cleanup_errors=True
        ) as temporary:
            partial = pathlib.Path(temporary, folder.name)
            partial.mkdir()
            _write(model, partial, format, dtype, options, folder.resolve())
            _replace(folder, partial)
    except OSError as error:
        raise ExportError(f"{folder} cannot be written to: {error.strerror or error}.") from None
    return folder


def _replace(folder, new):
    """Renames the folder `new` to `folder`, whose content is kept until then."""
    old = new.with_name(f"{new.name}.old")
    try:
        if folder.is_dir():
            os.replace(folder, old)
        os.replace(new, folder)
    except BaseException:  # also Ctrl-C
        if old.is_dir() and not folder.is_dir():
            os.replace(old, folder)
        raise


def _write(model, folder, format, dtype, options, final):
    """Writes the model, export.json and README.md; `final` is the final path of the folder."""
    if format == "saved_model":
        dtype = quantization_mode(model.model) or model.model.dtype_policy.name
    elif dtype is None:
        dtype = DTYPES[0]
    written = _write_format(model, folder, format, dtype, options)
    search = written.pop("search", {})
    made_with = written.pop("made_with", ())
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
        "source": _source(model),
    }
    (folder / "README.md").write_text(readme(description, final), encoding="utf-8")
    text = json.dumps(description, indent=2, ensure_ascii=False)
    (folder / DESCRIPTION_FILE).write_text(text + "\n", encoding="utf-8")


def _write_format(model, folder, format, dtype, options):
    """Writes the model in a format, and compares the outputs.

    Returns:
        dict for export.json: "needs", the packages that run the export; "signatures"; "checked",
        see `zoo.deploy.checks.report`; optionally "search", additional facts about the search of a
        translator; and "made_with", the packages that write the format.
    """
    # The packages of a format are imported only if it is used.
    if format == "saved_model":
        from zoo.deploy import saved_model_format

        return saved_model_format.write(model, folder, dtype, options)
    if format == "onnx":
        from zoo.deploy import onnx_format

        return onnx_format.write(model, folder, dtype, options.dynamic_size)
    if format == "litert":
        from zoo.deploy import litert_format

        return litert_format.write(model, folder, dtype, options.dynamic_size)
    from zoo.deploy import ctranslate2_format

    return ctranslate2_format.write(model, folder, dtype)


def _check_format(model, format, dtype):
    formats = ("saved_model",)
    if isinstance(model, Classifier):
        formats += ("onnx", "litert")
    elif isinstance(model, Translator) and model.splits_sentences:
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
    if format != "saved_model" and quantization_mode(model.model) == "int8":
        raise ExportError(
            'A model that was loaded with dtype="int8" can only be exported as a saved_model. Load '
            'it without dtype, and pass dtype="int8" to zoo.export.'
        )


def _options(task, given):
    """Checks the given `ExportOptions`, and sets the defaults of this kind of task."""
    options = {}
    if isinstance(task, GenerationTask):
        n_best = as_number("n_best", 1 if given.n_best is None else given.n_best, int, 1)
        beam_size = given.beam_size
        if beam_size is None:
            beam_size = max(n_best, task.beam_size)
        length_penalty = given.length_penalty
        if length_penalty is None:
            length_penalty = task.length_penalty
        options["n_best"] = n_best
        options["beam_size"] = as_number("beam_size", beam_size, int, n_best)
        options["length_penalty"] = as_number("length_penalty", length_penalty, float)
    if isinstance(task, Translator):
        options["sentences"] = given.sentences is None and task.splits_sentences
    if isinstance(task, TextGenerator):
        max_new_tokens = given.max_new_tokens
        if max_new_tokens is not None:
            limit = task.model.max_length
            max_new_tokens = as_number("max_new_tokens", max_new_tokens, int, 1, limit)
        options["max_new_tokens"] = max_new_tokens
    if isinstance(task, Classifier):
        classes = len(task.class_names)
        top_k = given.top_k
        if top_k is None:
            top_k = classes if task.problem == "multi_label" else min(5, classes)
        options["top_k"] = as_number("top_k", top_k, int, 1, classes)
    if isinstance(task.model, ViT):
        options["dynamic_size"] = given.dynamic_size is not None
    for name, value in given._asdict().items():
        if value is not None and name not in options:
            raise ExportError(
                f"A {type(task).__name__} has no option {name}. Its model is a "
                f"{type(task.model).__name__}."
            )
    return ExportOptions(**options)


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
    given = {name: value for name, value in options._asdict().items() if value is not None}
    if isinstance(model, ImageTask):
        if options.dynamic_size:
            given["patch_size"] = model.model.patch_size
        return description | given
    given["max_length"] = model.model.max_length
    if isinstance(model, EncodedTextTask):
        return description | given
    if isinstance(model, TextGenerator):
        given["max_new_tokens"] = options.max_new_tokens or model.most_new_tokens(model.options())
        given["max_prompt_length"] = model.max_prompt_length(options.max_new_tokens)
    return description | {"search": given | search}


def _source(model):
    """The settings and metrics of the run of the model; None if they are not known."""
    run_folder = model.run_folder
    source = {}
    if model.settings is not None:
        source["config"] = {"config": model.settings}
    if run_folder is None:
        return source or None
    source["run"] = printable(run_folder)
    for name in ("metrics", "config"):
        file = run_folder / f"{name}.json"
        if file.is_file():
            source[name] = read_json(file)
    return source
