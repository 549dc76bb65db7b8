"""The training run of a translator."""


def train_translator(
    run,
    translator,
    optimizer,
    data,
    config,
    epochs,
    patience,
    tokens_per_batch,
    accumulation=1,
    label_smoothing=0.0,
    average_last=1,
):
    """Trains a translator, then averages its weights, translates the test set and reports.

    Args:
        run: `zoo.training.run.Run`.
        translator: `zoo.tasks.translator.Translator` of the model to train.
        optimizer: `keras.optimizers.Optimizer`.
        data: `zoo.data.tokenized_corpus.TokenizedCorpus`.
        config: the settings that affect the result; see `Run.train`.
        epochs: maximum number of epochs.
        patience: see `zoo.training.callbacks.EarlyStopping`.
        tokens_per_batch, accumulation: see `zoo.data.translation_batches.training_batches`.
        label_smoothing: see `zoo.training.losses.SmoothedCrossEntropy`.
        average_last: number of epochs; see `zoo.training.averaging.AverageCheckpoints`.
    """
    from zoo.data import translation_batches as batches
    from zoo.training.averaging import AverageCheckpoints
    from zoo.training.callbacks import EarlyStopping
    from zoo.training.losses import SmoothedCrossEntropy, TokenAccuracy
    from zoo.training.run_folder import checksum, fingerprint
    from zoo.training.translation_report import finish_translator

    train, valid = data.train, data.valid
    tokenizers = checksum(*(tokenizer.to_dict() for tokenizer in data.tokenizers))
    config = {**config, "checksum of the tokenizers": tokenizers}
    if config.get("weights"):
        config["model of weights"] = fingerprint(translator.model, translator.description())

    def average(folder):
        return AverageCheckpoints(folder, average_last, run.is_chief)

    def finish(folder, trained):
        translator.model, averaged = trained, average(folder.path)
        averaged.average(trained)
        finish_translator(folder, translator, data.test, train, valid)
        averaged.remove()

    run.train(
        translator.model,
        lambda step: batches.training_batches(
            train, tokens_per_batch, run.settings.seed, step, accumulation
        ),
        epochs=epochs,
        steps_per_epoch=batches.steps_per_epoch(train, tokens_per_batch, accumulation),
        validation_data=batches.evaluation_batches(valid, tokens_per_batch),
        callbacks=lambda folder: [average(folder), EarlyStopping(folder, patience)],
        compiled_with={
            "optimizer": optimizer,
            "loss": SmoothedCrossEntropy(label_smoothing),
            "weighted_metrics": [TokenAccuracy()],
        },
        config=config,
        may_change=("epochs", "patience", "beam_size", "length_penalty"),
        finish=finish,
        tokens_per_epoch=train.num_tokens,
    )
