"""The commands of ``python -m zoo``: each is a function, its arguments are the flags.

tyro reads the flags from the signature and their help from the docstring. Imports are inside the
functions: TensorFlow takes seconds to import, and ``--help`` should not.
"""

import json
import os
import pathlib
import sys
from typing import Annotated, Literal

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from zoo import model_index
from zoo.commands import evaluate, generate, shared  # noqa: F401 (their commands)
from zoo.commands.shared import Float, Int, RunFolder, Source, Target, Text, app, flag
from zoo.errors import UserError
from zoo.server.limits import Limits
from zoo.startup import import_tensorflow_quietly

LIMITS = Limits()


@app.command
def classify(
    run_folder: RunFolder,
    items: shared.Items = (),
    file: shared.File = None,
    top_k: Int = None,
    threshold: Float = None,
    too_long: Literal["error", "truncate"] = "truncate",
    engine: Text = None,
    dtype: Text = None,
):
    """Classify images or texts.

    Args:
        items: image file, folder of images, or text; by default the lines of standard input
        top_k: number of classes per item (1; for several labels, all above the threshold)
        threshold: minimum probability of a class, from 0 to 1 (0.5 for several labels)
        too_long: how to handle a text that is too long for the model
        engine: onnxruntime or openvino in place of TensorFlow, often faster on CPUs
        dtype: dtype, such as bfloat16 (the run's); with --engine also int8 (float32)
    """
    classifier = shared.load(run_folder, "classify", dtype=dtype, engine=engine)
    from zoo.tasks.classifier import ImageClassifier

    if isinstance(classifier, ImageClassifier):
        if file or not items:
            raise UserError(f"{run_folder} classifies images. Pass image files or folders.")
        return _classify_images(classifier, items, top_k, threshold)
    texts = shared.read_texts(items, file)
    _print_classes(texts, classifier(texts, top_k, threshold, too_long=too_long))


def _classify_images(classifier, items, *options):
    """Prints the classes of each image; reports images that cannot be read."""
    paths, failed = [path for item in items for path in _image_files(item)], 0
    for start in range(0, len(paths), 64):
        images = []
        for path in paths[start : start + 64]:
            try:
                images.append((path, classifier.preprocessing.read(path)))
            except (UserError, OSError) as error:
                failed += 1
                print(f"error: {error}", file=sys.stderr)
        answers = classifier([pixels for _, pixels in images], *options)
        _print_classes([path for path, _ in images], answers)
    if failed:
        print(f"{failed} of {len(paths)} images could not be classified.", file=sys.stderr)
    return 0 if not failed else 1 if failed < len(paths) else 2


def _print_classes(items, answers):
    for item, answer in zip(items, answers):
        print(f"{item}\t" + "\t".join(f"{name} {share:.1%}" for name, share in answer))


@app.command
def info(run_folder: RunFolder, src_lang: Source = None, tgt_lang: Target = None):
    """Print a description of a run, or of published weights, as JSON."""
    loaded = shared.load(run_folder, src_lang=src_lang, tgt_lang=tgt_lang)
    model = {"type": type(loaded.model).__name__, "parameters": loaded.model.count_params()}
    report = {"model": model, **loaded.description()}
    for path in (pathlib.Path(run_folder, name) for name in ("metrics.json", "config.json")):
        if path.is_file():
            report[path.stem] = json.loads(path.read_text())
    print(json.dumps(report, indent=2))


@app.command
def models(
    search: flag(Positional[tuple[str, ...]], "[WORD ...]") = (),
    task: Text = None,
    language: Text = None,
    max_parameters: Float = None,
):
    """List published models that can be loaded; docs/models.md has licenses and sources.

    Args:
        search: words in the name or in another column
        task: task, such as translation
        language: language code, such as pt
        max_parameters: maximum number of parameters, in millions
    """
    rows = model_index.published_models(" ".join(search), task, language, max_parameters)
    for line in model_index.table_lines(rows):
        print(line)
    print(f"{len(rows)} models;", ", ".join(f"{mark} {x}" for x, mark in model_index.MARKS.items()))


@app.command
def export(
    run_folder: RunFolder,
    folder: flag(Positional[str], "FOLDER"),
    format: Literal["saved_model", "onnx", "litert", "ctranslate2"] = "saved_model",
    dtype: Text = None,
    top_k: Int = None,
    n_best: Int = None,
    beam_size: Int = None,
    length_penalty: Float = None,
    max_new_tokens: Int = None,
    sentences: shared.Whole = True,
    dynamic_size: bool = False,
    overwrite: bool = False,
    src_lang: Source = None,
    tgt_lang: Target = None,
):
    """Export a trained model for serving, or for other engines.

    Args:
        folder: new folder, such as serving/vit/1: name and version
        format: only saved_model takes encoded images and strings
        dtype: dtype, such as bfloat16 or int8 (the run's; for other formats float32)
        top_k: number of classes that a classifier returns (5)
        n_best: number of translations or continuations per text (1)
        beam_size: beam size (the run's; for a generator N_BEST)
        length_penalty: length penalty of beam search (the run's; for a generator 0)
        max_new_tokens: maximum number of new tokens of a generator (64, or as many as fit)
        dynamic_size: accept pixels of any size that is divisible by the patch size
        overwrite: replace an export in FOLDER
    """
    options = locals()  # the flags by their names
    model_options = {name: options.pop(name) for name in ("run_folder", "src_lang", "tgt_lang")}
    if format == "saved_model":
        model_options["dtype"] = options.pop("dtype")
    model = shared.load(**model_options)
    from zoo.deploy.export import DESCRIPTION_FILE, export

    print("Exporting the model and checking the export ...", file=sys.stderr)
    folder = export(model, **options)
    about = json.loads((folder / DESCRIPTION_FILE).read_text("utf-8"))
    print(f"{about['kind']}, {about['format']}, {about['bytes'] / 1e6:.1f} MB")
    print(f"compared with the original model: {json.dumps(about['checked'])}")
    print(f"usage: {folder / 'README.md'}\n{folder}")


@app.command
def serve(
    folders: flag(Positional[tuple[str, ...]], "FOLDER [FOLDER ...]"),
    host: str = "127.0.0.1",
    port: int = 8501,
    grpc_port: Int = None,
    poll_seconds: float = 2.0,
    access_log: bool = False,
    allowed_hosts: flag(UseAppendAction[tuple[str, ...]], "NAME", name="allowed-host") = (),
    allowed_origins: flag(UseAppendAction[tuple[str, ...]], "SITE", name="allowed-origin") = (),
    limits: Annotated[Limits, OmitArgPrefixes] = LIMITS,
):
    """Serve exported models: TensorFlow Serving's REST API and a web page.

    Args:
        folders: .../NAME/1; .../NAME, which serves its highest version; or NAME=path
        host: 0.0.0.0 listens on all networks
        port: 0 selects a free port
        grpc_port: port for gRPC requests (none)
        poll_seconds: seconds between checks for other versions on disk; 0 for no checks
        access_log: log every request
        allowed_hosts: host name in requests (localhost, or any with another --host); repeatable
        allowed_origins: web site that may send requests, such as https://example.com; repeatable
    """
    options = locals()  # the flags by their names
    if not folders:
        raise UserError("Pass the folder of an export, such as serving/vit.")
    options |= vars(options.pop("limits"))
    import_tensorflow_quietly()
    from zoo.server.server import serve

    return serve(**options)


@app.command
def launch(command: flag(Positional[tuple[str, ...]], "-- COMMAND") = (), workers: int = 2):
    """Run a recipe with several workers on this machine.

    Args:
        command: such as: -- python recipes/NAME.py FLAGS
        workers: number of processes
    """
    from zoo.launch import launch

    return launch(command, workers)


def _image_files(path):
    """The images in a folder, or the file itself."""
    from zoo.data.image_folder import SUFFIXES, images_in

    images, notes = images_in(path) if os.path.isdir(path) else ([path], ())
    for note in notes:
        print(note, file=sys.stderr)
    if not images:
        raise UserError(f"The folder {path} has no images ({', '.join(sorted(SUFFIXES))}).")
    return images
