"""Folders of translation models with random weights, written by the library transformers."""

import numpy as np
import torch

from zoo.data.phrasebook import phrasebook_pairs
from zoo.data.tokenized_corpus import encode_pairs
from zoo.training.losses import SmoothedCrossEntropy

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


torch.set_num_threads(1)


def pairs(count=1000):
    return phrasebook_pairs(count)


def trained(model, sources, targets, steps=100):
    """Adds noise to all parameters and trains for seconds, so that translations differ and end.

    Args:
        model: of transformers.
        sources, targets: tokens of the same number of texts, each with its control ids.
    """
    generator = torch.Generator().manual_seed(0)
    pad = model.config.pad_token_id
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # the sinusoids are not trained
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.1)
        if hasattr(model, "final_logits_bias"):
            bias = model.final_logits_bias
            bias.add_(torch.randn(bias.shape, generator=generator) * 0.2)
    embeddings = model.get_input_embeddings(), model.get_decoder().embed_tokens
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for step in range(steps):
        chosen = range(step * 32 % (len(sources) - 32), step * 32 % (len(sources) - 32) + 32)
        source = padded([sources[index] for index in chosen], pad)
        labels = padded([targets[index] for index in chosen], -100)
        loss = model(input_ids=source, attention_mask=(source != pad).long(), labels=labels).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for embedding in embeddings:
                embedding.weight[pad] = 0  # as it is published
    if hasattr(model, "final_logits_bias"):
        model.final_logits_bias[0, pad] = -50.0  # never generated
    return model.eval()


def padded(rows, pad):
    width = max(map(len, rows))
    return torch.tensor([row + [pad] * (width - len(row)) for row in rows])


def source_texts():
    """64 sentences: some of one word, with unknown characters, and the longest allowed."""
    texts = [source for source, _ in pairs()[:56]]
    words = " ".join(source for source, _ in pairs()[100:140]).split()
    short = ["hello", "no", "\U0001f600 hello", "x \u4f60"]
    return [*texts, *short, *(" ".join(words[:n]) for n in (20, 30, 36, 40))]


def logits_difference(translator, model, rows):
    """The largest difference of the logits, for batches of padded tokens."""
    special = translator.special_tokens
    source = padded(rows, special.pad)
    size = translator.model.target_vocab_size
    target = np.random.default_rng(0).integers(3, size - 2, (len(rows), 9))
    target[:, 0] = special.start
    with torch.no_grad():
        expected = model(
            input_ids=source,
            attention_mask=(source != special.pad).long(),
            decoder_input_ids=torch.tensor(target),
        ).logits.numpy()
    found = translator.model({"source": source.numpy(), "target": target})
    return np.abs(expected - np.asarray(found)).max(), np.abs(expected).max()


def losses(translator, model, folder):
    """The loss of padded batches in the recipe and that of transformers for the same labels."""
    texts = [*pairs()[:4], ("x " * 40, "y"), ("x", "y " * 50)]
    tokenizers = translator.source_tokenizer, translator.target_tokenizer
    special = translator.special_tokens
    encoded = encode_pairs(texts, *tokenizers, folder, 128, "train", special)
    width = len(encoded.length_counts) + 2  # longer than the longest
    inputs, labels, weights = encoded.batch(np.arange(6), (6, width))
    weights /= encoded.num_tokens
    found = SmoothedCrossEntropy()(labels, translator.model(inputs), weights)
    source = torch.tensor(inputs["source"])
    with torch.no_grad():
        expected = model(
            input_ids=source.long(),
            attention_mask=(source != special.pad).long(),
            labels=torch.tensor(np.where(weights > 0, labels, -100)).long(),
        ).loss
    assert (labels[:, 0] == special.first).all() or special.first is None
    return float(found), float(expected)


def generated(model, rows, special, length):
    """The tokens of the best translation by transformers, without start, end and padding."""
    source = padded(rows, special.pad)
    tokens = model.generate(
        input_ids=source,
        attention_mask=(source != special.pad).long(),
        num_beams=4,
        max_length=length + 1,
        bad_words_ids=[[special.pad]],
        forced_bos_token_id=special.first,
        length_penalty=1.0,
    )
    return [strip(row[1:].tolist(), special) for row in tokens]


def searched(translator, rows, length):
    """The same by the zoo."""
    settings = {"beam_size": 4, "buffer_length": length, "options": translator.options()}

    def search(batch):
        tensors = (*batch.tokens, np.float32(1.0), np.int32(length))
        return translator.run(translator.search, *tensors, **settings)

    found = translator.compute([[row] for row in rows], search)
    return [strip(tokens[0].tolist(), translator.special_tokens) for tokens, *_ in found]


def strip(tokens, special):
    tokens = [token for token in tokens if token != special.pad]
    return tokens[: tokens.index(special.end)] if special.end in tokens else tokens
