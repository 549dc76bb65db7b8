"""Every flag of the commands that use a model changes what they print or write, or is refused."""

import inspect

import numpy as np
import pytest
from PIL import Image

from tests.deploy.small_models import (
    small_classifier,
    small_generator,
    small_text_classifier,
    small_translator,
)
from zoo.__main__ import main
from zoo.commands import classify, generate, translate
from zoo.commands.shared import Search

pytestmark = pytest.mark.ci

TEXT = "The cat sat. The dog sat on the mat."
LONG = "the cat " * 100
# Arguments with an effect of each flag beside `TEXT`; others replace the text.
SEARCH = {
    "no_repeat_ngram_size": ["--no-repeat-ngram-size", "1"],
    "repetition_penalty": ["--repetition-penalty", "3"],
    "min_length": ["--min-length", "9999"],  # more than the model can
    "suppress_tokens": [f"--suppress-token={token}" for token in range(5, 300)],
}
ENGINES = ["--engine", "nothing"]  # those there are: tests/test_engines.py
TRANSLATE = {
    **SEARCH,
    "file": ["--file", "{text}"],
    "beam_size": ["--beam-size", "1"],
    "n_best": ["--n-best", "2"],
    "too_long": ["--too-long", "error"],
    "sentences": ["--no-sentences"],
    "attention": ["--attention", "{folder}/attention.png"],
    "engine": ENGINES,
    "dtype": ["--dtype", "float64"],
    "src_lang": ["--src-lang", "en"],
    "tgt_lang": ["--tgt-lang", "es"],
    "shortlist": ["--shortlist"],
    "max_length": ["--max-length", "9"],
    "target_prefix": ["--target-prefix", "a"],
}
GENERATE = {
    **SEARCH,
    "max_new_tokens": ["--max-new-tokens", "3"],
    "temperature": ["--temperature", "0.1"],
    "top_k": ["--top-k", "1"],
    "top_p": ["--top-p", "0.1"],
    "seed": ["--seed", "1"],
    "beam_size": ["--beam-size", "1"],
    "dtype": ["--dtype", "float64"],
}
CLASSIFY = {
    "file": ["--file", "{text}"],
    "top_k": ["--top-k", "2"],
    "threshold": ["--threshold", "0.01"],
    "too_long": ["--too-long", "error"],
    "engine": ENGINES,
    "dtype": ["--dtype", "float64"],
    "classes": ["--classes", "a cat"],  # those of CLIP: tests/checkpoints/test_clip.py
}
WITH_OTHERS = {"too_long": LONG, "file": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    small_translator(beam_size=3).save(folder / "translator")
    small_generator(max_length=64).save(folder / "generator")
    small_classifier().save(folder / "classifier")
    small_text_classifier().save(folder / "text_classifier")
    (folder / "text.txt").write_text("the dog sat\n")
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "image.png")
    return folder


@pytest.mark.parametrize(
    "command, model, flags",
    [
        pytest.param(translate.translate, "translator", TRANSLATE, marks=pytest.mark.slow),
        pytest.param(generate.generate, "generator", GENERATE, marks=pytest.mark.slow),
        pytest.param(classify.classify, "text_classifier", CLASSIFY, marks=pytest.mark.slow),
        (classify.classify, "classifier", CLASSIFY),
    ],
)
def test_every_flag_has_an_effect(command, model, flags, folder, capsys):
    arguments = {*inspect.signature(command).parameters, *Search._fields}
    # The tokenizer has tokens for bytes: it knows all signs, so `keep_signs` keeps none.
    others = {"run_folder", "texts", "items", "prompt", "search", "keep_signs"}
    assert arguments - others <= {*flags, *Search._fields}

    def run(text, *given):
        given = [x.format(folder=folder, text=folder / "text.txt") for x in given]
        item = [] if text is None else [text]
        status = main([command.__name__, str(folder / model), *item, *given])
        found = capsys.readouterr()
        return status, found.out, found.err, sorted(path.name for path in folder.iterdir())

    item = str(folder / "image.png") if model == "classifier" else TEXT
    for name, given in flags.items():
        text = item if model == "classifier" else WITH_OTHERS.get(name, item)
        without = run(text if text is not None else item)
        assert without[0] == 0
        assert run(text, *given) != without, name
