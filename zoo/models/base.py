"""Base classes of the models."""

import contextlib
import contextvars

import keras

from zoo import compat
from zoo.errors import as_number
from zoo.layers.config import ConfigMixin, build_layers
from zoo.layers.quantization import check_not_quantized
from zoo.models.remat import recomputed

# These positions are arguments of the blocks. All others are added to the embeddings.
POSITIONS_IN_ATTENTION = ("relative", "relative_table", "rotary")

_block_caller = contextvars.ContextVar("block_caller", default=None)


@contextlib.contextmanager
def blocks_called_by(caller):
    """A context in which models call their blocks in training by a function, which compiles them.

    Args:
        caller: function like `call_block`; None changes nothing.
    """
    token = _block_caller.set(caller)
    try:
        yield
    finally:
        _block_caller.reset(token)


def call_block(block, method, *inputs, **arguments):
    """Calls a method of a block."""
    return getattr(block, method)(*inputs, **arguments)


class ZooModel(ConfigMixin, keras.Model):
    """Base class of the models.

    The method `call` of a model has an argument `training`, as `fit` on JAX requires it, but does
    not use it: Keras passes it on to nested layers.
    """

    def save(self, filepath, overwrite=True, zipped=None, **kwargs):
        """As `keras.Model.save`."""
        check_not_quantized(self)
        super().save(filepath, overwrite, zipped, **kwargs)

    def save_weights(self, *args, **kwargs):
        """As `keras.Model.save_weights`."""
        check_not_quantized(self)
        super().save_weights(*args, **kwargs)

    def export(
        self, filepath, format="tf_saved_model", verbose=None, input_signature=None, **kwargs
    ):
        """As `keras.Model.export`. By default, the inputs are those of `input_signature()`."""
        if not self.built:
            self.build()
        if input_signature is None:
            input_signature = [self.input_signature()]
        super().export(filepath, format, verbose, input_signature, **kwargs)

    def input_signature(self):
        """The inputs of an exported model: `keras.InputSpec`, or a dict of them."""
        raise NotImplementedError

    def compute_output_spec(self, *args, **kwargs):
        """As in Keras, except that outputs have full precision in mixed precision as well."""
        outputs = super().compute_output_spec(*args, **kwargs)
        return keras.tree.map_structure(
            lambda output: keras.KerasTensor(output.shape, self.variable_dtype), outputs
        )


class TransformerModel(ZooModel):
    """Base class of models made of Transformer blocks of width `embed_dim`."""

    _remat = False

    @property
    def remat(self):
        """Whether training recomputes each block for its gradient. It may be set at any time."""
        return self._remat

    @remat.setter
    def remat(self, value):
        self._remat = value
        self.given_arguments.named["remat"] = value  # for `get_config`

    def build(self, input_shape=None):
        """Builds the layers that are not built yet. Their input is [B, T, E]."""
        build_layers(self, (None, None, self.embed_dim))

    def apply_block(self, block, *inputs, method="__call__", **arguments):
        """Calls a block, or another method of it.

        In training, `remat` recomputes it for the gradient, and a trainer may compile it.
        """
        if not compat.call_training():
            return call_block(block, method, *inputs, **arguments)
        call = _block_caller.get() or call_block
        if self.remat:
            return recomputed(call, block, method, *inputs, **arguments)
        return call(block, method, *inputs, **arguments)


def classification_head(num_classes, dtype, name):
    """Returns the layer from features to logits; the identity if there are no classes."""
    if as_number("num_classes", num_classes, int, 0) == 0:
        return keras.layers.Identity(dtype=dtype, name=name)
    return keras.layers.Dense(
        num_classes,
        kernel_initializer=keras.initializers.TruncatedNormal(stddev=0.02),
        dtype=dtype,
        name=name,
    )


def check_positions_supported(positions, attention):
    """Raises ValueError if blocks with this kind of attention do not support the positions."""
    if positions in ("relative", "relative_table"):
        is_supported = attention not in ("linear", "ssru")  # they have no scores to add a bias to
    elif positions == "rotary":
        is_supported = attention != "ssru"  # it has no queries and keys
    else:
        is_supported = True
    if not is_supported:
        raise ValueError(f"Blocks with attention={attention!r} do not support {positions=}.")
