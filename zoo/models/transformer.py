"""The translation Transformer. Source: Vaswani et al. 2017, "Attention Is All You Need".

Axes: B sentences, S source tokens, T target tokens, K hypotheses of a sentence, E model width,
V target vocabulary.
"""

import math

import keras
from keras import ops

from zoo import compat
from zoo.errors import check_at_least_1, check_choice
from zoo.layers import Cache, Dropout, TransformerDecoder, TransformerEncoder, padding_mask
from zoo.models.base import apply_optional, arguments_of_size
from zoo.models.tokens import Decoder

SIZES = {  # Vaswani et al. 2017, table 3
    "base": {"embed_dim": 512, "num_layers": 6, "num_heads": 8, "ff_dim": 2048, "dropout": 0.1},
    "big": {"embed_dim": 1024, "num_layers": 6, "num_heads": 16, "ff_dim": 4096, "dropout": 0.3},
}
# Firefox's translation models: mozilla/translations, pipeline/train/configs/model/student.*.yml
_STUDENT = {"num_layers": 6, "num_decoder_layers": 2, "num_heads": 8, "decoder": "ssru"}
SIZES |= {
    "student_tiny": {**_STUDENT, "embed_dim": 256, "ff_dim": 1536},
    "student_base_memory": {**_STUDENT, "embed_dim": 384, "ff_dim": 1536, "num_decoder_layers": 4},
    "student_base": {**_STUDENT, "embed_dim": 512, "ff_dim": 2048},
}


def transformer(size=None, *, source_vocab_size, target_vocab_size, **settings):
    """Builds a translation Transformer of a published size, or of any size by hand.

    ``zoo.transformer("base", source_vocab_size=8000, target_vocab_size=8000)``. Without a size,
    give `embed_dim`, `num_heads` and `num_layers`. Other arguments override those of the size.

    Args:
        size: "base" or "big" of the paper; "student_tiny", "student_base_memory" or
            "student_base", the sizes of Firefox's translation models; or None.
        source_vocab_size, target_vocab_size, **settings: see `zoo.models.Transformer`.

    Returns:
        A built `zoo.models.Transformer`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    settings = arguments_of_size("transformer", size, SIZES, settings)
    model = Transformer(source_vocab_size, target_vocab_size, **settings)
    model.build()
    return model


@keras.saving.register_keras_serializable("zoo")
class Transformer(Decoder):
    """An encoder-decoder Transformer that translates: source tokens in, target tokens out.

    docs/published_models.md lists which published models set which of the options.

    Args:
        source_vocab_size: number of source tokens.
        target_vocab_size: V, number of target tokens.
        num_layers: number of encoder blocks.
        num_decoder_layers: number of decoder blocks; `num_layers` by default.
        decoder_num_heads, decoder_ff_dim: those of decoder blocks, if they differ from `num_heads`
            and `ff_dim`.
        decoder: "attention"; or "ssru", decoder blocks with a recurrent layer in place of
            self-attention, `zoo.layers.SSRU`, which take less time and memory to decode.
        positions: "sinusoidal" (section 3.5); a `zoo.layers.SinusoidalPositions` of another layout
            or offset; "learned"; "relative", a learned bias on the scores of self-attention
            (Raffel et al. 2019, section 2.1); or "rotary" (Su et al. 2021).
        max_length: number of learned positions, and of tokens of the longest source or target that
            `zoo.tasks.translator.Translator` accepts.
        shared: which matrices are shared: "target": target embedding and output layer; "all": these
            and the source embedding (section 3.4), for equal vocabularies; or "none".
        pad_id: padding token.
        scale_embeddings: whether embeddings are multiplied by √E (section 3.4).
        normalize_embeddings: whether to normalize before the first blocks (Liu et al. 2020, mBART).
        logits_bias: whether the logits have a learned bias.
        remat: see `zoo.models.base.TransformerModel`.
        **kwargs: `embed_dim`, `num_heads` and the other arguments in `block_defaults`, which
            `zoo.layers.TransformerEncoder` describes. `dropout` is applied to embeddings with
            positions as well (section 5.4). With ``norm="pre"`` in place of the paper's "post", the
            output of the last blocks is normalized, too (Xiong et al. 2020).

    Inputs: a dict of token ids: "source" int [B, S], "target" int [B, T], the target beginning with
    the start token.

    Output: logits [B, T, V] of the token that follows each target token, float32 in mixed precision
    as well.

    Raises:
        ValueError: if arguments are inconsistent or a name is unknown; on a call, if there are
            more tokens than learned positions.
    """

    block_defaults = {
        **Decoder.block_defaults,
        "dropout": 0.1,
        "norm": "post",
        "activation": "relu",
    }

    def __init__(
        self,
        source_vocab_size,
        target_vocab_size,
        num_layers,
        num_decoder_layers=None,
        positions="sinusoidal",
        max_length=512,
        shared="target",
        pad_id=0,
        scale_embeddings=True,
        normalize_embeddings=False,
        logits_bias=False,
        decoder_num_heads=None,
        decoder_ff_dim=None,
        decoder="attention",
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.store(locals())
        self._check()
        self._create_layers()

    def _create_layers(self):
        self.target_embedding = self.embedding_layer("target_embedding", self.target_vocab_size)
        self.source_embedding = self.target_embedding
        if self.shared != "all":
            self.source_embedding = self.embedding_layer("source_embedding", self.source_vocab_size)
        self.output_projection = None
        if self.shared == "none":
            self.output_projection = self.output_layer("output_projection", self.target_vocab_size)
        heads = self.decoder_num_heads
        self.source_positions = self.positions_layer("source_positions", True)
        self.target_positions = self.positions_layer("target_positions", False, heads)
        self._dropout = self.layer(Dropout, "dropout", self.dropout)
        self.encoder_blocks = self.blocks(TransformerEncoder, "encoder", self.num_layers)
        self.decoder_blocks = self.blocks(
            TransformerDecoder,
            "decoder",
            self.num_decoder_layers or self.num_layers,
            num_heads=heads or self.num_heads,
            ff_dim=self.decoder_ff_dim or self.ff_dim,
            attention="ssru" if self.decoder == "ssru" else "softmax",
        )
        pre, embeddings = self.norm == "pre", self.normalize_embeddings
        self.source_norm = self.norm_layer("source_norm", embeddings)
        self.target_norm = self.norm_layer("target_norm", embeddings)
        self.encoder_norm = self.norm_layer("encoder_norm", pre)
        self.decoder_norm = self.norm_layer("decoder_norm", pre)

    def call(self, inputs, training=None):
        memory = self.encode(inputs["source"])
        x, settings = self._decoder_inputs(inputs)
        for block in self.decoder_blocks:
            x = self.apply_block(block, x, memory, **settings)
        return self.logits(x)

    def encode(self, source, training=None):
        """The encoder's output for token ids [B, S]: [B, S, E]."""
        with compat.call_context(training):
            x = self.embed("source", source)
            settings = self.position_arguments("source", ops.shape(source)[1])
            settings["mask"] = padding_mask(source != self.pad_id)
            for block in self.encoder_blocks:
                x = self.apply_block(block, x, **settings)
            return apply_optional(self.encoder_norm, x)

    def start(self, source, length, num_hypotheses=1):
        """Encodes the source and allocates the cache: a `Cache` to be passed to `step`.

        Args:
            source: token ids [B, S].
            length: the largest number of tokens of a hypothesis, the start token included.
            num_hypotheses: K.

        Raises:
            ValueError: if there are fewer learned positions than `length`.
        """
        self.check_length(length)
        memory, batch_size = self.encode(source), ops.shape(source)[0]
        blocks = [block.start(length, memory) for block in self.decoder_blocks]
        shape = (batch_size, num_hypotheses, length)
        return Cache.first(0, shape, blocks, padding_mask(source != self.pad_id))

    def step_among(self, candidates):
        """Returns a function like `step`, in which each sentence has its own small vocabulary.

        Args:
            candidates: int [B, C], its tokens, filled up with padding. The tokens and logits of the
                function are those at these places: int [B, K] and [B, K, C].
        """
        matrix = self.target_embedding(candidates)  # [B, C, E]
        bias = ops.take(self.output_bias, candidates) if self.logits_bias else 0.0
        bias = ops.where(candidates == self.pad_id, -math.inf, bias)[:, None]

        def step(tokens, cache):
            tokens = ops.take_along_axis(candidates, tokens, axis=1)
            x, cache = self.next_output(tokens, cache)
            x = ops.einsum("bke,bce->bkc", apply_optional(self.decoder_norm, x), matrix)
            return ops.cast(x, bias.dtype) + bias, cache

        return step

    def cross_attention_maps(self, inputs):
        """Attention weights over the source: [B, decoder blocks, heads, T, S]."""
        memory = self.encode(inputs["source"])
        (x, settings), maps = self._decoder_inputs(inputs), []
        for block in self.decoder_blocks:
            maps.append(block.cross_attention_weights(x, memory, **settings))
            x = self.apply_block(block, x, memory, **settings)
        return ops.stack(maps, axis=1)

    def input_signature(self):
        return {
            "source": keras.InputSpec("int32", (None, None), name="source"),
            "target": keras.InputSpec("int32", (None, None), name="target"),
        }

    def compute_output_shape(self, input_shape):
        return (*input_shape["target"], self.target_vocab_size)

    def _decoder_inputs(self, inputs):
        """The embedded target [B, T, E], and the keyword arguments of every decoder block."""
        x = self.embed("target", inputs["target"])
        settings = self.position_arguments("target", ops.shape(inputs["target"])[1])
        return x, {"memory_mask": padding_mask(inputs["source"] != self.pad_id), **settings}

    def _check(self):
        source, target = self.source_vocab_size, self.target_vocab_size
        check_at_least_1(source_vocab_size=source, target_vocab_size=target)
        check_choice("shared", self.shared, ("none", "target", "all"))
        check_choice("decoder", self.decoder, ("attention", "ssru"))
        if self.shared == "all" and source != target:
            raise ValueError(
                'shared="all" needs equal vocabulary sizes. Received: '
                f"source_vocab_size={source}, target_vocab_size={target}."
            )
        self.check_positions()
        names = ("num_decoder_layers", "decoder_num_heads", "decoder_ff_dim")
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        check_at_least_1(num_layers=self.num_layers, **given)
