"""Tokenizers of GPT-2 and BERT, made by the library `tokenizers`."""

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers

from zoo.text.published import LibraryTokenizer


def byte_level_bpe(vocab, merges, control=(), add_prefix_space=False):
    library = tokenizers.Tokenizer(models.BPE(vocab, [*map(tuple, merges)]))
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space)
    library.add_special_tokens([*control])
    return LibraryTokenizer(library.to_str())


def wordpiece(vocab, control=(), unknown="[UNK]", **options):
    library = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token=unknown))
    library.normalizer = normalizers.BertNormalizer(**options)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.add_special_tokens([*control])
    return LibraryTokenizer(library.to_str())
