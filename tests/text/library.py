"""Tokenizers of GPT-2 and BERT, made by the library `tokenizers`."""

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from zoo.text.library_tokenizer import LibraryTokenizer


def byte_level_bpe(vocab, merges, control=(), add_prefix_space=False):
    library = tokenizers.Tokenizer(models.BPE(vocab, [*map(tuple, merges)]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space)
    library.add_special_tokens([*control])
    return LibraryTokenizer(library.to_str())


def learned_byte_level_bpe(texts, vocab_size):
    library = tokenizers.Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size, initial_alphabet=alphabet, show_progress=False
    )
    library.train_from_iterator(texts, trainer)
    return LibraryTokenizer(library.to_str())


def wordpiece(vocab, control=(), unknown="[UNK]", **options):
    library = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    library.normalizer = normalizers.BertNormalizer(**options)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens([*control])
    return LibraryTokenizer(library.to_str())
