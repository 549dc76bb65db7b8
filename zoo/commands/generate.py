"""``python -m zoo translate`` and ``generate``."""

import itertools
from typing import Annotated, Literal, NamedTuple

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from zoo.commands import shared
from zoo.commands.shared import Float, Int, RunFolder, Source, Target, Text, app, flag
from zoo.errors import UserError

FEW_TEXTS = 8  # up to this number, compiling by XLA takes longer than it saves


class Search(NamedTuple):
    """By default those of the model."""

    no_repeat_ngram_size: flag(int | None, "N", "no N tokens in a row occur twice") = None
    repetition_penalty: flag(float | None, "X", "values above 1 reduce repetition") = None
    min_length: flag(int | None, "N", "minimum number of tokens") = None
    suppress_tokens: flag(
        UseAppendAction[tuple[int, ...]],
        "ID",
        "token that is never generated; repeatable",
        name="suppress-token",
    ) = ()


SearchFlags, NO_SEARCH = Annotated[Search, OmitArgPrefixes], Search()


@app.command
def translate(
    run_folder: RunFolder,
    texts: shared.Items = (),
    file: shared.File = None,
    beam_size: Int = None,
    n_best: int = 1,
    too_long: Literal["error", "split"] = "split",
    sentences: shared.Whole = True,
    attention: flag(str | None, "PNG") = None,
    engine: Text = None,
    dtype: Text = None,
    src_lang: Source = None,
    tgt_lang: Target = None,
    shortlist: shared.Shortlist = False,
    max_length: Int = None,
    target_prefix: Text = None,
    search: SearchFlags = NO_SEARCH,
):
    """Translate texts.

    Args:
        texts: texts; by default the lines of standard input
        beam_size: beam size; 1 is greedy search (the run's)
        n_best: translations per text; above 1 with scores, and each text as a whole
        too_long: how to handle a sentence, or a text, that is too long for the model
        attention: plot the attention weights
        engine: ctranslate2 in place of TensorFlow, often faster on CPUs
        dtype: dtype, such as bfloat16 or int8 (the run's); with --engine float32 or int8 (float32)
        max_length: maximum number of tokens of a translation (the run's)
        target_prefix: beginning of each translation
    """
    lines = shared.read_texts(texts, file)
    if attention and len(lines) != 1:
        raise UserError(f"--attention takes one text. Received: {len(lines)}.")
    options = {"dtype": dtype, "engine": engine, "src_lang": src_lang, "tgt_lang": tgt_lang}
    translator = shared.load(run_folder, "translate", shortlist=shortlist, **options)
    translator.jit_compile = len(lines) > FEW_TEXTS
    options = {"max_length": max_length, "target_prefix": target_prefix}
    options |= shared.given(**search._asdict())
    options |= {"too_long": too_long, "sentences": sentences and n_best == 1}
    translations = translator.n_best(lines, n_best, beam_size, **options)
    for text, score in itertools.chain(*translations):
        print(f"{score:.4f}\t{text}" if n_best > 1 else text)
    if attention:
        from zoo.training.pictures import cross_attention

        alignment = translator.alignment(lines[0], translations[0][0].text)
        cross_attention(alignment.weights, alignment.source, alignment.target, attention)


@app.command
def generate(
    run_folder: RunFolder,
    prompt: flag(Positional[str], "PROMPT"),
    max_new_tokens: Int = None,
    temperature: Float = None,
    top_k: Int = None,
    top_p: Float = None,
    seed: Int = None,
    beam_size: Int = None,
    dtype: Text = None,
    search: SearchFlags = NO_SEARCH,
):
    """Continue a text.

    Args:
        prompt: beginning of the text; may be empty
        max_new_tokens: maximum number of new tokens (64, or as many as fit)
        temperature: below 1 favors likely tokens (1)
        top_k: sample from the k most likely tokens
        top_p: sample from the most likely tokens with this total probability
        seed: random seed (0)
        beam_size: beam search instead; 1 is greedy search
        dtype: dtype, such as bfloat16 or int8 (the run's)
    """
    sampling = shared.given(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    if sampling and beam_size is not None:
        flags = ", ".join("--" + name.replace("_", "-") for name in sampling)
        raise UserError(f"--beam-size selects beam search, without sampling. Remove {flags}.")
    generator = shared.load(run_folder, "generate", dtype=dtype)
    generator.jit_compile = False  # compiling would take longer than one search
    options = {"max_new_tokens": max_new_tokens, **shared.given(**search._asdict())}
    if beam_size is None:
        [[sample]] = generator.sample([prompt], **sampling, **options)
        print(sample.text)
    else:
        print(generator([prompt], beam_size=beam_size, **options)[0])
