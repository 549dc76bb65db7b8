"""BLEU, chrF and exact matches of translations, by sacrebleu.

Sources: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018, "A Call for Clarity in
Reporting BLEU Scores" (tokenizers and signatures).
"""

import re

from zoo.errors import UserError

_SCRIPTS = (  # characters, the least share of them in a text, sacrebleu's tokenizers
    ("\u3041-\u30ff\uff66-\uff9f", 0.05, ("ja-mecab", "char")),  # kana
    ("\uac00-\ud7a3", 0.2, ("ko-mecab", "char")),  # Hangul
    ("\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af", 0.2, ("zh",)),  # Chinese
    # Thai, Lao, Tibetan, Burmese, Khmer, Tai Lue, Balinese and Javanese: no spaces between words
    ("\u0e01-\u109f\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1b7f\ua980-\uaa7f", 0.2, ("char",)),
)


def bleu_tokenizer(references, name=None):
    """sacrebleu's tokenizer of BLEU for these references, a list of str: `name` if it is given.

    Else that of their script: "zh" for Chinese; "ja-mecab" and "ko-mecab", or "char" if the
    packages that they need are not installed; "char" for other scripts without spaces; or "13a".

    Raises:
        UserError: if `name` is given and not one of sacrebleu's, or cannot be used.
    """
    return _bleu(references, name)[0]


def _bleu(references, given):
    """(name of the tokenizer, metric), see `bleu_tokenizer`; `given` is a name or None."""
    from sacrebleu.metrics import BLEU

    for name in _names(references) if given is None else (given,):
        try:
            metric = BLEU(tokenize=name)
            # Without a sequence of four words, the geometric mean over four lengths would be 0.
            is_short = all(len(metric.tokenizer(text).split()) < 4 for text in references)
            return name, BLEU(tokenize=name, effective_order=is_short and bool(references))
        except (AssertionError, KeyError, ImportError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())  # a package, the network or the name
            if isinstance(error, KeyError):
                reason = f"sacrebleu has {', '.join(BLEU.TOKENIZERS)}"
    raise UserError(f"BLEU cannot use the tokenizer {name}: {reason}")


def _names(references):
    """The tokenizers for the script of texts, of which the first that can be used is taken."""
    text = "".join("".join(references).split())
    for characters, share, names in _SCRIPTS:
        if len(re.findall(f"[{characters}]", text)) > share * len(text):
            return names
    return ("13a",)


def translation_scores(translations, references, bleu_tokenize=None):
    """Computes BLEU and chrF with sacrebleu on the raw text, and the share of exact matches.

    Args:
        translations, references: lists of str of the same length.
        bleu_tokenize: name of sacrebleu's tokenizer of BLEU, see `bleu_tokenizer`.

    Returns:
        dict with "bleu" and "chrf", 0 to 100, "bleu_signature", "chrf_signature", and
        "exact_match", the share of translations equal to their reference, 0 to 1.

    Raises:
        UserError: see `bleu_tokenizer`.
    """
    from sacrebleu.metrics import CHRF

    _, bleu = _bleu(references, bleu_tokenize)
    scores = {}
    for name, metric in (("bleu", bleu), ("chrf", CHRF())):
        scores[name] = metric.corpus_score(translations, [references]).score
        scores[f"{name}_signature"] = str(metric.get_signature())
    same = sum(map(str.__eq__, translations, references))
    return {**scores, "exact_match": same / len(references)}


def compared_translations(translations, references, bleu_tokenize=None):
    """Computes BLEU, chrF and TER with confidence intervals, and compares with the first.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation" (paired
    bootstrap resampling, here of 1,000 samples).

    Args:
        translations: list of translations of each model, lists of str.
        references: list of str for each of one or several references of all texts.
        bleu_tokenize: see `translation_scores`.

    Returns:
        For each model a dict: for each of "bleu", "chrf" and "ter" the score, "_interval", the
        half width of its 95 % interval, "_signature", and but for the first model "_p_value".
    """
    from sacrebleu.metrics import CHRF, TER
    from sacrebleu.significance import PairedTest

    # Of Chinese and Japanese, words are characters.
    asian = _names(references[0])[0] in ("zh", "ja-mecab")
    ter = TER(normalized=asian, asian_support=asian)
    metrics = {"bleu": _bleu(references[0], bleu_tokenize)[1], "chrf": CHRF(), "ter": ter}
    named = [(str(number), [*texts]) for number, texts in enumerate(translations)]
    test = PairedTest(named, metrics, references, test_type="bs", n_samples=1000)
    signatures, found = test()
    reports = [{} for _ in named]
    for name, key in zip(metrics, signatures):
        for report, result in zip(reports, found[key]):
            values = {"": result.score, "_interval": result.ci, "_p_value": result.p_value}
            report |= {f"{name}{part}": float(x) for part, x in values.items() if x is not None}
            report[f"{name}_signature"] = str(signatures[key])
    return reports
