"""Tokens of texts for the text encoders of CLIP and SigLIP, as transformers' processors give them.

Special tokens in a text are ordinary text.

Axes: B texts, T tokens.
"""

import re
import string

import numpy as np

from zoo.checkpoints.hugging_face_config import check_settings, tokenizer_settings
from zoo.checkpoints.hugging_face_tokenizers import clip_library
from zoo.errors import CheckpointError, needed
from zoo.text.sentencepiece import SPACE, SentencePieceTokenizer

_DEFAULTS = {"padding_side": "right", "model_input_names": ["attention_mask"]}
_GEMMA = {**_DEFAULTS, "pad_token": "<pad>", "padding_side": "left"}
_KINDS = {  # transformers' tokenizers, and their default settings
    "CLIPTokenizer": {**_DEFAULTS, "pad_token": "<|endoftext|>"},
    "SiglipTokenizer": {**_DEFAULTS, "pad_token": "</s>", "do_lower_case": True},
    "GemmaTokenizer": _GEMMA,
    "Siglip2Tokenizer": {**_GEMMA, "do_lower_case": True},
}
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def encode_texts(folder, texts, limit, kind, pads_to_limit):
    """Tokenizes texts with the tokenizer of a folder.

    Args:
        folder: Hugging Face's folder.
        texts: list of str.
        limit: maximum number of tokens of a text.
        kind: transformers' tokenizer, if tokenizer_config.json does not name it.
        pads_to_limit: whether all texts are padded to the maximum, and not to the longest of them.

    Returns:
        Token ids, int32 [B, T], and a mask, bool [B, T], True = attend: of SigLIP also to padding.

    Raises:
        UserError: if a text is too long, or the tokenizer is of another kind.
    """
    if pads_to_limit and not (folder / "tokenizer_config.json").is_file():  # says how to pad
        raise CheckpointError(f"{folder} contains no tokenizer_config.json.")
    given = {name: x for name, x in tokenizer_settings(folder).items() if x is not None}
    kind = given.get("tokenizer_class", kind).removesuffix("Fast")
    if kind not in _KINDS:
        raise CheckpointError(f"{folder}: the tokenizer {kind} of texts is not supported.")
    settings = {**_KINDS[kind], **given}
    check_settings(folder, settings, {"sp_model_kwargs": {}, "padding_side": ("left", "right")})
    encode = _by_sentencepiece if kind == "SiglipTokenizer" else _by_library
    rows, padding = encode(folder, texts, settings, kind)
    limit = min(limit, settings.get("model_max_length", limit))
    for text, row in zip(texts, rows):
        if len(row) > limit:
            raise CheckpointError(
                f"The class {text[:60]!r} has {len(row)} tokens, and the model takes {limit}. "
                "Shorten it."
            )
    length = limit if pads_to_limit else max(map(len, rows))
    tokens = np.full((len(rows), length), padding, "int32")
    mask = np.full(tokens.shape, "attention_mask" not in settings["model_input_names"])
    for index, row in enumerate(rows):
        start = length - len(row) if settings["padding_side"] == "left" else 0
        tokens[index, start : start + len(row)] = row
        mask[index, start : start + len(row)] = True
    return tokens, mask


def _by_library(folder, texts, settings, kind):
    """The ids of each text by the library `tokenizers`, and the id of padding."""
    normalizers = needed("tokenizers").normalizers
    library = clip_library(folder)
    library.encode_special_tokens = True
    library.no_truncation()
    library.no_padding()
    if kind != "CLIPTokenizer" and settings.get("do_lower_case"):
        library.normalizer = normalizers.Sequence([normalizers.Lowercase(), library.normalizer])
    rows = [encoding.ids for encoding in library.encode_batch(texts)]
    return rows, library.token_to_id(settings["pad_token"])


def _by_sentencepiece(folder, texts, settings, kind):
    """The ids of each text by spiece.model, and the id of padding."""
    tokenizer = SentencePieceTokenizer((folder / "spiece.model").read_bytes())
    ids = {piece: id for id, piece in tokenizer.tokens.items()}
    end = ids[settings.get("eos_token", "</s>")]
    # Alone, a text would lose the space at its beginning.
    marker = settings.get("unk_token", "<unk>")
    [marker_ids] = tokenizer.encode([marker])
    rows = []
    for text in texts:
        text = SPACE + text.replace(SPACE, " ")
        if settings["do_lower_case"]:
            text = text.lower()
        text = re.sub(r"\s+", " ", text.translate(_NO_PUNCTUATION)).strip()
        [row] = tokenizer.encode([marker + text])
        rows.append([*row[len(marker_ids) :], end])
    return rows, ids[settings["pad_token"]]
