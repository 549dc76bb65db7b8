"""Exports to CTranslate2 translate like the zoo, in float32."""

import fnmatch
import importlib
import json
import re
import subprocess
import sys

import numpy as np
import pytest
import sentencepiece

import zoo
from tests.deploy.small_models import LINES, small_translator
from zoo.deploy import ctranslate2_format
from zoo.errors import ExportError
from zoo.tasks.translator import Translator
from zoo.text.sentencepiece import SentencePieceTokenizer, train_tokenizer

pytestmark = pytest.mark.ci

TEXTS = ["dog", "", *LINES, "The cat. " * 4, "ñandú\u0301 你好"]
SETTINGS = [
    {},
    {"norm": "post", "shared": "all"},
    {"positions": "learned", "activation": "gelu", "normalize_embeddings": True},
    {"positions": zoo.layers.SinusoidalPositions("halves", offset=2), "activation": "gelu_tanh"},
    {"shared": "target", "logits_bias": True, "qkv_bias": False, "activation": "quick_gelu"},
    {"scale_embeddings": False, "epsilon": 1e-2, "activation": "silu"},
    {"num_decoder_layers": 1, "decoder_num_heads": 4, "decoder_ff_dim": 20},
]


def program(folder):
    """The module translate.py of an export folder; recipes have others of its names."""
    names = ("translate", "layout")
    others = {name: sys.modules.pop(name) for name in names if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module("translate")
    finally:
        sys.path.remove(str(folder))
        for name in names:
            sys.modules.pop(name, None)
        sys.modules.update(others)


ALONE = """
import runpy, sys
for name in ["zoo", "tensorflow", "keras", "onnx", "onnxruntime"]:
    sys.modules[name] = None
sys.path.insert(0, {folder!r})
runpy.run_path({folder!r} + "/translate.py", run_name="__main__")
"""


def printed(folder, *arguments):
    """What translate.py prints where most packages are missing."""
    command = [sys.executable, "-c", ALONE.format(folder=str(folder)), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True)
    return done.stdout


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    translator, folder = small_translator(), tmp_path_factory.mktemp("ctranslate2") / "1"
    zoo.export(translator, folder, format="ctranslate2", n_best=2)
    return translator, folder, program(folder).Translator(folder)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_the_model_computes_the_same(settings, tmp_path):
    """Log-probabilities of random tokens, see `zoo.deploy.checks`; float32 sums of this size."""
    translator = small_translator(**{"num_layers": 1, **settings})
    checked = ctranslate2_format.write(translator, tmp_path)["checked"]
    assert checked["compared"] == "largest_difference" and checked["largest_difference"] < 1e-4


@pytest.mark.parametrize(
    "dtype, largest, differing", [("float16", 0.75, 0.01), ("int8", 0.65, 0.1)]
)
def test_low_precision(dtype, largest, differing, tmp_path):
    """Smaller by far, and a little different; positions and biases stay in float32."""
    small = small_translator(embed_dim=64, ff_dim=256, num_layers=1)
    checked = ctranslate2_format.write(small, tmp_path, dtype)["checked"]
    assert checked["compared"] == "mean_difference"
    assert 1e-6 < checked["mean_difference"] < differing
    size = (tmp_path / "model.bin").stat().st_size
    assert size < largest * 4 * small.model.count_params()


@pytest.mark.parametrize("dtype", ["float32", "int8"])  # the least and the most tolerant
def test_a_wrong_model_is_noticed(dtype, tmp_path, monkeypatch):
    small, write_model = small_translator(num_layers=1), ctranslate2_format.write_model

    def write_wrong_model(model, *arguments):
        block = model.decoder_blocks[0].cross_attention
        block.output_projection.kernel.assign(-block.output_projection.kernel)
        write_model(model, *arguments)
        block.output_projection.kernel.assign(-block.output_projection.kernel)

    monkeypatch.setattr(ctranslate2_format, "write_model", write_wrong_model)
    with pytest.raises(ExportError, match="the outputs of the export differ"):
        ctranslate2_format.write(small, tmp_path, dtype)


def test_translations_are_those_of_the_zoo(exported, beam_size=3):
    """Without a length penalty, which CTranslate2 defines differently.

    Beam searches may differ, but those of these texts do not.
    """
    translator, _, driver = exported
    options = {"beam_size": beam_size, "length_penalty": 0.0, "max_length": 30}
    found = driver.n_best(TEXTS, n_best=beam_size, **options)
    expected = translator.n_best(TEXTS, n=beam_size, **options)
    for mine, other in zip(found, expected, strict=True):
        assert [text for text, _ in mine] == [text for text, _ in other]
        # The share of padding and start is that of a few of 300 tokens, at each of 30 steps.
        np.testing.assert_allclose([s for _, s in mine], [s for _, s in other], atol=1.0)


def test_translations_begin_with_prefixes(exported):
    translator, _, driver = exported
    prefixes = ["el gato", ""]
    texts = TEXTS[:2]
    options = {"beam_size": 1, "length_penalty": 0.0, "max_length": 30}
    [[(first, _)], [(second, _)]] = driver.n_best(texts, 1, target_prefix=prefixes, **options)
    assert first.startswith("el gato")
    assert [second] == translator(texts[1:], sentences=False, beam_size=1, max_length=30)
    # In a text of several sentences, the first one begins so.
    texts = ["The cat. The dog.", "12.", "The mat."]
    prefixes = ["el gato", "el", ""]
    found = driver(texts, sentences=True, target_prefix=prefixes, **options)
    with_prefix = driver(["The cat."], sentences=True, target_prefix=["el gato"], **options)
    alone = driver(["The dog.", "The mat."], sentences=True, **options)
    assert found == [f"{with_prefix[0]} {alone[0]}", "12.", alone[1]]


def test_outputs_have_the_length_of_the_translator(tmp_path):
    translator = small_translator()
    translator.max_length = 5
    zoo.export(translator, tmp_path / "1", format="ctranslate2", n_best=1)
    driver = program(tmp_path / "1").Translator(tmp_path / "1")
    assert driver.search["max_output_length"] == 5
    for [(text, _)] in driver.n_best(TEXTS, 1):
        assert len(translator.target_tokenizer.encode([text])[0]) <= 5


def test_numbers_are_kept(exported):
    translator, _, driver = exported
    texts = ["859660709412", "10:30", "", "the cat"]
    expected = translator.n_best(texts, 2)
    for mine, other in zip(driver.n_best(texts), expected, strict=True):
        assert len(mine) == len(other)
        assert len(mine) == 2 or mine == other


def test_other_tokens(tmp_path):
    """Ids of another vocabulary, a language at the beginning of texts, a forced first token."""
    translator = small_translator(num_layers=1)
    tokenizer = translator.source_tokenizer
    swapped = {piece: id for id, piece in tokenizer.tokens.items()}
    swapped["▁the"], swapped["▁cat"] = swapped["▁cat"], swapped["▁the"]
    control = ("<pad>", "<s>", "</s>")
    other = SentencePieceTokenizer(
        tokenizer.model, swapped, tokenizer.unknown, control, tokenizer.vocab_size, prefix=(270,)
    )
    special = translator.special_tokens._replace(prefix=(280,))
    translator = Translator(translator.model, other, other, special_tokens=special)
    folder = zoo.export(translator, tmp_path / "1", format="ctranslate2", length_penalty=0.0)
    driver = program(folder).Translator(folder)
    options = {"beam_size": 1, "max_length": 20}
    assert driver(["the cat", "😀"], **options) == translator(["the cat", "😀"], **options)
    first, label = other.tokens[270], other.tokens[280]
    assert f"before, first = ['{first}'], ['{label}']" in (folder / "README.md").read_text()


def test_tokens_become_the_same_texts(exported, tmp_path):
    """Without control tokens; spaces at the ends are removed by some normalizations only."""
    translator, _, shared = exported
    driver = object.__new__(type(shared))
    own, identity = translator.target_tokenizer, train_tokenizer(LINES, "bpe", 330, "identity")
    ids, control = (
        {piece: id for id, piece in own.tokens.items()},
        ("<pad>", "<s>", "</s>", "<unk>"),
    )
    published = SentencePieceTokenizer(own.model, ids, own.unknown, control, own.vocab_size)
    for tokenizer in (own, identity, published):
        model = small_translator(num_layers=1).model
        written = ctranslate2_format.write(Translator(model, tokenizer, tokenizer), tmp_path)
        driver.search, path = written["search"], str(tmp_path / "target.spm")
        driver.target = sentencepiece.SentencePieceProcessor(model_file=path)
        row = [0, *tokenizer.encode(["  the cat "])[0], 1, 3]
        tokens = [tokenizer.tokens[id] for id in row]
        assert [driver._text(tokens), driver._text(tokens[:-1])] == tokenizer.decode(
            [row, row[:-1]]
        )


def test_the_end_of_a_long_text_is_translated(tmp_path):
    """CTranslate2 cuts texts of more than 1,024 tokens, unless told otherwise."""
    long = small_translator(num_layers=1, max_length=1100)
    folder = zoo.export(long, tmp_path / "1", format="ctranslate2")
    driver = program(folder).Translator(folder)
    options = {"n_best": 1, "beam_size": 1, "length_penalty": 0.0, "max_length": 2}
    one, other = driver.n_best(["é" * 525, "é" * 524 + "ñ"], **options)
    assert abs(one[0][1] - other[0][1]) > 1e-6
    with pytest.raises(ValueError, match="A text is too long: it has .* tokens"):
        driver(["é" * 600])


def test_the_layout_is_kept_as_by_the_zoo(exported):
    """Also by the program, where most packages are not."""
    translator, folder, driver = exported
    options = {"beam_size": 1, "max_length": 30}
    texts = ["\tThe cat sat. The dog!\r\n\n---\n mat, on.\u3000", "", "on the mat"]
    for sentences in (True, False):
        expected = translator(texts, sentences=sentences, **options)
        assert driver(texts, n_best=1, sentences=sentences, **options) == expected
    arguments = ["--beam-size", "2", "--length-penalty", "0"]
    [found, whole] = (
        printed(folder, "the mat. On it", *arguments, *flags) for flags in ([], ["--no-sentences"])
    )
    [expected] = driver(["the mat. On it"], beam_size=2, length_penalty=0.0)
    assert found != whole and found == expected + "\n"


def test_files(exported):
    _, folder, _ = exported
    description = json.loads((folder / "export.json").read_text())
    assert description["needs"] == ["ctranslate2", "sentencepiece"]
    text = (folder / "README.md").read_text()
    listed = re.findall("`(.*?)`", text.split("\n## ")[0])
    files = {file.name for file in folder.iterdir()} - {"README.md", "__pycache__"}  # of programs
    assert files == {name for pattern in listed for name in fnmatch.filter(files, pattern)}
    assert "2 translations per text" in text and "$" not in text


@pytest.mark.parametrize(
    "settings, reason",
    [
        ({"positions": "rotary"}, "positions='rotary'"),
        ({"decoder": "ssru"}, "decoder='ssru'"),
        ({"positions": "relative"}, "positions='relative'"),
        ({"activation": "elu"}, "activation='elu'"),
        ({"activation": np.tanh}, "activation="),
        ({"key_dim": 4}, "key_dim=4"),
        ({"norm_type": "rms", "norm": "post"}, "norm_type='rms'"),
    ],
)
def test_models_that_it_does_not_have(settings, reason, tmp_path):
    with pytest.raises(ExportError, match=f"not support translation models with {reason}"):
        ctranslate2_format.write(small_translator(num_layers=1, **settings), tmp_path)
    assert not [*tmp_path.iterdir()]
