"""Tokenizers of the libraries `tokenizers` and `sentencepiece`."""

import io

import sentencepiece
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


def spm(lines, kind="unigram", rules="identity", size=120, **options):
    """The content of a trained SentencePiece model."""
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=written,
        model_type=kind,
        vocab_size=size,
        normalization_rule_name=rules,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return written.getvalue()


def pieces(model):
    """Without <unk>, <s> and </s>."""
    loaded = sentencepiece.SentencePieceProcessor(model_proto=model)
    return [loaded.id_to_piece(id) for id in range(3, len(loaded))]
