"""Models as the program Marian writes them, beside its equations in NumPy; damaged files."""

import tempfile
import zipfile

import numpy as np
import pytest

import zoo
from tests.checkpoints import marian_models as marian
from tests.checkpoints.marian_models import ATTENTION, PRE, SETTINGS, container
from tests.checkpoints.translation_folders import spm
from zoo.checkpoints import CheckpointError, marian_file

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
    return [source, spm(LINES[::-1], "bpe", size=330, byte_fallback=True, **CONTROL)]


def size_of(model):
    import sentencepiece

    return len(sentencepiece.SentencePieceProcessor(model_proto=model))


def write(folder, kind="float32", **changed):
    """A folder as Firefox's translations have it; returns its tensors and vocabulary sizes."""
    models = vocabularies(changed)
    sizes = [size_of(model) for model in models]
    tensors = marian.weights(sizes, **changed)
    folder.mkdir(parents=True, exist_ok=True)
    settings = SETTINGS | changed | {"dim-vocabs": sizes}
    if kind == "npz":
        marian.write_npz(folder / "model.npz", tensors, settings)
    else:
        (folder / "model.bin").write_bytes(container(tensors, settings, kind))
        tensors = marian.rounded(tensors, kind)
    for name, model in zip(("srcvocab.spm", "trgvocab.spm"), models):
        (folder / name).write_bytes(model)
    (folder / "config.yml").write_text(
        f"relative-paths: true\nmodels:\n  - model.{'npz' if kind == 'npz' else 'bin'}\n"
        "vocabs:\n  - srcvocab.spm\n  - trgvocab.spm\nbeam-size: 3\nnormalize: 0.7\n"
    )
    return tensors, sizes


@pytest.mark.parametrize("kind", ["npz", "float32", "float16", "intgemm8"])
def test_each_kind_of_file(kind, tmp_path):
    tensors, sizes = write(tmp_path / "m", kind)
    check_logits(zoo.load(tmp_path / "m"), tensors, sizes)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "ssru"])
def test_each_kind_of_model(name, tmp_path):
    tensors, sizes = write(tmp_path / "m", "npz", **MODELS[name])
    check_logits(zoo.load(tmp_path / "m"), tensors, sizes, **MODELS[name])


def check_logits(translator, tensors, sizes, **changed):
    """Tolerance: float32 against float64, logits of a few units."""
    random, model = np.random.default_rng(1), translator.model
    source, target = ([*random.integers(2, size, 7), 0] for size in sizes)
    expected = marian.logits(tensors, source, target, **changed)
    inputs = {"source": np.array([source]), "target": np.array([[model.pad_id, *target]])}
    found = np.asarray(model(inputs))[0]
    np.testing.assert_allclose(found[:, : sizes[1]], expected, atol=1e-4)
    assert (found[:, sizes[1] :] < -1e8).all()  # padding and what a smaller vocabulary lacks
    assert translator.beam_size == 3 and translator.length_penalty == pytest.approx(0.7)


def test_it_translates_as_a_folder_a_file_and_an_archive(tmp_path):
    folder = tmp_path / "m"
    write(folder, "npz")
    translator = zoo.load(folder)
    translations = translator(LINES)
    assert all(isinstance(text, str) for text in translations) and len(set(translations)) > 1
    assert zoo.load(folder / "model.npz")(LINES) == translations
    files = {file.name: file.read_bytes() for file in folder.iterdir()}
    write_zip(
        tmp_path / "opus.zip", {**files, "../outside.txt": b"", "a/model.npz": b"", "x.sh": b""}
    )
    assert zoo.load(tmp_path / "opus.zip")(LINES) == translations
    assert not (tmp_path / "outside.txt").exists()
    folder.rename(tmp_path / "folder.zip")
    assert zoo.load(tmp_path / "folder.zip")(LINES) == translations
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
    write_zip(path := tmp_path / "opus.zip", files)
    flipped = bytearray(path.read_bytes())
    flipped[100] ^= 255  # within a compressed file
    one_less = {name: data for name, data in files.items() if name != "trgvocab.spm"}
    for content, message in (
        (bytes(flipped), "opus.zip is damaged, or not a .zip file"),
        (b"PK", "opus.zip is damaged, or not a .zip file"),
        (one_less, "opus.zip contains no trgvocab.spm"),
        ({**files, "model.npz": b"PK"}, "opus.zip/model.npz is damaged"),
        ({**files, "model.npz": bytes(10**8)}, "opus.zip would expand to 100 MB"),
        ({f"folder/{name}": data for name, data in files.items()}, "opus.zip has no model of Mar"),
    ):
        if isinstance(content, bytes):
            path.write_bytes(content)
        else:
            write_zip(path, content)
        with pytest.raises(CheckpointError, match=message) as error:
            zoo.load(path)
        assert tempfile.gettempdir() not in str(error.value).replace(str(tmp_path), "")


def test_vocabularies_in_yaml_with_language_codes(tmp_path):
    """As OPUS-MT's older releases have them: other ids for the pieces of two models."""
    [source, _], folder = vocabularies({}), tmp_path / "m"
    import sentencepiece

    loaded = sentencepiece.SentencePieceProcessor(model_proto=source)
    pieces = [loaded.id_to_piece(id) for id in range(2, len(loaded))]
    names = ["</s>", "<unk>", *pieces[::-1], ">>es<<", '"', "'", ": #"]
    vocab = {piece: id for id, piece in enumerate(names)}
    folder.mkdir()
    lines = ("'" + piece.replace("'", "''") + f"': {id}" for piece, id in vocab.items())
    (folder / "opus.vocab.yml").write_text("\n".join(lines), encoding="utf-8")
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes(source)
    settings = SETTINGS | ATTENTION
    marian.write_npz(folder / "opus.npz", marian.weights([len(vocab)] * 2, **ATTENTION), settings)
    (folder / "decoder.yml").write_text(
        "models:\n  - opus.npz\nvocabs:\n  - opus.vocab.yml\n  - opus.vocab.yml\nnormalize: 1\n"
    )
    with pytest.raises(CheckpointError, match="tgt_lang.*one of es"):
        zoo.load(folder, tgt_lang="pt")
    in_text = zoo.load(folder).source_tokenizer.encode([">>es<<the cat"])
    tokenizer = zoo.load(folder, tgt_lang="es").source_tokenizer
    [ids] = tokenizer.encode(["the cat"])
    assert [ids] == in_text
    assert ids == [vocab[">>es<<"], *(vocab[p] for p in loaded.encode("the cat", out_type=str))]
    assert tokenizer.decode([ids[1:]]) == ["the cat"]


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"transformer-decoder-autoreg": "average-attention"}, "average-attention"),
        ({"dec-cell": "gru"}, "dec-cell='gru'"),
        ({"type": "s2s"}, "type='s2s'"),
        ({"transformer-ffn-depth": 3}, "transformer-ffn-depth='3'"),
        ({"transformer-ffn-activation": "leakyrelu"}, "activation 'leakyrelu'"),
        ({"transformer-postprocess": "dar"}, "transformer-postprocess='dar'"),
        ({"transformer-pool": "true"}, "transformer-pool"),
        ({"right-left": "true"}, "right-left"),
        ({"enc-depth": 3}, "encoder_l2"),
    ],
)
def test_what_is_not_supported_is_named(changed, message, tmp_path):
    write(tmp_path / "m", "npz")
    tensors, sizes = write(tmp_path / "m", "npz")
    settings = SETTINGS | changed | {"dim-vocabs": sizes}
    marian.write_npz(tmp_path / "m" / "model.npz", tensors, settings)
    with pytest.raises(CheckpointError, match=message):
        zoo.load(tmp_path / "m")


def test_damaged_containers(tmp_path):
    """Each gives an error, or the tensors of the whole file: none hangs, none is read wrongly."""
    tensors = marian.weights([9, 9], **{"dim-emb": 4, "transformer-dim-ffn": 4})
    whole = container(tensors, SETTINGS, "intgemm8")
    path, random, errors = tmp_path / "model.bin", np.random.default_rng(0), 0
    path.write_bytes(whole)
    expected, _ = marian_file.read(path)
    expected = {name: expected[name] for name in expected}
    head = whole.index(b"\x7f" * 8)
    for index in range(500):
        data = bytearray(whole)
        if index % 2:
            del data[random.integers(len(data)) :]
        else:
            data[random.integers(8, head)] ^= 1 << random.integers(8)
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
    assert errors > 300


@pytest.mark.parametrize("kind", [0x802, 0x1801, 0x2801, 0x999])
def test_matrices_packed_for_a_processor_are_refused(kind, tmp_path):
    data = bytearray(container({"x_W": np.ones((2, 2), "float32")}, SETTINGS))
    place = data.index((0x404).to_bytes(8, "little"))
    data[place : place + 8] = kind.to_bytes(8, "little")
    (tmp_path / "model.bin").write_bytes(data)
    with pytest.raises(CheckpointError, match=f"x_W is of the type {kind:#x}"):
        marian_file.read(tmp_path / "model.bin")
