"""Marian models beside the libraries transformers and CTranslate2.

Tolerance of logits: 1e-4, for the same float32 operations in another order.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import shutil  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.parity import translation_models as models  # noqa: E402


def write(folder, is_shared=True, dtype=None, steps=100, decoder_heads=4, **saving):
    """A folder of a random model with a shared vocabulary or two."""
    folder.mkdir()
    symbols = {"byte_fallback": True, "user_defined_symbols": "<sep>"}
    sides = [models.spm(lines, size=480, **symbols) for lines in zip(*models.pairs())]
    pieces = [models.pieces(side)[3:] for side in sides]
    pieces[0] = pieces[0][: len(pieces[0]) - 9]  # unknown to the vocabulary, known to the model
    if is_shared:
        pieces = [list(dict.fromkeys(pieces[0] + pieces[1]))]
    vocabs = []
    for name, of_side in zip(("vocab", "target_vocab"), pieces):
        tokens = ["</s>", "<unk>", *of_side, ">>es<<", ">>fr<<", "<pad>"]
        if not is_shared:  # one end and one padding token for both
            tokens = [*tokens[:-3], *(f"unused{n}" for n in range(500 - len(tokens))), *tokens[-3:]]
            tokens += [f"more{n}" for n in range(7)] if name == "target_vocab" else []
        vocabs.append({token: id for id, token in enumerate(tokens)})
        models.write_json(folder / f"{name}.json", vocabs[-1])
    for name, side in zip(("source", "target"), sides):
        (folder / f"{name}.spm").write_bytes(side)
    models.write_json(folder / "tokenizer_config.json", {"separate_vocabs": not is_shared})
    pad = vocabs[0]["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(vocabs[0]),
        decoder_vocab_size=len(vocabs[-1]),
        share_encoder_decoder_embeddings=is_shared,
        d_model=32,
        encoder_layers=3,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=decoder_heads,
        encoder_ffn_dim=48,
        decoder_ffn_dim=56,
        max_position_embeddings=128,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=pad,
        decoder_start_token_id=pad,
        eos_token_id=0,
    )
    torch.manual_seed(0)
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    sources, targets = zip(*models.pairs())
    sources = tokenizer(list(sources))["input_ids"]
    targets = tokenizer(text_target=list(targets))["input_ids"]
    model = models.trained(transformers.MarianMTModel(config), sources, targets, steps)
    if dtype is not None:
        model = model.to(dtype)
    model.generation_config.update(num_beams=6, max_length=100, length_penalty=0.8)
    model.save_pretrained(folder, **saving)
    model = model.float()
    for coder in (model.get_encoder(), model.get_decoder()):
        coder.embed_positions.weight.data = coder.embed_positions.create_weight()
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("marian") / "model"
    return folder, write(folder)


@pytest.fixture(scope="module")
def translator(folder):
    return zoo.load(folder[0])


def test_logits(folder, translator):
    rows = [[5, 6, 7, 0], [8, 9, 10, 11, 12, 13, 14, 0]]
    difference, largest = models.logits_difference(translator, folder[1], rows)
    assert difference < 1e-4 < 1 < largest


def test_the_loss_of_training(folder, translator, tmp_path):
    found, expected = models.losses(translator, folder[1], tmp_path)
    assert abs(found - expected) < 1e-4 < 1 < expected


def test_tokens_are_those_of_the_published_tokenizer(folder, translator):
    published = transformers.MarianTokenizer.from_pretrained(folder[0])
    texts = [*models.ODD_TEXTS, *(code + "hello there" for code in models.CODES)]
    expected = [published(text)["input_ids"] for text in texts]
    assert [[*ids, 0] for ids in translator.source_tokenizer.encode(texts)] == expected
    expected = [published(text_target=text)["input_ids"] for text in texts]
    assert [[*ids, 0] for ids in translator.target_tokenizer.encode(texts)] == expected
    ids = np.random.default_rng(0).integers(0, len(published.encoder), (50, 8))
    texts = published.batch_decode(ids, skip_special_tokens=True, use_source_tokenizer=False)
    # Of white space, only spaces are removed at the ends here.
    assert [text.strip() for text in translator.target_tokenizer.decode(ids)] == texts


@pytest.mark.parametrize("length", [5, 64])  # most translations are cut off at 5
def test_translations_are_those_of_generate(folder, translator, length):
    texts = models.source_texts()
    texts[-4:] = [f">>es<< {text}" for text in texts[-4:]]
    rows = [[*ids, 0] for ids in translator.source_tokenizer.encode(texts)]
    assert min(map(len, rows)) <= 4 and max(map(len, rows)) > 64
    expected = models.generated(folder[1], rows, translator.special_tokens, length)
    found = models.searched(translator, rows, length)
    assert length < 64 or len({tuple(row) for row in found}) > 20
    assert found == expected


def test_the_search_has_the_published_defaults(translator):
    assert (translator.beam_size, translator.length_penalty, translator.max_length) == (6, 0.8, 99)
    assert translator.early_stopping is False


def test_ctranslate2_has_the_same_weights(folder, translator, tmp_path):
    """Scores are compared, as it does not return logits."""
    converters = pytest.importorskip("ctranslate2.converters")
    import ctranslate2

    converters.TransformersConverter(str(folder[0])).convert(tmp_path / "model")
    other = ctranslate2.Translator(str(tmp_path / "model"), inter_threads=1, intra_threads=1)
    sources, targets = (list(texts) for texts in zip(*models.pairs()[:8]))
    rows = translator._pairs(sources, targets)
    names = [side.tokens for side in (translator.source_tokenizer, translator.target_tokenizer)]
    tokens = [[[names[side][id] for id in ids] for ids in of] for side, of in enumerate(zip(*rows))]
    results = other.score_batch(tokens[0], [target[:-1] for target in tokens[1]])
    expected = [sum(result.log_probs) for result in results]
    np.testing.assert_allclose(translator.score(sources, targets), expected, atol=1e-3)


@pytest.mark.parametrize(
    "options",
    [
        {"is_shared": False},
        {"decoder_heads": 2},
        {"dtype": torch.float16},
        {"max_shard_size": "40KB"},
    ],
    ids=["separate vocabularies", "other heads", "half precision", "several files"],
)
def test_other_folders(tmp_path, options):
    model = write(tmp_path / "model", steps=2, **options)
    translator = zoo.load(tmp_path / "model")
    rows = [[5, 6, 7, 0], [8, 9, 10, 11, 12, 13, 14, 0]]
    difference, _ = models.logits_difference(translator, model, rows)
    assert difference < 1e-4


def test_pickled_weights(folder, translator, tmp_path):
    copy = tmp_path / "model"
    shutil.copytree(folder[0], copy)
    (copy / "model.safetensors").unlink()
    torch.save(folder[1].state_dict(), copy / "pytorch_model.bin")
    texts, pairs = list(zip(*models.pairs()[:4])), zip(*models.pairs()[:4])
    np.testing.assert_allclose(zoo.load(copy).score(*pairs), translator.score(*texts), atol=1e-5)


@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "separate"])
def test_transformers_reads_what_is_written(folder, tmp_path, is_shared):
    """`generate` with the written settings gives the tokens of the translator's own search."""
    path = folder[0]
    if not is_shared:
        path = tmp_path / "model"
        write(path, is_shared=False, steps=2)
    translator = zoo.load(path)
    zoo.save_hf(translator, tmp_path / "hf")
    model = transformers.MarianMTModel.from_pretrained(tmp_path / "hf").eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "hf")
    texts = models.source_texts()[::4]
    batch = tokenizer(texts, return_tensors="pt", padding=True)
    rows = [[*ids, 0] for ids in translator.source_tokenizer.encode(texts)]
    assert batch["input_ids"].tolist() == models.padded(rows, model.config.pad_token_id).tolist()
    assert models.logits_difference(translator, model, rows)[0] < 1e-4
    for changed in ({}, {"max_length": 6}):  # most translations are cut off at 5
        found = tokenizer.batch_decode(model.generate(**batch, **changed), skip_special_tokens=True)
        length = changed.get("max_length", translator.max_length + 1) - 1
        assert found == translator(texts, max_length=length)
