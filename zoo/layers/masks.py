"""Attention masks: boolean, True = may attend, rank 4, broadcastable to [B, H, T, S].

In every layer, a query attends to a key if both the `mask` of the call and the Keras mask of the
keys allow it; see `attention_mask`.

Axes: B batch, H heads, T queries, S keys. For a batch of one sentence of three tokens, the last of
them padding, with T = S = 3 (rows are queries, columns are keys)::

    padding_mask        causal_mask         both: padding & causal
    1 1 0               1 0 0               1 0 0
    1 1 0               1 1 0               1 1 0
    1 1 0               1 1 1               1 1 0
"""

import keras
from keras import ops

from zoo.compat import get_keras_mask


def padding_mask(valid):
    """Returns a mask that hides padded keys from every query: bool [B, 1, 1, S].

    Args:
        valid: bool [B, S], True where a key is real: ``padding_mask(token_ids != pad_id)``.
    """
    return ops.cast(valid, "bool")[:, None, None, :]


def causal_mask(length):
    """Returns a mask that hides later keys from each query: bool [1, 1, T, T].

    Source: Vaswani et al. 2017, section 3.2.3.

    Args:
        length: T = S, an int or a scalar tensor.
    """
    positions = ops.arange(length, dtype="int32")
    return (positions <= positions[:, None])[None, None]


def attention_mask(mask, keys=None):
    """Combines the mask of a call with the Keras mask of the keys: both have to allow attention.

    Args:
        mask: None; bool [B, S], True where a key is real; bool [B, T, S]; or bool of rank 4,
            broadcastable to [B, H, T, S]. Integers 0 and 1 are accepted as well.
        keys: None, or [B, S, any width], possibly with a mask attached by a Keras layer, such as
            `keras.layers.Embedding` with ``mask_zero=True``.

    Returns:
        bool of rank 4, or None if there is no mask.

    Raises:
        ValueError: if a mask has another rank, or is floating point.
    """
    if mask is not None:
        mask = _rank_4(mask)
    mask_of_keys = None if keys is None else get_keras_mask(keys)
    if mask_of_keys is None:
        return mask
    mask_of_keys = _rank_4(mask_of_keys)
    return mask_of_keys if mask is None else ops.logical_and(mask, mask_of_keys)


def key_mask(mask, name, advice=""):
    """Transposes a mask [B, H, 1, S] to a column for each key, [B, H, S, 1].

    Raises:
        ValueError: if the mask depends on the query. `name` is what the message calls the layer,
            `advice` its last sentence.
    """
    if mask.shape[2] != 1:
        message = (
            f"The mask of {name} may not depend on the query: it has shape [B, S], True where a "
            f"position is real, or [B, 1, 1, S]. Received: shape {tuple(mask.shape)}. {advice}"
        )
        raise ValueError(message.rstrip())
    return ops.swapaxes(mask, -1, -2)


def _rank_4(mask):
    """A mask [B, S], [B, T, S] or of rank 4 as one of rank 4."""
    mask = ops.convert_to_tensor(mask)
    dtype = keras.backend.standardize_dtype(mask.dtype)
    if "float" in dtype:
        raise ValueError(
            "An attention mask is bool, True where a query may attend. Received a mask of dtype "
            f"{dtype}. Pass numbers that are to be added to the scores as `bias`."
        )
    axes = {2: (1, 2), 3: (1,), 4: ()}.get(len(mask.shape))
    if axes is None:
        raise ValueError(
            "An attention mask has shape [B, S] (True where a key is real), [B, T, S] or one that "
            f"is broadcastable to [B, H, T, S]. Received: shape {tuple(mask.shape)}."
        )
    return ops.expand_dims(ops.cast(mask, "bool"), axes)
