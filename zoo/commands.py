"""The commands of ``python -m zoo``: each is a function, its arguments are the flags.

tyro reads the flags from the signature and their help from the docstring. Imports are inside the
functions: TensorFlow takes seconds to import, and ``--help`` should not.
"""

import json
import pathlib
import sys
from typing import Annotated, Literal

import tyro
from tyro.conf import Positional, UseAppendAction, arg

from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly

app = tyro.extras.SubcommandApp()
FEW_TEXTS = 8  # are translated sooner without XLA, which compiles a search for seconds


def flag(type, metavar, help=None, name=None):
    """A flag or argument whose help says itself, in parentheses, what its default is."""
    return Annotated[type, arg(metavar=metavar, help=help, name=name, help_behavior_hint="")]


Int = flag(int | None, "INT")
Float = flag(float | None, "FLOAT")
Text = flag(str | None, "STR")
File = flag(str | None, "FILE", "text file with one text per line")
RunFolder = flag(Positional[str], "RUN", "run directory, or published weights")
Items = flag(Positional[tuple[str, ...]], "[ITEM ...]")
Source = flag(str | None, "CODE", "source language, for published weights of several languages")
Target = flag(str | None, "CODE", "target language, for published weights of several languages")


@app.command
def classify(
    run_folder: RunFolder,
    items: Items = (),
    file: File = None,
    top_k: int = 1,
    too_long: Literal["error", "truncate"] = "truncate",
    engine: Text = None,
    dtype: Text = None,
):
    """Classify images or texts.

    Args:
        items: image file, folder of images, or text; by default the lines of standard input
        top_k: classes to print per item
        too_long: how to handle a text that is too long for the model
        engine: onnxruntime or openvino computes in place of TensorFlow, often faster on CPUs
        dtype: such as bfloat16 (the run's); with --engine float32, bfloat16 or int8 (float32)
    """
    classifier = _load(run_folder, "classify", dtype=dtype, engine=engine)
    from zoo.tasks.classifier import ImageClassifier

    if isinstance(classifier, ImageClassifier):
        if file or not items:
            raise UserError(f"{run_folder} classifies images. Pass image files or folders.")
        return _classify_images(classifier, items, top_k)
    texts = _texts(items, file)
    for text, answer in zip(texts, classifier(texts, top_k, too_long)):
        _print_classes(text, answer)


def _classify_images(classifier, items, top_k):
    """Prints the classes of each image; reports images that cannot be read."""
    paths, failed = list(_image_files(items)), 0
    for start in range(0, len(paths), 64):
        images = []
        for path in paths[start : start + 64]:
            try:
                images.append((path, classifier.preprocessing.read(path)))
            except (UserError, OSError) as error:
                failed += 1
                print(f"error: {error}", file=sys.stderr)
        answers = classifier([pixels for _, pixels in images], top_k)
        for (path, _), answer in zip(images, answers):
            _print_classes(path, answer)
    if not failed:
        return 0
    print(f"{failed} of {len(paths)} images could not be classified.", file=sys.stderr)
    return 1 if failed < len(paths) else 2


def _print_classes(item, answer):
    print(f"{item}\t" + "\t".join(f"{name} {share:.1%}" for name, share in answer))


@app.command
def translate(
    run_folder: RunFolder,
    texts: Items = (),
    file: File = None,
    beam_size: Int = None,
    n_best: int = 1,
    too_long: Literal["error", "split"] = "split",
    attention: flag(str | None, "PNG") = None,
    engine: Text = None,
    dtype: Text = None,
    src_lang: Source = None,
    tgt_lang: Target = None,
):
    """Translate texts.

    Args:
        texts: texts; by default the lines of standard input
        beam_size: beam size; 1 is greedy search (the run's)
        n_best: translations per text; with scores if above 1
        too_long: how to handle a text that is too long for the model
        attention: plot the attention weights
        engine: ctranslate2 computes in place of TensorFlow, often faster on CPUs
        dtype: such as bfloat16 or int8 (the run's); with --engine float32 or int8 (float32)
    """
    lines = _texts(texts, file)
    if attention and len(lines) != 1:
        raise UserError(f"--attention takes one text. Received: {len(lines)}.")
    options = {"dtype": dtype, "engine": engine, "src_lang": src_lang, "tgt_lang": tgt_lang}
    translator = _load(run_folder, "translate", **options)
    translator.jit_compile = len(lines) > FEW_TEXTS
    found = translator.n_best(lines, n_best, beam_size=beam_size, too_long=too_long)
    for translations in found:
        for text, score in translations:
            print(f"{score:.4f}\t{text}" if n_best > 1 else text)
    if attention:
        from zoo.training.pictures import cross_attention

        alignment = translator.alignment(lines[0], found[0][0].text)
        cross_attention(alignment.weights, alignment.source, alignment.target, attention)


@app.command
def generate(
    run_folder: RunFolder,
    prompt: flag(Positional[str], "PROMPT"),
    max_new_tokens: Int = None,
    temperature: Float = None,
    top_k: Int = None,
    top_p: Float = None,
    seed: Int = None,
    beam_size: Int = None,
    dtype: Text = None,
):
    """Continue a text.

    Args:
        prompt: beginning of the text; may be empty
        max_new_tokens: maximum number of new tokens (64, or as many as fit)
        temperature: below 1 favors likely tokens (1)
        top_k: draw from the k most likely tokens
        top_p: draw from the likeliest tokens with this total probability
        seed: seed of the draws (0)
        beam_size: beam search instead; 1 is greedy search
        dtype: of the model, such as bfloat16 or int8 (the run's)
    """
    sampling = _given(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    if sampling and beam_size is not None:
        flags = ", ".join("--" + name.replace("_", "-") for name in sampling)
        raise UserError(f"--beam-size searches and does not sample. Remove {flags}.")
    generator = _load(run_folder, "generate", dtype=dtype)
    generator.jit_compile = False  # one text is continued sooner than XLA compiles a search
    if beam_size is None:
        [[drawn]] = generator.sample([prompt], max_new_tokens=max_new_tokens, **sampling)
        print(drawn.text)
    else:
        print(generator([prompt], beam_size=beam_size, max_new_tokens=max_new_tokens)[0])


@app.command
def info(run_folder: RunFolder, src_lang: Source = None, tgt_lang: Target = None):
    """Print the contents of a run directory as JSON."""
    loaded = _load(run_folder, src_lang=src_lang, tgt_lang=tgt_lang)
    model = {"type": type(loaded.model).__name__, "parameters": loaded.model.count_params()}
    report = {"model": model, **loaded.description()}
    for path in (pathlib.Path(run_folder, name) for name in ("metrics.json", "config.json")):
        if path.is_file():
            report[path.stem] = json.loads(path.read_text())
    print(json.dumps(report, indent=2))


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
    dynamic_size: bool = False,
    overwrite: bool = False,
    src_lang: Source = None,
    tgt_lang: Target = None,
):
    """Export a trained model for serving.

    Args:
        folder: new folder, such as serving/vit/1: name and version
        format: only saved_model takes encoded images and strings
        dtype: such as bfloat16 or int8 (the run's); other formats: float32, float16, int8 (float32)
        top_k: classes that a classifier returns (5)
        n_best: translations or continuations per text (1)
        beam_size: of beam search (the run's; of a generator: N_BEST)
        length_penalty: of beam search (the run's; of a generator: 0)
        max_new_tokens: length limit of a generator (64, or as many as fit)
        dynamic_size: pixels of any height and width that the patch size divides, not resized
        overwrite: replace an export in FOLDER
    """
    options = locals()  # the flags by their names
    model_options = {name: options.pop(name) for name in ("run_folder", "src_lang", "tgt_lang")}
    if format == "saved_model":
        model_options["dtype"] = options.pop("dtype")
    model = _load(**model_options)
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
    host: Text = None,
    port: Int = None,
    grpc_port: Int = None,
    poll_seconds: Float = None,
    access_log: bool = False,
    allowed_hosts: flag(UseAppendAction[tuple[str, ...]], "NAME", name="allowed-host") = (),
    allowed_origins: flag(UseAppendAction[tuple[str, ...]], "SITE", name="allowed-origin") = (),
    max_batch: Int = None,
    max_rows: Int = None,
    batch_wait_ms: Float = None,
    max_queue: Int = None,
    max_body: Int = None,
    request_timeout: Float = None,
    shutdown_grace: Float = None,
):
    """Serve exported models: TensorFlow Serving's REST API and a web page.

    Args:
        folders: .../NAME/1; .../NAME, which serves its highest version; or NAME=path
        host: 0.0.0.0 listens on all networks (127.0.0.1)
        port: 0 selects a free port (8501)
        grpc_port: port for gRPC requests (none)
        poll_seconds: seconds between checks for other versions on disk; 0 for no checks (2)
        access_log: log every request
        allowed_hosts: host name in requests (localhost, or any with another --host); repeatable
        allowed_origins: web site that may send requests, such as https://example.com; repeatable
        max_batch: maximum number of rows per model call (32)
        max_rows: maximum number of rows per request, else 400 (1024)
        batch_wait_ms: milliseconds a request waits for others to join its batch (2)
        max_queue: maximum number of queued requests per model, else 503 (256)
        max_body: maximum bytes of a request, else 413 (33554432)
        request_timeout: maximum seconds per request, else 504 (60)
        shutdown_grace: seconds to finish running requests on shutdown (30)
    """
    options = _given(**locals())  # the flags by their names
    if not folders:
        raise UserError("Pass the folder of an export, such as serving/vit.")
    import_tensorflow_quietly()
    from zoo.server import serve

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


def _load(run_folder, verb=None, **options):
    """The model of a run, loaded with the `options` given; an error if it cannot do `verb`."""
    import_tensorflow_quietly()
    from zoo.loading import load

    loaded = load(run_folder, **_given(**options))
    if verb not in (loaded.verb, None):
        advice = f"use `python -m zoo {loaded.verb}`."
        raise UserError(f"The {type(loaded).__name__} in {run_folder} cannot {verb}: {advice}")
    return loaded


def _given(**options):
    return {name: value for name, value in options.items() if value is not None}


def _texts(texts, path):
    """The texts of the command line, or else the lines of a file or of standard input."""
    if texts and path:
        raise UserError("Pass texts or --file, not both.")
    if texts:
        return list(texts)
    try:
        data = sys.stdin.buffer.read() if path is None else pathlib.Path(path).read_bytes()
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise UserError(f"The file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path or 'Standard input'} is not UTF-8: {error}.") from None
    return text.removesuffix("\n").split("\n") if text else []


def _image_files(paths):
    """Yields the given files, and the images in the given folders."""
    from zoo.data.image_folder import SUFFIXES

    for path in map(pathlib.Path, paths):
        images = sorted(p for p in path.rglob("*") if p.suffix.lower() in SUFFIXES)
        if path.is_dir() and not images:
            raise UserError(f"The folder {path} has no images ({', '.join(sorted(SUFFIXES))}).")
        yield from images if path.is_dir() else [path]
