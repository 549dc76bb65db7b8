"""``python -m zoo translate``."""

import sys
from typing import Literal

from zoo.commands.shared import (
    NO_SEARCH,
    File,
    Int,
    Items,
    RunFolder,
    SearchFlags,
    Shortlist,
    SourceLanguage,
    Str,
    TargetLanguage,
    WholeTexts,
    flag,
    given,
    load,
    one_line,
    read_texts,
)
from zoo.errors import UserError
from zoo.files import as_path

FEW_TEXTS = 8  # up to this number, compiling by XLA takes longer than it saves


def translate(
    run_folder: RunFolder,
    texts: Items = (),
    file: File = None,
    beam_size: Int = None,
    n_best: int = 1,
    too_long: flag(Literal["error", "split", "truncate"] | None, "{error,split,truncate}") = None,
    sentences: WholeTexts = True,
    keep_signs: flag(bool, None) = False,
    attention: flag(str | None, "PNG") = None,
    engine: Str = None,
    dtype: Str = None,
    src_lang: SourceLanguage = None,
    tgt_lang: TargetLanguage = None,
    shortlist: Shortlist = False,
    max_length: Int = None,
    target_prefix: Str = None,
    search: SearchFlags = NO_SEARCH,
):
    """Translate texts.

    For example: python -m zoo translate runs/translate_phrasebook "Good morning."

    Args:
        texts: texts; by default the lines of standard input
        beam_size: beam size; 1 is greedy search (the run's)
        n_best: translations per text; above 1 each text as a whole, with its number and scores
        too_long: how to handle a sentence, or a text, that is too long for the model (split;
            truncate of text-to-text models)
        keep_signs: keep signs and emoji that are not tokens in their places
        attention: plot the attention weights
        engine: ctranslate2 in place of TensorFlow, often faster on CPUs
        dtype: dtype, such as bfloat16 or int8 (the run's); with --engine float32 or int8 (float32)
        max_length: maximum number of tokens of a translation (the run's)
        target_prefix: beginning of each translation
    """
    batches = read_texts(texts, file)
    if attention:
        if not attention.lower().endswith(".png"):
            raise UserError(f"--attention writes a PNG file, such as a.png. Received: {attention}.")
        lines = [line for batch in batches for line in batch]
        if len(lines) != 1:
            raise UserError(f"--attention takes one text. Received: {len(lines)}.")
        batches = [lines]
    translator = load(
        run_folder,
        "translate",
        dtype=dtype,
        engine=engine,
        src_lang=src_lang,
        tgt_lang=tgt_lang,
        shortlist=shortlist,
    )
    from zoo.text.encoding import unknown_signs

    translator.keep_signs |= keep_signs
    number = 0
    dropped = set()
    for batch in batches:
        translator.jit_compile = len(batch) > FEW_TEXTS
        translations = translator.n_best(
            batch,
            n_best,
            beam_size,
            max_length=max_length,
            target_prefix=target_prefix,
            too_long=too_long or translator.long_texts,
            sentences=sentences and n_best == 1 and translator.splits_sentences,
            **given(**search._asdict()),
        )
        for line, best in zip(batch, translations):
            number += 1
            dropped |= unknown_signs(translator.source_tokenizer, line) - {*best[0].text}
            for text, score in best:
                if n_best > 1:
                    print(number, f"{score:.4f}", one_line(text), sep="\t")
                elif len(texts) == 1:
                    print(text)
                elif texts:
                    print(one_line(text))
                else:  # a line, which may have tabs
                    print(text.replace("\n", "\\n"))
        sys.stdout.flush()
    if dropped:
        signs = " ".join(sorted(dropped)[:10])
        print(
            f"Some signs that are not tokens were dropped: {signs}. --keep-signs keeps them.",
            file=sys.stderr,
        )
    if attention:
        from zoo.training.pictures import cross_attention

        alignment = translator.alignment(lines[0], translations[0][0].text)
        path = as_path(attention)
        cross_attention(alignment.weights, alignment.source, alignment.target, path)
