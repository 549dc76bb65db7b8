"""The end of a translation run: scores the model, writes the files and prints a summary."""

from zoo.errors import TextError
from zoo.training import pictures
from zoo.training.run_folder import median

_NUM_SAMPLES = 5  # translations in the printed summary
_ATTENTION_LENGTHS = (5, 20)  # fewest and most tokens of the sentence in attention.png


def finish_translator(run, translator, test, train, valid):
    """Translates the test pairs and writes model, metrics and plots to the run directory.

    Args:
        run: `zoo.training.run_folder.RunFolder` that contains ``history.csv``.
        translator: `zoo.tasks.translator.Translator`.
        test: list of (source, target), two str.
        train, valid: `zoo.data.encoded_pairs.EncodedPairs`.
    """
    print("Translating the test sentences, saving the model and drawing plots ...")
    translator.save(run.path)
    sources, references = map(list, zip(*test))
    translations = translator(sources, too_long="split")
    history = run.history()
    metrics = {
        **scores(translations, references),
        "test_sentences": len(sources),
        "val_loss": history["val_loss"][-1],
        "val_accuracy": history["val_accuracy"][-1],
        "epochs": len(history["epoch"]),
        "tokens_per_second": median(history["tokens_per_second"]),
        "parameters": translator.model.count_params(),
        "source_vocab_size": translator.source_tokenizer.vocab_size,
        "target_vocab_size": translator.target_tokenizer.vocab_size,
        "train_pairs": len(train),
        "train_pairs_too_long": train.skipped,
        "valid_pairs": len(valid),
    }
    rows = list(zip(sources, references, translations))
    _write_translations(rows, run / "translations.tsv")
    pictures.token_curves(history, run / "learning_curves.png")
    plots = ["learning_curves.png"]
    if _draw_attention(translator, sources, run / "attention.png"):
        plots.append("attention.png")
    run.write_json("metrics.json", metrics)
    _print_summary(run, metrics, rows, plots)


def scores(translations, references):
    """Computes BLEU and chrF with sacrebleu on the raw text, and the share of exact matches.

    Sources: Papineni et al. 2002 (BLEU); Popović 2015 (chrF); Post 2018, "A Call for Clarity in
    Reporting BLEU Scores" (signatures).

    Args:
        translations, references: lists of str of the same length.

    Returns:
        dict with "bleu" and "chrf", 0 to 100, "bleu_signature", "chrf_signature", and
        "exact_match", the share of translations equal to their reference, 0 to 1.
    """
    from sacrebleu.metrics import BLEU, CHRF

    report = {}
    for name, metric in (("bleu", BLEU()), ("chrf", CHRF())):
        report[name] = metric.corpus_score(translations, [references]).score
        report[f"{name}_signature"] = str(metric.get_signature())
    same = sum(map(str.__eq__, translations, references))
    return {**report, "exact_match": same / len(references)}


def _write_translations(rows, path):
    """Writes source, reference and translation of each test sentence, tab-separated."""
    with open(path, "w", encoding="utf-8") as file:
        for row in (("source", "reference", "translation"), *rows):
            file.write("\t".join(" ".join(text.split()) for text in row) + "\n")


def _draw_attention(translator, sources, path):
    """Draws the alignment of a source of a few tokens; returns whether there is one."""
    lengths = map(len, translator.source_tokenizer.encode(sources))
    low, high = _ATTENTION_LENGTHS
    high = min(high, translator.max_source_length - 1)
    fitting = [s for s, n in zip(sources, lengths) if low <= n <= high]
    text = (fitting or sorted(sources, key=len))[0]
    try:
        found = translator.alignment(text)
    except TextError:  # it is too long for the model, or the result is NaN
        return False
    pictures.cross_attention(found.weights, found.source, found.target, path)
    return True


def _print_summary(run, metrics, rows, plots):
    print()
    for source, reference, translation in rows[:_NUM_SAMPLES]:
        verdict = "same as the reference" if reference == translation else f"reference: {reference}"
        print(f"  {source}\n    {translation}\n    ({verdict})")
    print(
        f"\nBLEU               {metrics['bleu']:.2f}  {metrics['bleu_signature']}\n"
        f"chrF               {metrics['chrf']:.2f}  {metrics['chrf_signature']}\n"
        f"exact matches      {metrics['exact_match']:.2%} of {metrics['test_sentences']:,}\n"
        f"tokens/s           {metrics['tokens_per_second'] or 0:,.0f} in training\n"
        f"parameters         {metrics['parameters']:,}\n"
        f"model              zoo.load({str(run.path)!r})(['A sentence.'])\n"
        f"plots              {', '.join(plots)}\n"
        f"metrics            metrics.json, history.csv; translations.tsv has all translations; "
        f"tensorboard --logdir {run.path}\n"
        "run directory:"
    )
    print(run.path)
