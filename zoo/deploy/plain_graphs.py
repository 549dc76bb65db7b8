"""Models as functions of numeric tensors, for formats without strings and image decoding.

Axes: B images or sentences, H image height, W image width, C channels; S source tokens, T target
tokens, K hypotheses of a sentence, V target vocabulary. In signatures, a dynamic dimension is given
by its letter.
"""

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf
from keras import ops

from zoo.layers import Cache, DecoderCache, KeyValue
from zoo.models.base import copy_model
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.translator import SOURCE_FILE, TARGET_FILE


def plain_copy(model):
    """A copy of a model in float32, without LoRA and the loops of blockwise attention.

    Converters do not support these loops; softmax attention computes the same.
    """
    is_blockwise = model.get_config().get("attention") == "blockwise"
    return copy_model(model, dtype="float32", **({"attention": "softmax"} if is_blockwise else {}))


class Graph(NamedTuple):
    """A function of tensors as keyword arguments, which returns a dict of tensors.

    Fields:
        inputs, outputs: {name: `tensor`}, as in export.json.
    """

    function: Callable
    inputs: dict
    outputs: dict

    def call(self, *values):
        """The function of positional arguments, in the order of `inputs`."""
        return self.function(**dict(zip(self.inputs, values)))

    def specs(self):
        """The `tf.TensorSpec` of each input."""
        return [
            tf.TensorSpec(
                [None if isinstance(n, str) else n for n in of["shape"]], of["dtype"], name
            )
            for name, of in self.inputs.items()
        ]

    def description(self):
        """The tensors for export.json."""
        return {"inputs": self.inputs, "outputs": self.outputs}


def tensor(dtype, *shape):
    """A tensor as described in export.json; a dynamic dimension is given by its letter."""
    return {"dtype": dtype, "shape": [*shape]}


def write_data(original, folder):
    """Writes the labels or the tokenizers; returns {name of a file: description}."""
    if isinstance(original, ImageClassifier):
        lines = [" ".join(name.split()) for name in original.class_names]
        (folder / "labels.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        return {"labels.txt": "the class names, one per line"}
    tokenizers = {SOURCE_FILE: original.source_tokenizer, TARGET_FILE: original.target_tokenizer}
    for name, tokenizer in tokenizers.items():
        (folder / name).write_text(tokenizer.to_tokenizer_json(), encoding="utf-8")
    return {
        SOURCE_FILE: "the tokenizer of the source language, for the package tokenizers",
        TARGET_FILE: "the tokenizer of the target language",
    }


class PixelClassifier:
    """An image classifier as a function from pixels to probabilities.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier`; its model is copied.

    Attributes:
        graphs: {"serving_default": `Graph` of `probabilities`}.
    """

    def __init__(self, classifier):
        shape = classifier.model.input_shape
        self.model = plain_copy(classifier.model)
        pixels = {"pixels": tensor("uint8", "B", *shape)}
        found = {"probabilities": tensor("float32", "B", len(classifier.class_names))}
        self.graphs = {"serving_default": Graph(self.probabilities, pixels, found)}
        self._normalize = classifier.preprocessing.normalize

    def probabilities(self, pixels):
        """Maps uint8 [B, H, W, C] to {"probabilities": float32 [B, classes]}."""
        logits = self.model(self._normalize(pixels), training=False)
        return {"probabilities": ops.softmax(logits)}


class StepGraphs:
    """The encoder and one decoding step of a Transformer; the caller implements the search.

    Args:
        model: `zoo.models.Transformer`; it is copied.
        batch, beams: B and K if they are fixed.

    Attributes:
        graphs: {name of a method: `Graph`}.
    """

    def __init__(self, model, batch="B", beams="K"):
        self.model = plain_copy(model)
        source = {"source": tensor("int32", batch, "S")}
        memory = self._heads("memory", batch, "S")
        memory["memory_mask"] = tensor("bool", batch, "S")
        step = {
            "tokens": tensor("int32", batch, beams),
            "position": tensor("int32"),
            "paths": tensor("int32", batch, beams, "T"),
            **self._heads("target", batch, "T*K"),
            **memory,
        }
        found = {
            "log_probs": tensor("float32", batch, beams, model.target_vocab_size),
            "next_paths": tensor("int32", batch, beams, "T"),
            **self._heads("next_target", batch, "T*K"),
        }
        self.graphs = {
            "encode": Graph(self.encode, source, memory),
            "decode": Graph(self.decode, step, found),
        }

    def encode(self, source):
        """Encodes int32 [B, S] to the keys, values and mask of cross-attention, by name."""
        memory = self.model.encode(source)
        heads = [block.cross_attention.project(memory) for block in self.model.decoder_blocks]
        return {**_named("memory", heads), "memory_mask": source != self.model.pad_id}

    def decode(self, tokens, position, paths, **cache):
        """Decodes one token of each hypothesis, like `Transformer.step`.

        Args:
            tokens: int32 [B, K], the previous tokens.
            position: int32 [], number of tokens decoded before.
            paths: int32 [B, K, T], see `zoo.layers.Cache`.
            **cache: the cache of the previous step and the outputs of `encode`, by name.

        Returns:
            dict with "log_probs", float32 [B, K, V], of the next token, and the cache for the next
            step: "next_paths", "next_target_key_0" and so on.
        """
        sides = (
            _block_heads("target", cache, _ConcatenatedKeyValue),
            _block_heads("memory", cache, KeyValue),
        )
        blocks = tuple(map(DecoderCache, *sides))
        mask = cache["memory_mask"][:, None, None, :]
        logits, after = self.model.step(tokens, Cache(position, paths, blocks, mask))
        return {
            "log_probs": ops.log_softmax(logits),
            "next_paths": after.paths,
            **_named("next_target", [block.target for block in after.blocks]),
        }

    def _heads(self, side, batch, length):
        """The keys and values of all blocks, [B, heads, length, head width]."""
        empty = [block.self_attention.allocate_cache(1, 1) for block in self.model.decoder_blocks]
        return {
            name: tensor("float32", batch, heads.shape[1], length, heads.shape[3])
            for name, heads in _named(side, empty).items()
        }


class _ConcatenatedKeyValue(KeyValue):
    """Is written to by concatenation: converters do not support in-place updates."""

    def write(self, key, value, position):
        return KeyValue(_written(self.key, key, position), _written(self.value, value, position))


def _written(buffer, heads, position):
    end = position + ops.shape(heads)[2]
    return ops.concatenate([buffer[:, :, :position], heads, buffer[:, :, end:]], axis=2)


def _named(side, blocks):
    """Names the `KeyValue` of each block: "memory_key_0", "memory_value_0", "memory_key_1" ..."""
    return {
        f"{side}_{kind}_{index}": heads
        for index, block in enumerate(blocks)
        for kind, heads in block._asdict().items()
    }


def _block_heads(side, named, kind):
    """The inverse of `_named`: a `KeyValue` of the given kind for each block."""
    count = sum(name.startswith(f"{side}_key_") for name in named)
    return [
        kind(*(named[f"{side}_{field}_{index}"] for field in KeyValue._fields))
        for index in range(count)
    ]
