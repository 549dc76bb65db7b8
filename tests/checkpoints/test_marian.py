"""Models in the formats of the program Marian, and its equations in NumPy; damaged files."""

import json
import re
import tempfile
import zipfile

import numpy as np
import pytest
import sentencepiece
import yaml

import zoo
from tests import contracts
from tests.checkpoints import marian_models as marian
from tests.checkpoints.marian_models import ATTENTION, PRE, SETTINGS, container
from tests.checkpoints.translation_folders import spm
from zoo.checkpoints import CheckpointError, marian_file, marian_folder
from zoo.checkpoints.formats import registry
from zoo.errors import TaskError

LINES = ["the cat sees a dog", "a dog sees the cat", "two birds and a fish", "\U0001f600 caf\u00e9"]
CONTROL = {"bos_id": -1, "eos_id": 0, "unk_id": 1}
MODELS = {
    "ssru": {},
    "attention": {**ATTENTION, "transformer-ffn-activation": "swish"},
    "pre-norm": {**PRE, "transformer-ffn-activation": "gelu"},
    "two vocabularies": {"tied-embeddings-all": "false", "tied-embeddings": "true"},
    "no tied matrix": {**ATTENTION, "tied-embeddings-all": "false"},
    "tied layers": {"dec-depth": 3, "transformer-tied-layers": [1, 1, 2]},
    "trained positions": {"transformer-train-position-embeddings": "true"},
}


def vocabularies(settings):
    source = spm(LINES, size=40, byte_fallback=False, **CONTROL)
    if settings.get("tied-embeddings-all", "true") == "true":
        return [source, source]
    both = [source, spm(LINES[::-1], "bpe", size=330, byte_fallback=True, **CONTROL)]
    return both if "tied-embeddings" in settings else both[::-1]


def write(folder, kind="float32", **changed):
    """Writes a folder like those of Firefox; returns its tensors and vocabulary sizes."""
    models = vocabularies(changed)
    sizes = [len(sentencepiece.SentencePieceProcessor(model_proto=model)) for model in models]
    tensors = marian.weights(sizes, **changed)
    folder.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS | changed | {"dim-vocabs": sizes}
    if kind == "npz":
        marian.write_npz(folder / "model.npz", tensors, settings)
    else:  # the name does not tell the format
        (folder / "model.npz").write_bytes(container(tensors, settings, kind))
        tensors = marian.rounded(tensors, kind)
    for name, model in zip(("srcvocab.spm", "trgvocab.spm"), models):
        (folder / name).write_bytes(model)
    (folder / "config.yml").write_text(
        "\ufeffmodels:\n  - ../elsewhere/model.npz\nrelative-paths: true\n"
        "vocabs:\n  - srcvocab.spm\n  - trgvocab.spm\nbeam-size: 3\nnormalize: 0.7\n"
        "n-best: true\nword-penalty: 0.0\n",
        encoding="utf-8",
    )
    return tensors, sizes


@pytest.mark.parametrize("kind", ["npz", "float32", "float16", "intgemm8"])
def test_each_kind_of_file(kind, tmp_path, capsys):
    tensors, sizes = write(tmp_path / "m", kind)
    check_logits(zoo.load(tmp_path / "m"), tensors, sizes)
    line = "model.npz: ignored settings of its configuration: n-best=true.\n"
    assert capsys.readouterr().out == line


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ssru"])
def test_each_kind_of_model(name, tmp_path):
    tensors, sizes = write(tmp_path / "m", "npz", **MODELS[name])
    check_logits(zoo.load(tmp_path / "m"), tensors, sizes, **MODELS[name])


def check_logits(translator, tensors, sizes, **changed):
    """Tolerance: float32 against float64, logits of a few units."""
    random = np.random.default_rng(1)
    model = translator.model
    pad = min(sizes)
    source, target = (np.array([*random.integers(2, size, 7), size - 1, 0]) for size in sizes)
    expected = marian.logits(tensors, source, target, **changed)
    before = np.array([pad, *(target + (target >= pad))])
    inputs = {"source": (source + (source >= pad))[None], "target": before[None]}
    found = np.asarray(model(inputs))[0]
    np.testing.assert_allclose(np.delete(found, pad, axis=-1), expected, atol=1e-4)
    assert ((found[:, pad] > -1100) & (found[:, pad] < -900)).all()  # for losses, and float16
    assert translator.beam_size == 3 and translator.length_penalty == pytest.approx(0.7)


def test_folders_files_and_archives_translate_alike(tmp_path):
    folder = tmp_path / "m"
    write(folder, "npz")
    translator = zoo.load(folder)
    translations = translator(LINES)
    assert all(isinstance(text, str) for text in translations) and len(set(translations)) > 1

    def check_same(path):
        loaded = zoo.load(path)
        assert loaded.target_tokenizer == translator.target_tokenizer
        for found, expected in zip(loaded.model.weights, translator.model.weights, strict=True):
            np.testing.assert_array_equal(found, expected)

    check_same(folder / "model.npz")
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    write_zip(
        tmp_path / "opus.zip", {**files, "../outside.txt": b"", "a/model.npz": b"", "x.sh": b""}
    )
    check_same(tmp_path / "opus.zip")
    assert not (tmp_path / "outside.txt").exists()
    folder.rename(tmp_path / "folder.zip")
    check_same(tmp_path / "folder.zip")
    translator.save(tmp_path / "run")
    assert sorted(file.name for file in (tmp_path / "run").glob("*.spm"))


def write_zip(path, files):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def test_archives_that_cannot_be_read(tmp_path):
    """The error names the archive, never the folder in which it was unpacked."""
    write(tmp_path / "m", "npz")
    files = {file.name: file.read_bytes() for file in (tmp_path / "m").iterdir()}
    path = tmp_path / "opus.zip"
    write_zip(path, files)
    flipped = bytearray(path.read_bytes())
    flipped[100] ^= 255  # within a compressed file
    one_less = {name: data for name, data in files.items() if name != "trgvocab.spm"}
    for content, message in (
        (bytes(flipped), "opus.zip is damaged, or not a .zip file"),
        (b"PK", "opus.zip is damaged, or not a .zip file"),
        (one_less, "opus.zip contains no trgvocab.spm"),
        ({**files, "model.npz": b"PK"}, "opus.zip/model.npz is damaged"),
        (
            {f"folder/{name}": data for name, data in files.items()},
            "opus.zip must contain one model",
        ),
    ):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            write_zip(path, content)
        with pytest.raises(CheckpointError, match=message) as error:
            zoo.load(path)
        assert tempfile.gettempdir() not in str(error.value).replace(str(tmp_path), "")


@pytest.mark.parametrize("name", ["opus.vocab.yml", "opus.json", "opus.vocab"])
def test_vocabularies_with_other_ids_and_language_codes(name, tmp_path):
    """As in older releases of OPUS-MT, ids differ from those of the SentencePiece models."""
    [source, _] = vocabularies({})
    folder = tmp_path / "m"
    loaded = sentencepiece.SentencePieceProcessor(model_proto=source)
    pieces = [loaded.id_to_piece(id) for id in range(2, len(loaded))]
    # some libraries split lines at three of them
    odd = ["\u2028", "\x1c", '"', "'", ": #", "models"]
    names = ["</s>", "<unk>", *odd, *pieces[::-1], ">>es<<"]
    vocab = {piece: id for id, piece in enumerate(names)}
    folder.mkdir()
    text = json.dumps(vocab)
    if name.endswith(".yml"):
        text = yaml.safe_dump(vocab)
    elif name.endswith(".vocab"):
        text = "\n".join([*vocab, ""])
    (folder / name).write_text(text, encoding="utf-8", newline="\n")
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(source)
    settings = SETTINGS | ATTENTION
    marian.write_npz(folder / "opus.npz", marian.weights([len(vocab)] * 2, **ATTENTION), settings)
    (folder / "decoder.yml").write_text(f"models: opus.npz\nvocabs:\n  - {name}\nallow-unk: true")
    with pytest.raises(CheckpointError, match="tgt_lang.*one of es"):
        zoo.load(folder, tgt_lang="pt")
    translator = zoo.load(folder, tgt_lang="es")
    assert translator.search_options == {"suppress_tokens": ()}
    tokenizer = translator.source_tokenizer
    [ids] = tokenizer.encode(["the cat"])
    assert [ids] == tokenizer.with_prefix().encode([">>es<<the cat"])
    assert ids == [vocab[">>es<<"], *(vocab[p] for p in loaded.encode("the cat", out_type=str))]
    assert tokenizer.decode([ids[1:]]) == ["the cat"]


def test_language_codes_in_a_sentencepiece_model(tmp_path):
    write(tmp_path)
    model = spm(LINES[:3], byte_fallback=False, user_defined_symbols=[">>es<<"], size=40, **CONTROL)
    (tmp_path / "srcvocab.spm").write_bytes(model)
    tokenizer = zoo.load(tmp_path, tgt_lang="es").source_tokenizer
    whole = sentencepiece.SentencePieceProcessor(model_proto=model).encode(">>es<< the cat")
    assert tokenizer.encode(["the cat"]) == [whole]


CONFIG = "models: [{}]\nvocabs: [a.spm, b.spm]\n"


@pytest.mark.parametrize(
    "files, expected",
    [
        ("m.npz vocab.ende.spm", "vocab.ende.spm vocab.ende.spm"),
        ("m.npz a.spm", "a.spm a.spm"),
        ("m.npz srcvocab.ja.spm trgvocab.en.spm", "srcvocab.ja.spm trgvocab.en.spm"),
        ("m.npz source.spm target.spm", "source.spm target.spm"),
        ("m.npz a.vocab.yml source.spm target.spm", "a.vocab.yml a.vocab.yml"),
        ("m.npz a.src.vocab a.trg.vocab source.spm target.spm", "a.src.vocab a.trg.vocab"),
        ("m.npz vocab.en.spm vocab.ja.spm", "decoder.yml.*Found: vocab.en.spm, vocab.ja.spm"),
        ("m.npz a.fsv source.spm", "a.fsv: vocabularies of factors"),
        ("m.npz a.vocab.yml target.spm", "no source.spm, the SentencePiece model of a.vocab.yml"),
        ("m.npz", "one vocabulary of the source language.*Found: none"),
        ("m.npz n.npz", "one model.*Found: m.npz, n.npz"),
        ("a.spm", "one model.*Found: none"),
        ("m.npz n.npz a.spm b.spm decoder.yml=n.npz", "a.spm b.spm"),
        ("m.npz n.npz a.spm b.spm x.decoder.yml=n.npz decoder.yml=m.npz", "a.spm b.spm"),
        ("m.npz n.npz a.decoder.yml=n.npz b.decoder.yml=m.npz", "Found: m.npz, n.npz"),
        ("m.npz n.npz decoder.yml=m.npz,n.npz", "Found: m.npz, n.npz"),
    ],
)
def test_which_files_of_a_folder_are_read(files, expected, tmp_path):
    (tmp_path / "other.npz").mkdir()
    for file in files.split():
        name, _, models = file.partition("=")
        if name.endswith(".npz"):
            marian.write_npz(tmp_path / name, {}, SETTINGS)
        else:
            (tmp_path / name).write_text(CONFIG.format(models) if models else "models: 7")
    try:
        file, config = marian_folder.model_file(tmp_path)
        found = [vocab or model for model, vocab in marian_folder.vocab_files(file, config)]
        found = " ".join(file.name for file in found)
    except CheckpointError as error:
        found = str(error)
    assert re.search(expected, found)
    for file in tmp_path.glob("[mn].npz"):  # also of an ensemble
        assert marian_folder.model_file(file)[0] == file


def test_a_folder_with_a_damaged_file(tmp_path):
    folder = tmp_path / "m"
    archive = tmp_path / "m.zip"
    write(folder, "npz")
    whole = (folder / "model.npz").read_bytes()
    for content in (b"", whole[:4], whole[:100], whole[:-100], b"\x1f\x8b" + whole):
        (folder / "model.npz").write_bytes(content)
        with zipfile.ZipFile(archive, "w") as both:
            both.writestr("model.npz", content)
        for path in (folder, folder / "model.npz", archive):
            with pytest.raises((CheckpointError, FileNotFoundError), match=str(path)):
                zoo.load(path)
    (folder / "model.npz").unlink()
    with pytest.raises(CheckpointError, match="m contains no model.npz"):
        zoo.load(folder)
    (folder / "config.yml").unlink()
    (folder / "b.npz").write_bytes(whole[:100])
    (folder / "a.npz").write_bytes(whole)
    assert marian_folder.model_file(folder)[0].name == "a.npz"
    assert registry.is_checkpoint(folder)
    (folder / "model.keras").touch()  # of a run
    assert not registry.is_checkpoint(folder)


def test_options_and_vocabularies_that_do_not_fit(tmp_path):
    write(tmp_path, "npz")
    with pytest.raises(CheckpointError, match="src_lang='en'.*not an option of this model"):
        zoo.load(tmp_path, src_lang="en", ema=True)
    large = vocabularies({"tied-embeddings-all": "false"})[0]
    (tmp_path / "trgvocab.spm").write_bytes(large)
    with pytest.raises(CheckpointError, match="trgvocab.spm has ids up to .*, and the model"):
        zoo.load(tmp_path)
    (tmp_path / "config.yml").write_text("models: model.npz\nvocabs: srcvocab.spm\nbeam-size: x")
    with pytest.raises(CheckpointError, match="beam-size must be an integer.*'x'"):
        zoo.load(tmp_path)


def test_a_shortlist_suppresses_all_other_tokens(tmp_path):
    """For each sentence on its own, whatever the others of a batch are."""
    random = np.random.default_rng(0)
    _, (source, target) = write(tmp_path, "npz", **MODELS["two vocabularies"])
    lists = [sorted(random.choice(target, 3, replace=False)) for _ in range(source - 2)]
    (tmp_path / "lex.s2t.bin").write_bytes(marian.lexicon(lists, always=4))
    plain = zoo.load(tmp_path)
    short = zoo.load(tmp_path, shortlist=True)
    plain.jit_compile = short.jit_compile = False
    pad = plain.special_tokens.pad
    end = plain.special_tokens.end
    lists = [[id + (id >= pad) for id in tokens] for tokens in [*lists, [], []]]
    lists.insert(pad, [])  # the file has no padding token
    for text in LINES[:1]:
        [tokens] = plain.source_tokenizer.encode([text])
        [prefix] = plain.target_tokenizer.encode(["the"])
        allowed = {*range(4), *prefix, *sum((lists[id] for id in (*tokens, end)), [])}
        others = {"suppress_tokens": sorted({1, *range(target + 1)} - allowed - {end} | {1})}
        options = {"target_prefix": "the", "no_repeat_ngram_size": 2}
        [found] = short.sample([text], 3, **options)
        [expected] = plain.sample([text], 3, **options, **others)
        assert [x.text for x in found] == [x.text for x in expected]
    with pytest.raises(TaskError, match="A shortlist needs a model whose output layer"):
        short.model = contracts.remade(short.model, shared="none")
    options = {"beam_size": 1, "target_prefix": "the"}
    assert short(LINES, **options) == [short([text], **options)[0] for text in LINES]


@pytest.mark.slow
def test_a_shortlist_of_all_tokens(tmp_path):
    """Tolerance: logits of a few units, by another product."""
    _, (source, target) = write(tmp_path, "npz", **MODELS["two vocabularies"])
    plain = zoo.load(tmp_path)
    (tmp_path / "lex.s2t.bin").write_bytes(marian.lexicon([[]] * source, always=target))
    short = zoo.load(tmp_path, shortlist=True)
    plain.jit_compile = short.jit_compile = False
    for found, expected in zip(short.n_best(LINES, 3), plain.n_best(LINES, 3)):
        assert [x.text for x in found] == [x.text for x in expected]
        np.testing.assert_allclose([x.score for x in found], [x.score for x in expected], atol=1e-4)


def test_shortlists_that_cannot_be_used(tmp_path):
    _, (source, _) = write(tmp_path / "m", "npz")
    with pytest.raises(CheckpointError, match="one lexical shortlist: lex"):
        zoo.load(tmp_path / "m", shortlist=True)
    path = tmp_path / "m" / "lex.s2t.bin"
    whole = marian.lexicon([[3, 4]] * source, 2)
    for content in (b"", b"text", b"text" + whole, whole[:47], whole[:-1], whole + b"\0"):
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match="lex.s2t.bin is damaged"):
            zoo.load(tmp_path / "m", shortlist=True)
    for most, always in ((10**6, 2), (2**31, 2), (3, 2**40)):
        path.write_bytes(marian.lexicon([[most]] * source, always))
        with pytest.raises(
            CheckpointError, match=f"lex.s2t.bin has ids up to {max(most, always - 1)}"
        ):
            zoo.load(tmp_path / "m", shortlist=True)
    write(tmp_path / "untied", "npz", **MODELS["no tied matrix"])
    (tmp_path / "untied" / "lex.s2t.bin").write_bytes(whole)
    with pytest.raises(CheckpointError, match="shortlist=True is for models whose output layer"):
        zoo.load(tmp_path / "untied", shortlist=True)


@pytest.mark.ci
def test_other_dtypes(tmp_path):
    """Log-probabilities compared with float32. Tolerance: ten roundings per token."""
    write(tmp_path, "npz")
    expected = zoo.load(tmp_path).score(LINES, LINES[::-1])
    for dtype in ("float16", "int8"):
        rounded = zoo.load(tmp_path, dtype=dtype)
        np.testing.assert_allclose(rounded.score(LINES, LINES[::-1]), expected, rtol=0.05)


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"transformer-decoder-autoreg": "average-attention"}, "average-attention"),
        ({"dec-cell": "gru"}, "dec-cell='gru'"),
        ({"type": "s2s"}, "type='s2s'"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth='3'"),
        ({"transformer-ffn-activation": "leakyrelu"}, "activation='leakyrelu'"),
        ({"transformer-postprocess": "dar"}, "transformer-postprocess='dar'"),
        ({"transformer-pool": "true"}, "transformer-pool"),
        ({"right-left": "true"}, "right-left"),
        ({"enc-depth": 3}, "enc-depth=3, but there are tensors of 2 encoder layers"),
        ({"dec-depth": 10**9}, "dec-depth=1000000000, but"),
        ({"transformer-heads": "many"}, "transformer-heads must be an integer.*'many'"),
        ({"ulr": "{a: " * 100_000}, "YAML with aliases or deep nesting"),
    ],
)
def test_unsupported_settings_are_named(changed, message, tmp_path):
    tensors, sizes = write(tmp_path / "m", "npz")
    settings = SETTINGS | changed | {"dim-vocabs": sizes}
    marian.write_npz(tmp_path / "m" / "model.npz", tensors, settings)
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path / "m")


def test_damaged_containers(tmp_path):
    """Each gives an error or the correct tensors; none hangs."""
    tensors = marian.weights([9, 9], **{"dim-emb": 4, "transformer-dim-ffn": 4})
    whole = container(tensors, SETTINGS, "intgemm8")
    path = tmp_path / "model.bin"
    random = np.random.default_rng(0)
    errors = 0
    path.write_bytes(whole)
    expected, _ = marian_file.read(path)
    expected = {name: expected[name] for name in expected}
    head = whole.index(b"\x7f" * 8)
    header = 8 * (16 + 32 * np.array([0, 1, 2, 5]))  # bits, of text, a matrix, its scale, a row
    every = np.add.outer(header, np.arange(256)).ravel()
    for bit in (*every, *random.integers(64, 8 * head, 250), *[None] * 250):
        data = bytearray(whole)
        if bit is None:
            del data[random.integers(len(data)) :]
        else:
            data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            found, _ = marian_file.read(path)
            found = {name: found[name] for name in found}
        except CheckpointError as error:
            assert str(path) in str(error)
            errors += 1
            continue
        same_names = found.keys() == expected.keys()
        assert not same_names or all(
            x.shape != expected[n].shape or x.dtype == expected[n].dtype for n, x in found.items()
        )
    assert errors > 1000


@pytest.mark.parametrize("kind", [0x802, 0x1801, 0x2801, 0x999, 0x10001])
def test_matrices_packed_for_a_processor_are_refused(kind, tmp_path):
    data = bytearray(container({"Wemb": np.ones((2, 2), "float32")}, SETTINGS))
    place = data.index((0x404).to_bytes(8, "little"))
    data[place : place + 8] = kind.to_bytes(8, "little")
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(CheckpointError, match=f"Wemb is of the type {kind:#x}"):
        marian_file.read(tmp_path / "model.bin")
