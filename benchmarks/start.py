"""Measures how long it takes to import the zoo, to train the first step and to translate.

    python benchmarks/start.py

Each run is a new process. The first translation is that of an untrained model in a run directory,
by the command line, which does not compile the search of a single text.
"""

import pathlib
import subprocess
import sys

import turns

ROOT = pathlib.Path(__file__).parents[1]
BUILD = "import zoo; zoo.vit('Ti/4', input_shape=(32, 32, 3), num_classes=10)"
IMPORTS = {
    "import zoo": "import zoo",
    "import keras": "import keras",
    "import zoo, build a model": BUILD,
}
RECIPES = {"vit_cifar10.py": "digits", "translate.py": "phrasebook"}
# Ends the process after the first step of a recipe.
FIRST_STEP = """
import os, runpy, sys
from zoo.startup import import_tensorflow_quietly
import_tensorflow_quietly()
import keras

class End(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        os._exit(0)

fit = keras.Model.fit
def fit_once(*args, callbacks=(), **settings):
    return fit(*args, callbacks=[*callbacks, End()], **settings)
keras.Model.fit = fit_once
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def cases():
    return [
        turns.Case("import", {}, tuple(IMPORTS)),
        turns.Case("first step of a recipe", {}, tuple(RECIPES)),
        turns.Case("first translation", {}, ("translate",)),
    ]


def prepare(folder, all_settings):
    """Writes an untrained translator."""
    import zoo
    from zoo.data.phrasebook import phrasebook_pairs
    from zoo.tasks.translator import Translator
    from zoo.text.sentencepiece import train_tokenizer

    texts = [text for pair in phrasebook_pairs(1000) for text in pair]
    tokenizer = train_tokenizer(texts, "bpe", 500)
    model = zoo.transformer(
        source_vocab_size=tokenizer.vocab_size,
        target_vocab_size=tokenizer.vocab_size,
        embed_dim=128,
        num_heads=4,
        num_layers=4,
        ff_dim=256,
        shared="all",
    )
    Translator(model, tokenizer, tokenizer).save(pathlib.Path(folder) / "run")


def process(*command, folder):
    """A run that starts a process of Python and waits for its end."""
    command = [sys.executable, *map(str, command)]
    return lambda: [subprocess.run(command, cwd=folder, check=True).returncode]


def importing(code):
    return lambda folder: process("-c", code, folder=folder)


def first_step(recipe, dataset):
    path = ROOT / "recipes" / recipe
    options = ("--dataset", dataset, "--overwrite", "--out", "first_step")
    return lambda folder: process("-c", FIRST_STEP, path, *options, folder=folder)


def first_translation(folder):
    return process("-m", "zoo", "translate", "run", "hello", folder=folder)


CONTENDERS = {
    **{name: importing(code) for name, code in IMPORTS.items()},
    **{recipe: first_step(recipe, dataset) for recipe, dataset in RECIPES.items()},
    "translate": first_translation,
}

if __name__ == "__main__":
    turns.run(__file__, cases(), turns.parser(__doc__).parse_args())
