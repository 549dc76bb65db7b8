"""SavedModels of each kind of task, each made once, beside what they were exported from."""

import pathlib
from collections.abc import Callable
from typing import NamedTuple

import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  SavedModels of texts have its operations

import tests.conftest
import zoo
from tests.conftest import export_by_command_line
from tests.deploy.small_models import small_generator, small_text_classifier

SEARCH = {"beam_size": 3, "length_penalty": 0.6, "max_new_tokens": 6}  # of the generator's export


class Exported(NamedTuple):
    """What was exported, where, and its answers to texts: lists of (text or label, number)."""

    original: object
    folder: pathlib.Path
    answers: Callable
    longest: int  # number of tokens of a text, control ids included
    controls: int  # number of control ids of a text
    description: dict  # of its own in export.json


def caller(folder):
    """Function (signature, **inputs) -> dict of arrays, of a SavedModel, with its `signatures`."""
    loaded = tf.saved_model.load(str(folder))

    def call(signature="serving_default", **inputs):
        function = loaded.signatures[signature]
        specs = function.structured_input_signature[1]
        tensors = {name: tf.constant(value, specs[name].dtype) for name, value in inputs.items()}
        return {name: tensor.numpy() for name, tensor in function(**tensors).items()}

    call.signatures = loaded.signatures
    return call


@pytest.fixture(scope="session")
def classifier(digits_run):
    return zoo.load(digits_run[1])


@pytest.fixture(scope="session")
def translations(phrasebook_translator, phrasebook_export):
    translator = phrasebook_translator
    longest = translator.model.max_length
    answers = lambda texts: translator.n_best(texts, n=2, sentences=True)  # noqa: E731
    searched = {"n_best": 2, **tests.conftest.SEARCH, "max_length": longest, "sentences": True}
    described = {"kind": "translator", "search": searched}
    return Exported(translator, phrasebook_export, answers, longest, 1, described)


@pytest.fixture(scope="session")
def text_classes(made_once):
    classifier = small_text_classifier(num_layers=1)
    folder = _by_command_line(made_once, "texts", classifier, "--top-k 2")
    answers = lambda texts: classifier(texts, top_k=2)  # noqa: E731
    described = {"kind": "text_classifier", "top_k": 2, "max_length": 40}
    return Exported(classifier, folder, answers, 40, 2, described)


@pytest.fixture(scope="session")
def generations(made_once):
    generator = small_generator()
    flags = "--n-best 2 --beam-size 3 --length-penalty 0.6 --max-new-tokens 6"
    folder = _by_command_line(made_once, "lines", generator, flags)
    answers = lambda texts: generator.n_best(texts, n=2, **SEARCH)  # noqa: E731
    searched = {"n_best": 2, **SEARCH, "max_prompt_length": 35, "max_length": 40}
    described = {"kind": "generator", "search": searched}
    return Exported(generator, folder, answers, 35, 1, described)


def _by_command_line(made_once, name, original, flags):
    def make(folder):
        original.save(folder / "run")
        return export_by_command_line(folder / "run", folder / name / "1", flags)

    return made_once(f"{name}_export", make)[0]
