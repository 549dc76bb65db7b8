"""Small folders of GPT-2 and BERT in the published layout, with drawn weights."""

import json

import tokenizers
from safetensors.numpy import save_file
from tokenizers import models, normalizers, pre_tokenizers, trainers

from tests.checkpoints import drawn
from zoo.data.phrasebook import phrasebook_pairs

LINES = [line for pair in phrasebook_pairs(200) for line in pair]
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write(folder, config, shapes, tokenizer, without=(), **changed):
    """Writes config.json, model.safetensors and the files of a tokenizer, {name: text}."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **changed}))
    tensors = drawn.tensors(shapes)
    save_file({k: v for k, v in tensors.items() if k not in without}, folder / "model.safetensors")
    for name, text in tokenizer.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def gpt2_tokenizer(size=400):
    """vocab.json and merges.txt; "<|endoftext|>" has the first id."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = "\n".join(["#version: 0.2", *(f"{left} {right}" for left, right in model["merges"])])
    return {"vocab.json": json.dumps(model["vocab"]), "merges.txt": merges + "\n"}


def bert_tokenizer(lowercase=True, **settings):
    """vocab.txt of 300 tokens and tokenizer_config.json."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    words = [
        word
        for line in LINES
        for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(
            normalizer.normalize_str(line)
        )
    ]
    letters = sorted({letter for word in words for letter in word})
    tokens = [*BERT_TOKENS, *letters[:-3], *(f"##{letter}" for letter in letters[:-3])]
    tokens += [*dict.fromkeys(words), *(f"##{word[1:3]}" for word in words if len(word) > 2)]
    tokens = [*dict.fromkeys(tokens)][:300]
    settings = {"do_lower_case": lowercase, **settings}
    return {"vocab.txt": "\n".join(tokens) + "\n", "tokenizer_config.json": json.dumps(settings)}
