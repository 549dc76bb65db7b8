"""BLEU, chrF and exact matches at the end of a run, or of `zoo.evaluate`, by sacrebleu.

For a metric after each epoch, see `zoo.training.callbacks`.

Sources: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018, "A Call for Clarity in
Reporting BLEU Scores" (tokenizers and signatures).
"""

import re

from zoo.errors import UserError
from zoo.text.tokenizer import as_texts

_SCRIPTS = (  # characters, their smallest share in a text, sacrebleu's tokenizers
    ("\u3041-\u30ff\uff66-\uff9f", 0.05, ("ja-mecab", "char")),  # kana
    ("\uac00-\ud7a3", 0.2, ("ko-mecab", "char")),  # Hangul
    ("\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af", 0.2, ("zh",)),  # Chinese
    # Thai, Lao, Tibetan, Burmese, Khmer, Tai Lue, Balinese and Javanese: no spaces between words
    ("\u0e01-\u109f\u1780-\u17ff\u1950-\u1aaf\u1b00-\u1b7f\ua980-\uaa7f", 0.2, ("char",)),
)


def bleu_tokenizer(references, name=None):
    """Returns the name of sacrebleu's tokenizer to compute BLEU with.

    Args:
        references: list of str.
        name: the tokenizer. By default, the script of the references decides: "zh" for Chinese;
            "ja-mecab" for Japanese and "ko-mecab" for Korean, or "char" if the package that they
            need is not installed; "char" for other scripts without spaces; else "13a".

    Raises:
        UserError: if `name` is not one of sacrebleu's tokenizers, or cannot be used here.
    """
    from sacrebleu.metrics import BLEU

    candidates = _tokenizers(references) if name is None else (name,)
    for name in candidates:
        try:
            BLEU(tokenize=name)  # some need a package, others download a file
            return name
        except KeyError:
            reason = f"sacrebleu has {', '.join(BLEU.TOKENIZERS)}"
        except (AssertionError, ImportError, OSError, RuntimeError) as error:
            reason = " ".join(str(error).split())
    raise UserError(f"BLEU cannot use the tokenizer {name}: {reason}")


def _metrics(references, bleu_tokenize):
    """sacrebleu's metrics for these references, by their names in reports."""
    from sacrebleu.metrics import BLEU, CHRF, TER

    bleu = BLEU(tokenize=bleu_tokenizer(references, bleu_tokenize))
    # Without a sequence of four words, the geometric mean over four lengths would be 0.
    bleu.effective_order = all(len(bleu.tokenizer(text).split()) < 4 for text in references)
    # In Chinese and Japanese, TER counts edits of characters.
    asian = _tokenizers(references)[0] in ("zh", "ja-mecab")
    return {"bleu": bleu, "chrf": CHRF(), "ter": TER(normalized=asian, asian_support=asian)}


def _tokenizers(references):
    """BLEU's tokenizers for the script of texts, the best first."""
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
        UserError: see `bleu_tokenizer`, or if the arguments are not such lists.
    """
    translations = as_texts(translations)
    references = as_texts(references)
    metrics = _metrics(references, bleu_tokenize)
    scores = {}
    for name in ("bleu", "chrf"):
        metric = metrics[name]
        scores[name] = metric.corpus_score(translations, [references]).score
        scores[f"{name}_signature"] = str(metric.get_signature())
    same = [found == reference for found, reference in zip(translations, references, strict=True)]
    scores["exact_match"] = sum(same) / len(references)
    return scores


def compared_translations(translations, references, bleu_tokenize=None):
    """Computes BLEU, chrF and TER with confidence intervals, and compares with the first.

    Source: Koehn 2004, "Statistical Significance Tests for Machine Translation Evaluation" (paired
    bootstrap resampling, here of 1,000 samples).

    Args:
        translations: a list of str for each model.
        references: a list of str for each set of references; "" is no reference.
        bleu_tokenize: see `translation_scores`.

    Returns:
        For each model a dict of "bleu", "chrf" and "ter". Each has "_interval", the half width of
        its 95 % interval; "_signature"; and, except for the first model, "_p_value".
    """
    from sacrebleu.significance import PairedTest

    metrics = _metrics([text for texts in references for text in texts], bleu_tokenize)
    named = [(str(number), [*texts]) for number, texts in enumerate(translations)]
    test = PairedTest(named, metrics, references, test_type="bs", n_samples=1000)
    signatures, results = test()
    reports = [{} for _ in named]
    for name, key in zip(metrics, signatures):
        for report, result in zip(reports, results[key]):
            report[name] = float(result.score)
            report[f"{name}_interval"] = float(result.ci)
            if result.p_value is not None:
                report[f"{name}_p_value"] = float(result.p_value)
            report[f"{name}_signature"] = str(signatures[key])
    return reports
