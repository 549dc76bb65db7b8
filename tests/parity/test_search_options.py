"""Options of searches beside `generate` of transformers: exact tokens of small random models.

Scores of competing hypotheses of these models differ by far more than float32 rounds.
"""

import pytest

transformers = pytest.importorskip("transformers", reason="needs the library transformers")
torch = pytest.importorskip("torch")

import zoo  # noqa: E402
from tests.checkpoints.translation_folders import write_m2m100, write_marian  # noqa: E402
from tests.parity.translation_models import padded, strip  # noqa: E402
from zoo.data.phrasebook import phrasebook_pairs  # noqa: E402

TEXTS = [source for source, _ in phrasebook_pairs(8)]
LENGTH = 16
OPTIONS = {
    "nothing": {},
    "ngrams": {"no_repeat_ngram_size": 2, "min_length": 9},
    "tokens": {"no_repeat_ngram_size": 1, "suppress_tokens": [5, 7, 11, 12, 30]},
    "reward": {"repetition_penalty": 0.6, "min_new_tokens": 12},
    "all": {
        "no_repeat_ngram_size": 3,
        "repetition_penalty": 1.7,
        "min_length": 5,
        "suppress_tokens": [6],
    },
}


@pytest.fixture(scope="module", params=[write_marian, write_m2m100], ids=["marian", "m2m100"])
def case(request, tmp_path_factory):
    """(model of transformers, translator)."""
    folder = tmp_path_factory.mktemp("model")
    request.param(folder)
    languages = {} if request.param is write_marian else {"src_lang": "en", "tgt_lang": "es"}
    translator = zoo.load(folder, **languages)
    model = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    if request.param is write_marian:
        for coder in (model.get_encoder(), model.get_decoder()):
            coder.embed_positions.weight.data = coder.embed_positions.create_weight()
        with torch.no_grad():  # some translations end
            model.final_logits_bias[0, translator.special_tokens.end] += 3.0
        translator.model.output_bias.assign(model.final_logits_bias[0].numpy())
    model.generation_config.decoder_start_token_id = translator.special_tokens.start
    return model, translator


def generated(model, translator, beams, prefix=(), **options):
    """The tokens of each translation by transformers, without the start."""
    special = translator.special_tokens
    rows = [[*row, special.end] for row in translator.source_tokenizer.encode(TEXTS)]
    source = padded(rows, special.pad)
    before = [special.start, *prefix]
    tokens = model.generate(
        input_ids=source,
        attention_mask=(source != special.pad).long(),
        decoder_input_ids=torch.tensor([before] * len(rows)),
        num_beams=beams,
        do_sample=False,
        length_penalty=1.0,
        max_length=LENGTH + 1,
        max_new_tokens=None,
        bad_words_ids=[[special.pad]],
        forced_bos_token_id=None if prefix else special.first,
        **{"forced_eos_token_id": None, **options},
    )
    return [strip(row[1:].tolist(), special) for row in tokens]


def found(translator, beams, **options):
    """The same by the zoo: the tokens of the arrays that `n_best` decodes."""
    arrays, joined = [], translator._joined
    translator._joined = lambda layouts, found: arrays.extend(found) or joined(layouts, found)
    try:
        translator(TEXTS, beam_size=beams, length_penalty=1.0, max_length=LENGTH, **options)
    finally:
        del translator._joined
    return [strip(tokens[0].tolist(), translator.special_tokens) for tokens, *_ in arrays]


@pytest.mark.parametrize("beams", [1, 4])
@pytest.mark.parametrize("name", OPTIONS)
def test_translations_are_those_of_generate(case, name, beams):
    model, translator = case
    translator.jit_compile = name == "all"  # takes seconds
    expected = generated(model, translator, beams, **OPTIONS[name])
    assert found(translator, beams, **OPTIONS[name]) == expected
    if {"no_repeat_ngram_size", "repetition_penalty"} & OPTIONS[name].keys():
        assert expected != generated(model, translator, beams)


@pytest.mark.parametrize("beams", [1, 4])
def test_the_forced_end_token(case, beams):
    model, translator = case
    end = translator.special_tokens.end
    expected = generated(model, translator, beams, forced_eos_token_id=end)
    assert found(translator, beams, forced_eos=True) == expected
    assert max(map(len, expected)) == LENGTH - 1


@pytest.mark.parametrize("beams", [1, 4])
def test_a_given_beginning(case, beams):
    model, translator = case
    special, prefix = translator.special_tokens, TEXTS[1].split()[0]
    [ids] = translator.target_tokenizer.encode([prefix])
    code = [] if special.first is None else [special.first]
    options = OPTIONS["all"]
    expected = generated(model, translator, beams, [*code, *ids], **options)
    assert found(translator, beams, target_prefix=prefix, **options) == expected
    [start] = translator.target_tokenizer.decode([ids])
    assert all(text.startswith(start) for text in translator(TEXTS, target_prefix=prefix))
