"""M2M100, NLLB and mBART-50 models beside the library transformers.

Tolerance of logits: 1e-4, for the same float32 operations in another order.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import zoo  # noqa: E402
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
}
KINDS = {  # tokenizer, kind of SentencePiece model, languages, their places in the list, model
    "m2m100": ("M2M100Tokenizer", "bpe", ("en", "es"), (18, 19), "M2M100"),
    "nllb": ("NllbTokenizer", "bpe", ("eng_Latn", "spa_Latn"), (46, 160), "M2M100"),
    "mbart50": ("MBart50Tokenizer", "unigram", ("en_XX", "es_XX"), (3, 4), "MBart"),
}
NUM_OTHERS = {"m2m100": 100 + 8, "nllb": 202 + 3, "mbart50": 52 + 1}  # languages, <mask>, unused


@pytest.fixture(scope="module", params=KINDS)
def case(request, tmp_path_factory):
    """(model of transformers, its tokenizer, translator, ids of the languages)."""
    tokenizer, spm_kind, languages, places, kind = KINDS[request.param]
    folder = tmp_path_factory.mktemp("m2m100")
    texts = list(zip(*models.pairs()))
    spm = models.spm([*texts[0], *texts[1]], spm_kind)
    (folder / "sentencepiece.bpe.model").write_bytes(spm)
    pieces = models.pieces(spm)
    count = len(pieces) + 1
    if request.param == "m2m100":
        tokens = ["<s>", "<pad>", "</s>", "<unk>", *reversed(pieces[10:])]
        models.write_json(folder / "vocab.json", {token: id for id, token in enumerate(tokens)})
        count = len(tokens)
    tokenizer = getattr(transformers, tokenizer).from_pretrained(folder)
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=count + NUM_OTHERS[request.param],
        scale_embedding=True,
        decoder_start_token_id=2,
        **SIZES,
    )
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config)
    ids = [count + place for place in places]
    rows = [
        [[id, *row, 2] for row in tokenizer(list(of), add_special_tokens=False)["input_ids"]]
        for id, of in zip(ids, texts)
    ]
    model = models.trained(model, *rows)
    model.generation_config.update(num_beams=5, max_length=100, early_stopping=True)
    model.save_pretrained(folder)
    translator = zoo.load(folder, src_lang=languages[0], tgt_lang=languages[1])
    return model, tokenizer, translator, ids


def test_logits(case):
    model, _, translator, _ = case
    rows = [[5, 6, 7, 2], [8, 9, 10, 11, 12, 13, 14, 2]]
    difference, largest = models.logits_difference(translator, model, rows)
    assert difference < 1e-4 < 1 < largest


def test_the_loss_of_training(case, tmp_path):
    found, expected = models.losses(case[2], case[0], tmp_path)
    assert abs(found - expected) < 1e-4 < 1 < expected


def test_tokens_are_those_of_the_published_tokenizer(case):
    _, tokenizer, translator, ids = case
    # Like SentencePiece, and unlike version 5 of transformers, the zoo removes spaces at the end.
    texts = [text.strip() for text in models.ODD_TEXTS]
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert translator.target_tokenizer.encode(texts) == expected
    assert translator.source_tokenizer.encode(texts) == [[ids[0], *row] for row in expected]
    assert translator.special_tokens.first == ids[1]
    decoded = tokenizer.batch_decode(expected, skip_special_tokens=True)
    assert translator.target_tokenizer.decode(expected) == [text.strip() for text in decoded]


@pytest.mark.parametrize("length", [5, 64])  # most translations are cut off at 5
def test_translations_are_those_of_generate(case, length):
    model, _, translator, _ = case
    rows = [[*ids, 2] for ids in translator.source_tokenizer.encode(models.source_texts())]
    assert min(map(len, rows)) <= 4 and max(map(len, rows)) > 64
    expected = models.generated(model, rows, translator.special_tokens, length)
    found = models.searched(translator, rows, length)
    assert length < 64 or len({tuple(row) for row in found}) > 15
    assert found == expected


def test_the_search_has_the_published_defaults(case):
    translator = case[2]
    assert (translator.beam_size, translator.length_penalty, translator.max_length) == (5, 1.0, 99)
    assert translator.early_stopping is True
