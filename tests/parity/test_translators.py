"""Marian, M2M100, NLLB and mBART-50 models beside the libraries transformers and CTranslate2.

Tolerance of logits: 1e-4, for the same float32 operations in another order. Tokens of searches are
the same: scores of competing hypotheses of these models differ by far more than float32 rounds.
"""

import re

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import contextlib  # noqa: E402
import functools  # noqa: E402

import keras  # noqa: E402
import numpy as np  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402

import zoo  # noqa: E402
from tests.checkpoints.test_save_translators import separate  # noqa: E402
from tests.checkpoints.translation_folders import (  # noqa: E402
    write_m2m100,
    write_marian,
    write_mbart50,
)
from zoo.data.phrasebook import phrasebook_pairs  # noqa: E402
from zoo.data.tokenized_corpus import encode_pairs  # noqa: E402
from zoo.training.losses import SmoothedCrossEntropy  # noqa: E402

torch.set_num_threads(1)

PAIRS = phrasebook_pairs(8)
SOURCES, TARGETS = (list(side) for side in zip(*PAIRS))
TEXTS = [*SOURCES, "\U0001f600 x \u4f60", " ".join(SOURCES[:4])]
ODD_TEXTS = [
    "",
    "hello",
    "  two   spaces ",
    "na\u00efve cafe\u0301 a\u0323\u0301 \u0300x",
    "\U0001f600 \U0001f600\U0001f603 x \U0001f468\u200d\U0001f469",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u041f\u0440\u0438\u0432\u0435\u0442",
    "\ufb01 \u00bd \u2460 \uff71 \u00a8",
    "tab\tnew\nline\u3000wide \u2581 x",
    "word " * 60,
    "x" * 300,
    "the<sep>cat <sep>",
]
CODES = [">>es<< ", ">>fr<< ", ">>none<< ", ">>es"]
MULTILINGUAL = {  # writer, tokenizer, languages, their ids from the end of the vocabulary on
    "m2m100": (write_m2m100, "M2M100Tokenizer", ("en", "es"), (18 - 108, 19 - 108)),
    "nllb": (
        functools.partial(write_m2m100, is_nllb=True),
        "NllbTokenizer",
        ("eng_Latn", "spa_Latn"),
        (46 - 205, 160 - 205),
    ),
    "mbart50": (write_mbart50, "MBart50Tokenizer", ("en_XX", "es_XX"), (3 - 53, 4 - 53)),
}
LENGTH = 16
OPTIONS = {
    "nothing": {},
    "ngrams": {"no_repeat_ngram_size": 2, "min_length": 9},
    "tokens": {"no_repeat_ngram_size": 1, "suppress_tokens": [5, 7, 11, 12, 30]},
    "reward": {"repetition_penalty": 0.6, "min_new_tokens": 12},
    "all": {"no_repeat_ngram_size": 3, "repetition_penalty": 1.7, "min_length": 5},
}
OPTIONS["all"] |= {"suppress_tokens": [6]}


@pytest.fixture(scope="module", params=["marian", *MULTILINGUAL])
def case(request, tmp_path_factory):
    """(folder, model of transformers, translator)."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "marian":
        # as many heads as in the encoder, for CTranslate2; translations differ, and some end
        tensors = write_marian(folder, decoder_attention_heads=2)
        for name in tensors:
            tensors[name] += 2.0 * name.endswith("norm.weight")
        tensors["final_logits_bias"][0, 0] += 5.0
        save_file(tensors, folder / "model.safetensors")
        return folder, marian_model(folder), zoo.load(folder)
    write, _, languages, _ = MULTILINGUAL[request.param]
    write(folder)
    translator = zoo.load(folder, src_lang=languages[0], tgt_lang=languages[1])
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    for config in (model.config, model.generation_config):
        config.decoder_start_token_id = translator.special_tokens.start
    return folder, model, translator


def marian_model(folder):
    model = transformers.MarianMTModel.from_pretrained(folder).eval()
    for coder in (model.get_encoder(), model.get_decoder()):
        coder.embed_positions.weight.data = coder.embed_positions.create_weight()
    return model


marian = pytest.mark.parametrize("case", ["marian"], indirect=True)
two = pytest.mark.parametrize("case", ["marian", "m2m100"], indirect=True)


def padded(rows, pad):
    width = max(map(len, rows))
    return torch.tensor([row + [pad] * (width - len(row)) for row in rows])


def encoded(translator):
    """The tokens of `TEXTS`, and their mask."""
    special = translator.special_tokens
    rows = [[*row, special.end] for row in translator.source_tokenizer.encode(TEXTS)]
    source = padded(rows, special.pad)
    return {"input_ids": source, "attention_mask": (source != special.pad).long()}


def assert_same_logits(model, translator):
    inputs, size = encoded(translator), translator.model.target_vocab_size
    target = np.random.default_rng(0).integers(3, size - 2, (len(TEXTS), 9))
    target[:, 0] = translator.special_tokens.start
    with torch.no_grad():
        expected = model(**inputs, decoder_input_ids=torch.tensor(target)).logits.numpy()
    assert expected.max() > 1
    found = translator.model({"source": inputs["input_ids"].numpy(), "target": target})
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_logits(case):
    assert_same_logits(*case[1:])


def test_the_loss_of_training(case):
    _, model, translator = case
    assert_same_loss(model, translator, [*PAIRS[:4], ("the " * 20, "y"), ("x", "el " * 25)])


def assert_same_loss(model, translator, texts):
    """That of six padded pairs in the recipe, and that of transformers for the same labels."""
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    special = translator.special_tokens
    pairs = encode_pairs(texts, *tokenizers, 62, "train", special)
    width = len(pairs.length_counts) + 1  # longer than the longest
    inputs, labels, weights = pairs.batch(np.arange(6), (6, width))
    weights /= pairs.num_tokens
    found = SmoothedCrossEntropy()(labels, translator.model(inputs), weights)
    source = torch.tensor(inputs["source"])
    with torch.no_grad():
        expected = model(
            input_ids=source.long(),
            attention_mask=(source != special.pad).long(),
            labels=torch.tensor(np.where(weights > 0, labels, -100)).long(),
        ).loss
    assert (labels[:, : len(special.prefix)] == special.prefix).all()
    assert abs(float(found) - float(expected)) < 1e-4 < 1 < float(expected)


@marian
def test_tokens_of_marian(case):
    folder, _, translator = case
    published = transformers.MarianTokenizer.from_pretrained(folder)
    texts = [*ODD_TEXTS, *(code + "hello there" for code in CODES)]
    expected = [published(text)["input_ids"] for text in texts]
    assert [[*ids, 0] for ids in translator.source_tokenizer.encode(texts)] == expected
    expected = [published(text_target=text)["input_ids"] for text in texts]
    assert [[*ids, 0] for ids in translator.target_tokenizer.encode(texts)] == expected
    ids = np.random.default_rng(0).integers(0, len(published.encoder), (50, 8))
    texts = published.batch_decode(ids, skip_special_tokens=True, use_source_tokenizer=False)
    # Of white space, only spaces are removed at the ends here; an incomplete character is one
    # U+FFFD, as in Python, and one for each of its bytes in SentencePiece.
    found = [text.strip() for text in translator.target_tokenizer.decode(ids)]
    assert [re.sub("\ufffd+", "\ufffd", text) for text in found] == [
        re.sub("\ufffd+", "\ufffd", text) for text in texts
    ]


@pytest.mark.parametrize("case", MULTILINGUAL, indirect=True)
def test_tokens_of_several_languages(case, request):
    folder, model, translator = case
    _, tokenizer, _, places = MULTILINGUAL[request.node.callspec.params["case"]]
    tokenizer = getattr(transformers, tokenizer).from_pretrained(folder)
    ids = [model.config.vocab_size + place for place in places]
    # Like SentencePiece, and unlike version 5 of transformers, the zoo removes spaces at the end.
    texts = [text.strip() for text in ODD_TEXTS]
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"]
    assert translator.target_tokenizer.encode(texts) == expected
    assert translator.source_tokenizer.encode(texts) == [[ids[0], *row] for row in expected]
    assert translator.special_tokens.prefix == (ids[1],)
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
    rows = translator._pairs(SOURCES, TARGETS)
    names = [side.tokens for side in (translator.source_tokenizer, translator.target_tokenizer)]
    tokens = [[[names[side][id] for id in ids] for ids in of] for side, of in enumerate(zip(*rows))]
    results = other.score_batch(tokens[0], [target[:-1] for target in tokens[1]])
    expected = [sum(result.log_probs) for result in results]
    np.testing.assert_allclose(translator.score(SOURCES, TARGETS), expected, atol=1e-3)


@marian
@pytest.mark.parametrize("is_shared", [True, False], ids=["shared", "separate"])
def test_transformers_reads_what_is_written(case, tmp_path, is_shared):
    """`generate` with the written settings gives the texts of the translator's own search."""
    translator, random = case[2], np.random.default_rng(0)
    if not is_shared:
        keras.utils.set_random_seed(0)
        translator = separate(translator, "target")
        for weight in translator.model.weights:  # so that scores differ
            weight.assign_add(random.normal(0.0, 0.5, weight.shape))
    zoo.save_hf(translator, tmp_path)
    model = marian_model(tmp_path)
    assert_same_logits(model, translator)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path)
    batch = tokenizer(TEXTS, return_tensors="pt", padding=True)
    assert batch["input_ids"].tolist() == encoded(translator)["input_ids"].tolist()
    for changed in ({}, {"max_length": 6}):
        found = tokenizer.batch_decode(model.generate(**batch, **changed), skip_special_tokens=True)
        length = changed.get("max_length", translator.max_length + 1) - 1
        assert found == translator(TEXTS, sentences=False, max_length=length)


def generated(case, beams, prefix=(), **options):
    """The tokens of each translation by transformers, without the start."""
    _, model, translator = case
    special, before = translator.special_tokens, [translator.special_tokens.start, *prefix]
    tokens = model.generate(
        **encoded(translator),
        decoder_input_ids=torch.tensor([before] * len(TEXTS)),
        num_beams=beams,
        do_sample=False,
        length_penalty=1.0,
        max_length=LENGTH + 1,
        max_new_tokens=None,
        bad_words_ids=[[special.pad]],
        forced_bos_token_id=None if prefix or not special.prefix else special.prefix[0],
        **{"forced_eos_token_id": None, **options},
    )
    return [strip(row[1:].tolist(), special) for row in tokens]


def searched(case, beams, **options):
    """The same by the zoo: the tokens of the arrays that `n_best` decodes."""
    translator, arrays = case[2], []
    compute = translator.map_batches
    translator.map_batches = lambda *args: arrays.extend(compute(*args)) or arrays
    options |= {"length_penalty": 1.0, "max_length": LENGTH, "sentences": False}
    try:
        translator.n_best(TEXTS, beam_size=beams, **options)
    finally:
        del translator.map_batches
    return [strip(tokens[0].tolist(), translator.special_tokens) for tokens, *_ in arrays]


def strip(tokens, special):
    tokens = [token for token in tokens if token != special.pad]
    return tokens[: tokens.index(special.end)] if special.end in tokens else tokens


@pytest.mark.parametrize(
    "case, name, beams",
    [
        *(("marian", name, 4) for name in OPTIONS),
        ("marian", "all", 1),
        *((kind, "all", beams) for kind in MULTILINGUAL for beams in (1, 4)),
    ],
    indirect=["case"],
)
def test_translations_are_those_of_generate(case, name, beams):
    expected = generated(case, beams, **OPTIONS[name])
    assert searched(case, beams, **OPTIONS[name]) == expected
    if name not in ("nothing", "all"):
        assert expected != generated(case, beams)


@two
def test_the_forced_end_token(case, beams=4):
    expected = generated(case, beams, forced_eos_token_id=case[2].special_tokens.end)
    assert searched(case, beams, forced_eos=True) == expected
    assert max(map(len, expected)) == LENGTH - 1


def excluded(case):
    """The case with padding that is often the likeliest token."""
    folder, model, translator = case
    pad = translator.special_tokens.pad
    before = translator.model.output_bias.numpy().copy()
    bias = before + 12.0 * (np.arange(len(before)) == pad)
    translator.model.output_bias.assign(bias)
    model.final_logits_bias = torch.tensor(bias)[None]
    yield
    translator.model.output_bias.assign(before)
    model.final_logits_bias = torch.tensor(before)[None]


@marian
@pytest.mark.parametrize("beams", [1, 4])
def test_excluded_tokens_may_have_no_probability(case, beams):
    pad = contextlib.contextmanager(excluded)(case)
    with pad:
        expected = generated(case, beams, renormalize_logits=True)
        assert searched(case, beams, renormalize_logits=True) == expected
        assert searched(case, beams) == generated(case, beams)
        assert beams == 1 or expected != generated(case, beams)
        options = {"repetition_penalty": 1.4, "no_repeat_ngram_size": 2, "min_length": 6}
        options["renormalize_logits"] = True
        assert searched(case, beams, **options) == generated(case, beams, **options)
        if beams > 1:
            found = case[1].generate(
                **encoded(case[2]),
                num_beams=beams,
                length_penalty=1.0,
                max_length=LENGTH + 1,
                renormalize_logits=True,
                bad_words_ids=[[case[2].special_tokens.pad]],
                output_scores=True,
                return_dict_in_generate=True,
            )
            scores = case[2].n_best(
                TEXTS,
                beam_size=beams,
                length_penalty=1.0,
                max_length=LENGTH,
                renormalize_logits=True,
            )
            np.testing.assert_allclose(
                [best.score for [best, *_] in scores], found.sequences_scores, atol=1e-4
            )


@marian
def test_a_saved_translator_excludes_the_same_tokens(case, tmp_path):
    """As OPUS-MT's folders do: texts, scores of several translations, and `score`."""
    translator = case[2]
    special = translator.special_tokens
    before = translator.search_options
    with contextlib.contextmanager(excluded)(case):
        translator.search_options = {"renormalize_logits": True}
        try:
            zoo.save_hf(translator, tmp_path)
            best = translator.n_best(TEXTS, n=3)
            found = translator.score(SOURCES, TARGETS)
        finally:
            translator.search_options = before
        with_padding = translator.score(SOURCES, TARGETS)
    model = marian_model(tmp_path)
    assert model.generation_config.renormalize_logits
    generation = {"output_scores": True, "return_dict_in_generate": True}
    expected = model.generate(**encoded(translator), num_return_sequences=3, **generation)
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path)
    texts = tokenizer.batch_decode(expected.sequences, skip_special_tokens=True)
    answers = [answer for answers in best for answer in answers]
    assert [text for text, _ in answers] == texts
    np.testing.assert_allclose(
        [score for _, score in answers], expected.sequences_scores, atol=1e-4
    )
    sums = []
    for source, target in translator._pairs(SOURCES, TARGETS):
        inputs = {"input_ids": torch.tensor([source])}
        inputs["decoder_input_ids"] = torch.tensor([[special.start, *target[:-1]]])
        with torch.no_grad():
            logits = model(**inputs).logits[0]
        logits[:, special.pad] = -np.inf
        log_probs = torch.log_softmax(logits, dim=-1)[range(len(target)), target]
        sums.append(float(log_probs.sum()))
    np.testing.assert_allclose(found, sums, atol=1e-3)
    assert not np.allclose(with_padding, sums, atol=0.1)


@two
def test_a_given_beginning(case, beams=4):
    translator, prefix = case[2], TEXTS[1].split()[0]
    special, options = translator.special_tokens, OPTIONS["all"]
    [ids] = translator.target_tokenizer.encode([prefix])
    code = [*special.prefix]
    expected = generated(case, beams, [*code, *ids], **options)
    assert searched(case, beams, target_prefix=prefix, **options) == expected
    [start] = translator.target_tokenizer.decode([ids])
    assert all(text.startswith(start) for text in translator(SOURCES, target_prefix=prefix))
