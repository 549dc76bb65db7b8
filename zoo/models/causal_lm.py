"""The causal language model: a decoder without a memory.

Sources: Radford et al. 2018, "Improving Language Understanding by Generative Pre-Training", section
3.1; Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.

Axes: B sequences, T tokens, K hypotheses of a sequence, E model width, V vocabulary.
"""

from numbers import Integral

import keras
from keras import ops

from zoo.errors import check_at_least_1
from zoo.layers import Cache, Dropout, TransformerDecoder
from zoo.models.base import arguments_of_size
from zoo.models.tokens import Decoder

SIZES = {  # Radford et al. 2019, table 2; heads as in the published models
    "gpt2": {"embed_dim": 768, "num_layers": 12, "num_heads": 12},
    "gpt2_medium": {"embed_dim": 1024, "num_layers": 24, "num_heads": 16},
    "gpt2_large": {"embed_dim": 1280, "num_layers": 36, "num_heads": 20},
    "gpt2_xl": {"embed_dim": 1600, "num_layers": 48, "num_heads": 25},
}


def causal_lm(size=None, *, vocab_size, **settings):
    """Builds a causal language model of a published size, or of any size by hand.

    ``zoo.causal_lm("gpt2", vocab_size=50257)``. Without a size, give `embed_dim`, `num_heads` and
    `num_layers`. Other arguments override those of the size.

    Args:
        size: "gpt2", "gpt2_medium", "gpt2_large", "gpt2_xl" or None.
        vocab_size, **settings: see `zoo.models.CausalLM`.

    Returns:
        A built `zoo.models.CausalLM`.

    Raises:
        ValueError: if the size is unknown or incomplete, or if arguments are inconsistent.
    """
    settings = arguments_of_size("causal_lm", size, SIZES, settings)
    model = CausalLM(vocab_size, **settings)
    model.build()
    return model


@keras.saving.register_keras_serializable("zoo")
class CausalLM(Decoder):
    """A decoder-only Transformer that predicts the next token.

    The defaults are those of GPT-2 (Radford et al. 2019).

    Args:
        vocab_size: V.
        num_layers: number of decoder blocks.
        positions: see `zoo.models.Transformer`.
        max_length: number of learned positions, and of tokens of the longest text.
        tie_weights: whether the token embedding is also the matrix of the output layer.
        remat: see `zoo.models.base.TransformerModel`.
        **kwargs: `embed_dim`, `num_heads` and the other arguments in `block_defaults`, which
            `zoo.layers.TransformerEncoder` describes. `dropout` is applied to embeddings with
            positions as well. A model with ``norm="pre"`` also normalizes the last block's output.

    Input: token ids, int [B, T].

    Output: logits [B, T, V] of the token that follows each token, float32 in mixed precision as
    well.

    Raises:
        ValueError: if arguments are inconsistent or a name is unknown; on a call, if there are
            more tokens than learned positions.
    """

    decoder_side = "token"

    block_defaults = {
        **Decoder.block_defaults,
        "dropout": 0.1,
        "activation": "gelu_tanh",
        "epsilon": 1e-5,
        "attention": "softmax",
    }

    def __init__(
        self,
        vocab_size,
        num_layers,
        positions="learned",
        max_length=1024,
        tie_weights=True,
        **kwargs,
    ):
        super().__init__(autocast=False, **kwargs)  # token ids are not rounded, also if float
        self.store(locals())
        self.input_spec = keras.layers.InputSpec(ndim=2)
        self.check_positions()
        check_at_least_1(vocab_size=vocab_size, num_layers=num_layers)
        self.token_embedding = self.embedding_layer("token_embedding", vocab_size)
        self.token_positions = self.positions_layer("token_positions", bidirectional=False)
        self.token_norm = None
        self._dropout = self.layer(Dropout, "dropout", self.dropout)
        self.decoder_blocks = self.blocks(
            TransformerDecoder, "decoder", num_layers, cross_attention=False
        )
        self.decoder_norm = self.norm_layer("decoder_norm", self.norm == "pre")
        self.output_projection = None
        if not tie_weights:
            self.output_projection = self.output_layer("output_projection", vocab_size)

    def call(self, tokens, training=None):
        x = self.embed("token", tokens)
        settings = self.position_arguments("token", ops.shape(tokens)[1])
        for block in self.decoder_blocks:
            x = self.apply_block(block, x, **settings)
        return self.logits(x)

    def start(self, tokens, length, num_hypotheses=1):
        """Reads the beginning of each text and allocates the cache, to be passed to `step`.

        Args:
            tokens: token ids [B, P], all but the last of a prompt: that is the input of the first
                step. P may be 0.
            length: the largest number of tokens of a text, the prompt included.
            num_hypotheses: K.

        Raises:
            ValueError: if there are fewer learned positions than `length`, or if `length` leaves no
                position for a step.
        """
        self.check_length(length)
        batch_size, prompt = ops.shape(tokens)
        are_known = isinstance(prompt, Integral) and isinstance(length, Integral)
        if are_known and prompt >= length:
            raise ValueError(
                "length must be greater than the number of tokens read. "
                f"Received: length={length}, {prompt} tokens."
            )
        queries, keys = ops.arange(prompt), ops.arange(length)
        x = self.embed("token", tokens)
        settings = self.position_arguments("token", length, queries)
        causal, blocks = (keys <= queries[:, None])[None, None], []
        for block in self.decoder_blocks:
            cache = block.start(length, batch_size=batch_size)
            if tokens.shape[1] != 0:
                x, cache = block.step(x, cache, 0, causal, **settings)
            blocks.append(cache)
        return Cache.first(prompt, (batch_size, num_hypotheses, length), blocks)

    def compute_output_shape(self, input_shape):
        return (*input_shape, self.vocab_size)
