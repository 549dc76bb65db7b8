"""`zoo.export`: what `zoo.load` returns, as a folder that runs where the zoo is not installed."""

import json
import os
import pathlib
import platform
import shutil
import tempfile
from importlib.metadata import version

from zoo.classifier import ImageClassifier
from zoo.deploy.errors import ExportError
from zoo.deploy.readme import readme
from zoo.translator import SPECIAL_TOKENS, Translator

FORMATS = ("saved_model", "onnx", "litert")
DESCRIPTION_FILE = "export.json"
_NEEDS = {  # packages that the format's files are run with
    "saved_model": ["tensorflow"],
    "onnx": ["onnxruntime", "numpy"],
    "litert": ["ai-edge-litert", "numpy"],
}
_WITH = {  # that it is written with
    "saved_model": [],
    "onnx": ["tf2onnx", "onnx", "onnxruntime"],
    "litert": ["ai-edge-litert"],
}


def export(
    thing,
    folder,
    format="saved_model",
    int8=False,
    top_k=None,
    n_best=None,
    beam_size=None,
    length_penalty=None,
    overwrite=False,
):
    """Writes a classifier or a translator for serving, loads it again and compares its answers.

    Args:
        thing: `zoo.classifier.ImageClassifier` or `zoo.translator.Translator`.
        folder: a new folder; TensorFlow Serving expects a version number for its name, such as
            "serving/vit/1".
        format: "saved_model", "onnx" or "litert".
        int8: whether the matrices are rounded to 8 bits; for "onnx" and "litert".
        top_k: number of classes that a classifier names; 5 by default, or as many as there are.
        n_best: number of translations of each text; 1 by default.
        beam_size, length_penalty: of the search; those of the translator by default.
        overwrite: whether an export that the folder holds is replaced.

    Returns:
        The folder, a path. It also holds export.json and README.md, which describe it.

    Raises:
        ExportError: if an option is wrong, the folder is taken, or the export does not answer as
            the zoo does; no folder is left then.
    """
    folder = pathlib.Path(folder)
    options = {"top_k": top_k, "n_best": n_best, "beam_size": beam_size}
    options["length_penalty"] = length_penalty
    options = _checked(thing, format, int8, options)
    _check_folder(folder, overwrite)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{folder.name}.") as partial:
            partial = pathlib.Path(partial) / folder.name
            partial.mkdir()
            _write(thing, partial, format, int8, options, folder.resolve())
            if folder.is_dir():
                shutil.rmtree(folder)
            os.replace(partial, folder)
    except OSError as error:
        raise ExportError(f"{folder} cannot be written to: {error.strerror}.") from None
    return folder


def _write(thing, folder, format, int8, options, final):
    """Writes the model, export.json and README.md; `final` is where the folder will be."""
    kind = "classifier" if isinstance(thing, ImageClassifier) else "translator"
    written = _writer(format, kind, int8, options)(thing, folder)
    description = {
        "zoo_export": 1,
        "kind": kind,
        "format": format,
        "int8": int8,
        "needs": _NEEDS[format],
        **written,
        **_described(thing, options),
        "parameters": thing.model.count_params(),
        "bytes": sum(file.stat().st_size for file in folder.rglob("*") if file.is_file()),
        "versions": _versions(format),
        "source": _source(thing.run_folder),
    }
    (folder / "README.md").write_text(readme(description, final), encoding="utf-8")
    text = json.dumps(description, indent=2, ensure_ascii=False)
    (folder / DESCRIPTION_FILE).write_text(text + "\n", encoding="utf-8")


def _writer(format, kind, int8, options):
    """function (thing, folder) -> dict for export.json."""
    # what a format needs is imported when it is asked for
    if format == "saved_model":
        from zoo.deploy import saved_model as home

        settings = options
    elif format == "onnx":
        from zoo.deploy import onnx_format as home

        settings = {"int8": int8}
    else:
        from zoo.deploy import litert_format as home

        fixed = ("beam_size",)  # which is the size of an axis there
        settings = {"int8": int8, **{name: options[name] for name in fixed if name in options}}
    write = getattr(home, f"write_{kind}")
    return lambda thing, folder: write(thing, folder, **settings)


def _checked(thing, format, int8, options):
    """The options of this kind of thing, with its defaults."""
    if format not in FORMATS:
        raise ExportError(f"format must be one of {FORMATS}. Received: format={format!r}.")
    if int8 and format == "saved_model":
        raise ExportError('int8 is for the formats "onnx" and "litert", not for a SavedModel.')
    if isinstance(thing, ImageClassifier):
        classes = len(thing.class_names)
        defaults, least = {"top_k": min(5, classes)}, {"top_k": (1, classes)}
    elif isinstance(thing, Translator):
        if thing.special_tokens != SPECIAL_TOKENS:
            raise ExportError(
                f"Only a translator with {SPECIAL_TOKENS} can be exported. "
                f"Received: special_tokens={thing.special_tokens}."
            )
        n_best = 1 if options["n_best"] is None else options["n_best"]
        defaults = {
            "n_best": 1,
            "beam_size": max(n_best, thing.beam_size),
            "length_penalty": thing.length_penalty,
        }
        least = {"n_best": (1, float("inf")), "beam_size": (n_best, float("inf"))}
    else:
        raise ExportError(
            "zoo.export takes what zoo.load returns, a classifier or a translator. "
            f"Received: {type(thing).__name__}."
        )
    for name, value in options.items():
        if value is not None and name not in defaults:
            raise ExportError(f"A {type(thing).__name__} has no option {name}.")
    given = {name: value for name, value in options.items() if value is not None}
    options = {**defaults, **given}
    for name, (low, high) in least.items():
        if not low <= options[name] <= high:
            raise ExportError(f"{name} must be from {low} to {high}. Received: {options[name]}.")
    return options


def _check_folder(folder, overwrite):
    if folder.exists() and not folder.is_dir():
        raise ExportError(f"{folder} is a file; an export needs a folder.")
    if not folder.is_dir() or not any(folder.iterdir()):
        return
    if not (folder / DESCRIPTION_FILE).is_file():
        raise ExportError(f"{folder} is not empty and holds no export. Choose another folder.")
    if not overwrite:
        raise ExportError(
            f"{folder} already holds an export. Choose the next version number, or say overwrite."
        )


def _described(thing, options):
    """What is known of the thing beside its model."""
    if isinstance(thing, ImageClassifier):
        return {**thing.description(), **options}
    description = thing.description()
    search = {**options, "max_length": thing.max_source_length}
    return {"tokenizers": description["tokenizers"], "search": search}


def _versions(format):
    packages = ["tensorflow", "keras", "numpy", *_WITH[format]]
    import zoo

    versions = {"zoo": zoo.__version__, "python": platform.python_version()}
    return {**versions, **{name: version(name) for name in packages}}


def _source(run_folder):
    """The run that the model came from, its settings and its metrics; None if it was not loaded."""
    if run_folder is None:
        return None
    source = {"run": str(run_folder)}
    for name in ("metrics", "config"):
        path = run_folder / f"{name}.json"
        if path.is_file():
            source[name] = json.loads(path.read_text())
    return source
