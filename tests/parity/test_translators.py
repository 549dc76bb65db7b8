"""Marian, M2M100, NLLB and mBART-50 models beside the libraries transformers and CTranslate2.

Tolerance of logits: 1e-4, for the same float32 operations in another order.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import shutil  # noqa: E402

import numpy as np  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.translation_folders import pieces, spm, write_json  # noqa: E402
from tests.parity import translation_models as models  # noqa: E402

SIZES = {
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 56,
    "max_position_embeddings": 128,
    "scale_embedding": True,
}
MULTILINGUAL = {  # tokenizer, kind of SentencePiece model, languages, their places, model
    "m2m100": ("M2M100Tokenizer", "bpe", ("en", "es"), (18, 19), "M2M100"),
    "nllb": ("NllbTokenizer", "bpe", ("eng_Latn", "spa_Latn"), (46, 160), "M2M100"),
    "mbart50": ("MBart50Tokenizer", "unigram", ("en_XX", "es_XX"), (3, 4), "MBart"),
}
NUM_OTHERS = {"m2m100": 100 + 8, "nllb": 202 + 3, "mbart50": 52 + 1}  # languages, <mask>, unused
ROWS = [[5, 6, 7], [8, 9, 10, 11, 12, 13, 14]]


def write_marian(folder, is_shared=True, dtype=None, steps=100, decoder_heads=4, **saving):
    """A folder of a random model with a shared vocabulary or two."""
    symbols = {"byte_fallback": True, "user_defined_symbols": "<sep>"}
    sides = [spm(lines, rules="nmt_nfkc", size=480, **symbols) for lines in zip(*models.pairs())]
    known = [pieces(side) for side in sides]
    known[0] = known[0][: len(known[0]) - 9]  # unknown to the vocabulary, known to the model
    if is_shared:
        known = [list(dict.fromkeys(known[0] + known[1]))]
    vocabs = []
    for name, of_side in zip(("vocab", "target_vocab"), known):
        tokens = ["</s>", "<unk>", *of_side, ">>es<<", ">>fr<<", "<pad>"]
        if not is_shared:  # one end and one padding token for both
            tokens = [*tokens[:-3], *(f"unused{n}" for n in range(500 - len(tokens))), *tokens[-3:]]
            tokens += [f"more{n}" for n in range(7)] if name == "target_vocab" else []
        vocabs.append({token: id for id, token in enumerate(tokens)})
        write_json(folder / f"{name}.json", vocabs[-1])
    for name, side in zip(("source", "target"), sides):
        (folder / f"{name}.spm").write_bytes(side)
    write_json(folder / "tokenizer_config.json", {"separate_vocabs": not is_shared})
    pad = vocabs[0]["<pad>"]
    config = transformers.MarianConfig(
        vocab_size=len(vocabs[0]),
        decoder_vocab_size=len(vocabs[-1]),
        share_encoder_decoder_embeddings=is_shared,
        **{**SIZES, "decoder_attention_heads": decoder_heads},
        activation_function="swish",
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


def write_multilingual(folder, name):
    """A folder of a random model."""
    tokenizer, spm_kind, _, places, kind = MULTILINGUAL[name]
    texts = list(zip(*models.pairs()))
    content = spm([*texts[0], *texts[1]], spm_kind, "nmt_nfkc", size=400)
    (folder / "sentencepiece.bpe.model").write_bytes(content)
    known = pieces(content)
    count = len(known) + 4
    if name == "m2m100":
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *reversed(known[7:])]
        write_json(folder / "vocab.json", {token: id for id, token in enumerate(tokens)})
        count = len(tokens)
    tokenizer = getattr(transformers, tokenizer).from_pretrained(folder)
    sizes = {**SIZES, "vocab_size": count + NUM_OTHERS[name]}
    config = getattr(transformers, f"{kind}Config")(decoder_start_token_id=2, **sizes)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    sides = [tokenizer([*side], add_special_tokens=False)["input_ids"] for side in texts]
    sides = [[[count + n, *row, 2] for row in rows] for n, rows in zip(places, sides)]
    model = models.trained(model, *sides)
    model.generation_config.update(num_beams=5, max_length=100, early_stopping=True)
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="module", params=["marian", *MULTILINGUAL])
def case(request, tmp_path_factory):
    """(folder, model of transformers, translator)."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "marian":
        return folder, write_marian(folder), zoo.load(folder)
    model, languages = write_multilingual(folder, request.param), MULTILINGUAL[request.param][2]
    return folder, model, zoo.load(folder, **dict(zip(("src_lang", "tgt_lang"), languages)))


marian = pytest.mark.parametrize("case", ["marian"], indirect=True)


def test_logits(case):
    _, model, translator = case
    rows = [[*row, translator.special_tokens.end] for row in ROWS]
    difference, largest = models.logits_difference(translator, model, rows)
    assert difference < 1e-4 < 1 < largest


def test_the_loss_of_training(case, tmp_path):
    found, expected = models.losses(case[2], case[1], tmp_path)
    assert abs(found - expected) < 1e-4 < 1 < expected


@pytest.mark.parametrize("length", [5, 64])  # most translations are cut off at 5
def test_translations_are_those_of_generate(case, length):
    _, model, translator = case
    texts = models.source_texts()
    texts[-4:] = [f">>es<< {text}" for text in texts[-4:]]
    rows = translator.source_tokenizer.encode(texts)
    rows = [[*ids, translator.special_tokens.end] for ids in rows]
    assert min(map(len, rows)) <= 4 and max(map(len, rows)) > 64
    expected = models.generated(model, rows, translator.special_tokens, length)
    found = models.searched(translator, rows, length)
    assert length < 64 or len({tuple(row) for row in found}) > 15
    assert found == expected


def test_the_search_has_the_published_defaults(case):
    _, model, translator = case
    search = model.generation_config
    assert translator.beam_size == search.num_beams > 4
    assert translator.length_penalty == (search.length_penalty or 1.0)
    assert (translator.max_length, search.max_length) == (99, 100)
    assert translator.early_stopping is bool(search.early_stopping)


@marian
def test_tokens_of_marian(case):
    folder, _, translator = case
    published = transformers.MarianTokenizer.from_pretrained(folder)
    texts = [*models.ODD_TEXTS, *(code + "hello there" for code in models.CODES)]
    expected = [published(text)["input_ids"] for text in texts]
    assert [[*ids, 0] for ids in translator.source_tokenizer.encode(texts)] == expected
    expected = [published(text_target=text)["input_ids"] for text in texts]
    assert [[*ids, 0] for ids in translator.target_tokenizer.encode(texts)] == expected
    ids = np.random.default_rng(0).integers(0, len(published.encoder), (50, 8))
    texts = published.batch_decode(ids, skip_special_tokens=True, use_source_tokenizer=False)
    # Of white space, only spaces are removed at the ends here.
    assert [text.strip() for text in translator.target_tokenizer.decode(ids)] == texts


@pytest.mark.parametrize("case", MULTILINGUAL, indirect=True)
def test_tokens_of_several_languages(case, request):
    folder, model, translator = case
    name = request.node.callspec.params["case"]
    published, _, _, places, _ = MULTILINGUAL[name]
    tokenizer = getattr(transformers, published).from_pretrained(folder)
    ids = [model.config.vocab_size - NUM_OTHERS[name] + place for place in places]
    # Like SentencePiece, and unlike version 5 of transformers, the zoo removes spaces at the end.
    texts = [text.strip() for text in models.ODD_TEXTS]
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert translator.target_tokenizer.encode(texts) == expected
    assert translator.source_tokenizer.encode(texts) == [[ids[0], *row] for row in expected]
    assert translator.special_tokens.first == ids[1]
    decoded = tokenizer.batch_decode(expected, skip_special_tokens=True)
    assert translator.target_tokenizer.decode(expected) == [text.strip() for text in decoded]


@marian
def test_ctranslate2_has_the_same_weights(case, tmp_path):
    """Scores are compared, as it does not return logits."""
    converters = pytest.importorskip("ctranslate2.converters")
    import ctranslate2

    folder, _, translator = case
    converters.TransformersConverter(str(folder)).convert(tmp_path / "model")
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
    [{"is_shared": False}, {"decoder_heads": 2, "dtype": torch.float16, "max_shard_size": "40KB"}],
    ids=["separate vocabularies", "other heads, half precision, several files"],
)
def test_other_folders_of_marian(tmp_path, options):
    model = write_marian(tmp_path, steps=2, **options)
    rows = [[*row, 0] for row in ROWS]
    assert models.logits_difference(zoo.load(tmp_path), model, rows)[0] < 1e-4


@marian
def test_pickled_weights(case, tmp_path):
    folder, model, translator = case
    copy = tmp_path / "model"
    shutil.copytree(folder, copy)
    (copy / "model.safetensors").unlink()
    torch.save(model.state_dict(), copy / "pytorch_model.bin")
    texts, pairs = list(zip(*models.pairs()[:4])), zip(*models.pairs()[:4])
    np.testing.assert_allclose(zoo.load(copy).score(*pairs), translator.score(*texts), atol=1e-5)


@marian
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "separate"])
def test_transformers_reads_what_is_written(case, tmp_path, is_shared):
    """`generate` with the written settings gives the tokens of the translator's own search."""
    folder, _, translator = case
    if not is_shared:
        (folder := tmp_path / "model").mkdir()
        write_marian(folder, is_shared=False)
        translator = zoo.load(folder)
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
        assert found == translator(texts, sentences=False, max_length=length)
