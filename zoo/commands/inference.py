"""Commands that use a trained model."""

import json
import pathlib
import sys
from typing import Literal

from tyro.conf import Positional

from zoo.commands.shared import (
    File,
    Float,
    Int,
    Items,
    RunFolder,
    Source,
    Target,
    Text,
    app,
    flag,
    given,
    load_task,
)
from zoo.errors import UserError

FEW_TEXTS = 8  # are translated sooner without XLA, which compiles a search for seconds


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
    if top_k < 1:
        raise UserError(f"--top-k must be at least 1. Received: {top_k}.")
    texts = _texts(items, file) if items or file else None
    classifier = load_task(run_folder, "classify", dtype=dtype, engine=engine)
    from zoo.tasks.classifier import ImageClassifier

    if isinstance(classifier, ImageClassifier):
        if file or not items:
            raise UserError(f"{run_folder} classifies images. Pass image files or folders.")
        return _classify_images(classifier, items, top_k)
    if texts is None:  # standard input is read for a classifier of texts only
        texts = _texts()
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
    languages = given(src_lang=src_lang, tgt_lang=tgt_lang)
    translator = load_task(run_folder, "translate", dtype=dtype, engine=engine, **languages)
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
    sampling = given(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    if sampling and beam_size is not None:
        flags = ", ".join("--" + name.replace("_", "-") for name in sampling)
        raise UserError(f"--beam-size searches and does not sample. Remove {flags}.")
    generator = load_task(run_folder, "generate", dtype=dtype)
    generator.jit_compile = False  # one text is continued sooner than XLA compiles a search
    if beam_size is None:
        [[drawn]] = generator.sample([prompt], max_new_tokens=max_new_tokens, **sampling)
        print(drawn.text)
    else:
        print(generator([prompt], beam_size=beam_size, max_new_tokens=max_new_tokens)[0])


@app.command
def info(run_folder: RunFolder, src_lang: Source = None, tgt_lang: Target = None):
    """Print the contents of a run directory as JSON."""
    loaded = load_task(run_folder, **given(src_lang=src_lang, tgt_lang=tgt_lang))
    model = {"type": type(loaded.model).__name__, "parameters": loaded.model.count_params()}
    report = {"model": model, **loaded.description()}
    for path in (pathlib.Path(run_folder, name) for name in ("metrics.json", "config.json")):
        if path.is_file():
            report[path.stem] = json.loads(path.read_text())
    print(json.dumps(report, indent=2))


def _texts(texts=(), path=None):
    """The texts of the command line, or else the lines of a file or of standard input."""
    if texts and path:
        raise UserError("Pass texts or --file, not both.")
    if texts:
        return list(texts)
    try:
        data = sys.stdin.buffer.read() if path in (None, "-") else pathlib.Path(path).read_bytes()
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
