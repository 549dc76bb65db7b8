"""The end of a run of a language model: measures it, writes the files and prints a summary."""

import math

from zoo.training import pictures
from zoo.training.run_folder import median

_PROMPT_CHARACTERS = 60


def finish_generator(run, generator, train, valid_texts):
    """Saves the model, continues some texts, and writes metrics and plots to the run directory.

    Args:
        run: `zoo.training.run_folder.RunFolder` that contains ``history.csv``.
        generator: `zoo.tasks.generator.TextGenerator`.
        train: the training tokens.
        valid_texts: list of held-out texts.
    """
    print("Continuing held-out texts, saving the model and drawing plots ...")
    generator.save(run.path)
    history, tokenizer = run.history(), generator.tokenizer
    loss = history["val_loss"][-1]
    tokens = sum(len(ids) + 1 for ids in tokenizer.encode(valid_texts))
    size = sum(len(text.encode()) for text in valid_texts)
    metrics = {
        "val_loss": loss,
        "val_accuracy": history["val_accuracy"][-1],
        "perplexity": math.exp(min(loss, 700.0)),
        "bits_per_byte": loss / math.log(2.0) * tokens / size,
        "epochs": len(history["epoch"]),
        "tokens_per_second": median(history["tokens_per_second"]),
        "parameters": generator.model.count_params(),
        "vocab_size": tokenizer.vocab_size,
        "train_tokens": len(train),
        "valid_tokens": tokens,
    }
    samples = _samples(generator, valid_texts)
    text = "".join(f"--- {prompt!r}\n{sample}\n\n" for prompt, sample in samples)
    (run / "samples.txt").write_text(text, "utf-8")
    pictures.token_curves(history, run / "learning_curves.png")
    run.write_json("metrics.json", metrics)
    _print_summary(run, metrics, samples)


def _samples(generator, texts):
    """(prompt, continued prompt) of the beginnings of some texts."""
    longest = sorted(texts, key=len)[-3:]
    limit = generator.model.max_length // 2
    prompts = [text.strip()[:_PROMPT_CHARACTERS] for text in longest]
    prompts = [prompt for prompt in prompts if len(generator.tokenizer.encode([prompt])[0]) < limit]
    found = generator.sample(prompts, top_p=0.9, max_new_tokens=min(64, limit))
    return [(prompt, sample.text) for prompt, [sample] in zip(prompts, found)]


def _print_summary(run, metrics, samples):
    print()
    for prompt, sample in samples:
        print(f"  {prompt!r} ...\n    {sample.removeprefix(prompt)!r}")
    print(
        f"\nperplexity         {metrics['perplexity']:,.4g} of held-out tokens\n"
        f"bits per byte      {metrics['bits_per_byte']:.3f}\n"
        f"next token         {metrics['val_accuracy']:.2%} correct\n"
        f"tokens/s           {metrics['tokens_per_second'] or 0:,.0f} in training\n"
        f"parameters         {metrics['parameters']:,}\n"
        f"model              zoo.load({str(run.path)!r})(['The model'])\n"
        f"plots              learning_curves.png\n"
        f"metrics            metrics.json, history.csv, samples.txt; "
        f"tensorboard --logdir {run.path}\n"
        "run directory:"
    )
    print(run.path)
