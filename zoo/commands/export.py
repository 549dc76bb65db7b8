"""``python -m zoo export``."""

import json
import sys
from typing import Literal

from tyro.conf import Positional

from zoo.commands.shared import (
    Classes,
    Float,
    Int,
    RunFolder,
    SourceLanguage,
    Str,
    TargetLanguage,
    WholeTexts,
    flag,
    load,
)
from zoo.files import read_json


def export(
    run_folder: RunFolder,
    folder: flag(Positional[str], "FOLDER"),
    format: Literal["saved_model", "onnx", "litert", "ctranslate2"] = "saved_model",
    dtype: Str = None,
    top_k: Int = None,
    n_best: Int = None,
    beam_size: Int = None,
    length_penalty: Float = None,
    max_new_tokens: Int = None,
    sentences: WholeTexts = True,
    dynamic_size: bool = False,
    overwrite: bool = False,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    classes: Classes = (),
):
    """Export a trained model for serving, or for other engines.

    For example: python -m zoo export runs/vit_cifar10 serving/vit/1

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
    # A SavedModel has the dtypes of the model; other formats convert the weights.
    model_dtype = dtype if format == "saved_model" else None
    export_dtype = None if format == "saved_model" else dtype
    model = load(
        run_folder, dtype=model_dtype, src_lang=src_lang, tgt_lang=tgt_lang, classes=classes
    )
    from zoo.deploy.export import DESCRIPTION_FILE, export

    print("Exporting the model and checking the export ...", file=sys.stderr)
    folder = export(
        model,
        folder,
        format=format,
        dtype=export_dtype,
        top_k=top_k,
        n_best=n_best,
        beam_size=beam_size,
        length_penalty=length_penalty,
        max_new_tokens=max_new_tokens,
        sentences=sentences,
        dynamic_size=dynamic_size,
        overwrite=overwrite,
    )
    about = read_json(folder / DESCRIPTION_FILE)
    print(f"{about['kind']}, {about['format']}, {about['bytes'] / 1e6:.1f} MB")
    print(f"compared with the original model: {json.dumps(about['checked'])}")
    print(f"usage: {folder / 'README.md'}")
    print(folder)
