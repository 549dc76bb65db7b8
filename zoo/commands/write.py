"""``python -m zoo translate`` and ``generate``."""

import itertools
from typing import Annotated, Literal, NamedTuple

from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction

from zoo.commands import shared
from zoo.commands.shared import Float, Int, RunFolder, Source, Target, Text, app, flag
from zoo.errors import UserError

FEW_TEXTS = 8  # are translated sooner without XLA, which compiles a search for seconds


class Search(NamedTuple):
    """What a text may contain."""

    no_repeat_ngram_size: flag(int | None, "N", "no N tokens in a row occur twice (the run's)") = (
        None
    )
    repetition_penalty: flag(float | None, "X", "above 1 favors other tokens (the run's)") = None
    min_length: flag(int | None, "N", "least number of tokens, as in transformers (the run's)") = (
        None
    )
    suppress_tokens: flag(
        UseAppendAction[tuple[int, ...]],
        "ID",
        "a token that is never written; repeatable",
        name="suppress-token",
    ) = ()

    def options(self):
        """The `zoo.decoding.SearchOptions` that were given."""
        return {name: value for name, value in self._asdict().items() if value not in (None, ())}


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
    max_length: Int = None,
    target_prefix: Text = None,
    search: SearchFlags = NO_SEARCH,
):
    """Translate texts.

    Args:
        texts: texts; by default the lines of standard input
        beam_size: beam size; 1 is greedy search (the run's)
        n_best: translations per text, which is translated as it is; with scores if above 1
        too_long: how to handle a text, or a sentence of it, that is too long for the model
        attention: plot the attention weights
        engine: ctranslate2 computes in place of TensorFlow, often faster on CPUs
        dtype: such as bfloat16 or int8 (the run's); with --engine float32 or int8 (float32)
        max_length: largest number of tokens of a translation (the run's)
        target_prefix: beginning of each translation
    """
    lines = shared.read_texts(texts, file)
    if attention and len(lines) != 1:
        raise UserError(f"--attention takes one text. Received: {len(lines)}.")
    options = {"dtype": dtype, "engine": engine, "src_lang": src_lang, "tgt_lang": tgt_lang}
    translator = shared.load(run_folder, "translate", **options)
    translator.jit_compile = len(lines) > FEW_TEXTS
    options = {"max_length": max_length, "target_prefix": target_prefix, **search.options()}
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
        top_k: draw from the k most likely tokens
        top_p: draw from the likeliest tokens with this total probability
        seed: seed of the draws (0)
        beam_size: beam search instead; 1 is greedy search
        dtype: of the model, such as bfloat16 or int8 (the run's)
    """
    sampling = shared.given(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    if sampling and beam_size is not None:
        flags = ", ".join("--" + name.replace("_", "-") for name in sampling)
        raise UserError(f"--beam-size searches and does not sample. Remove {flags}.")
    generator = shared.load(run_folder, "generate", dtype=dtype)
    generator.jit_compile = False  # one text is continued sooner than XLA compiles a search
    options = {"max_new_tokens": max_new_tokens, **search.options()}
    if beam_size is None:
        [[drawn]] = generator.sample([prompt], **sampling, **options)
        print(drawn.text)
    else:
        print(generator([prompt], beam_size=beam_size, **options)[0])
