"""Small tokenizers of the kinds of CLIP and SigLIP."""

import io
import json

import sentencepiece

from zoo.text.library_tokenizer import BYTE_ALPHABET

TEXTS = [
    "a cat",
    "Two DOGS, on a  couch!",
    "naïve café",
    "it's 1,234 €",
    "日本の猫",
    "e\u0301 ﬁ\tx\n🐈‍⬛",
    "▁a",
    "x",
    "",
]
MERGES = [("a", "n"), ("c", "a"), ("ca", "t</w>"), ("d", "o"), ("do", "g"), ("o", "n</w>")]


def write_tokenizer(folder, settings):
    """The files of a tokenizer and tokenizer_config.json; returns the number of its tokens."""
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    write = {"CLIPTokenizer": write_clip_tokenizer, "SiglipTokenizer": write_siglip_tokenizer}
    return write.get(settings["tokenizer_class"], write_gemma_tokenizer)(folder)


def write_clip_tokenizer(folder):
    """vocab.json and merges.txt."""
    characters = sorted(BYTE_ALPHABET)
    vocab = [*characters, *(f"{c}</w>" for c in characters), *map("".join, MERGES)]
    vocab += ["<|startoftext|>", "<|endoftext|>"]
    ids = {token: id for id, token in enumerate(vocab)}
    (folder / "vocab.json").write_text(json.dumps(ids))
    lines = ["#version: 0.2", *map(" ".join, MERGES)]
    (folder / "merges.txt").write_text("\n".join(lines) + "\n")
    return len(vocab)


def write_siglip_tokenizer(folder):
    """spiece.model."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a cat and two dogs on a couch", "naive cafe, no", "xyz"] * 9),
        model_writer=model,
        vocab_size=64,
        hard_vocab_limit=False,
        pad_id=-1,
        bos_id=-1,
        eos_id=1,
        unk_id=2,
        minloglevel=3,
    )
    (folder / "spiece.model").write_bytes(model.getvalue())
    return 64


def write_gemma_tokenizer(folder):
    """tokenizer.json of SigLIP 2, without the normalization to lower case."""
    special = ["<pad>", "<eos>", "<bos>", "<unk>", "<mask>"]
    merges = [("▁", "a"), ("c", "a"), ("ca", "t"), ("▁", "cat"), ("d", "o"), ("do", "g")]
    vocab = [*special, *(f"<0x{byte:02X}>" for byte in range(256)), "▁"]
    vocab += [chr(c) for c in range(33, 127)] + [a + b for a, b in merges]
    content = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
            for id, token in enumerate(special)
        ],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "MergedWithPrevious",
            "invert": False,
        },
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "<eos>", "type_id": 0}},
            ],
            "pair": [
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 0}},
            ],
            "special_tokens": {"<eos>": {"id": "<eos>", "ids": [1], "tokens": ["<eos>"]}},
        },
        "decoder": None,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: id for id, token in enumerate(vocab)},
            "merges": [list(pair) for pair in merges],
        },
    }
    (folder / "tokenizer.json").write_text(json.dumps(content))
    return len(vocab)
