"""Attention masks: boolean, True = may attend, rank 4, broadcastable to [B, H, T, S].

Axes: B batch, H heads, T queries, S keys. For a batch of one sentence of three tokens, the last of
them padding, with T = S = 3 (rows are queries, columns are keys)::

    padding_mask        causal_mask         both: padding & causal
    1 1 0               1 0 0               1 0 0
    1 1 0               1 1 0               1 1 0
    1 1 0               1 1 1               1 1 0
"""

from keras import ops


def padding_mask(valid):
    """Mask that hides padded keys from every query.

    Args:
        valid: bool [B, S], True where a key is real: ``padding_mask(token_ids != pad_id)``.

    Returns:
        bool [B, 1, 1, S].
    """
    return ops.cast(valid, "bool")[:, None, None, :]


def causal_mask(num_queries, num_keys=None):
    """Look-ahead mask: a query attends to keys at its own position and before.

    With more keys than queries the queries are the last ones, as in decoding with a cache: the last
    query always sees every key. Source: Vaswani et al. 2017, section 3.2.3.

    Args:
        num_queries: T.
        num_keys: S, at least T; T if not given.

    Returns:
        bool [1, 1, T, S].
    """
    num_keys = num_queries if num_keys is None else num_keys
    last_visible = ops.arange(num_queries)[:, None] + (num_keys - num_queries)
    return (ops.arange(num_keys)[None, :] <= last_visible)[None, None]


def combine_masks(*masks):
    """Attends where all of `masks` attend; None stands for "everywhere".

    Args:
        masks: bool, broadcastable to [B, H, T, S], or None.

    Returns:
        Their conjunction, or None if all are None.
    """
    given = [mask for mask in masks if mask is not None]
    if not given:
        return None
    combined = given[0]
    for mask in given[1:]:
        combined = ops.logical_and(combined, mask)
    return combined


def as_attention_mask(mask):
    """Brings what a caller of a layer may pass as `mask` into the one form of this file.

    Args:
        mask: None; bool [B, S], the padding mask that Keras itself carries from layer to layer; or
            bool of rank 4, broadcastable to [B, H, T, S].

    Returns:
        None or bool of rank 4.

    Raises:
        ValueError: if the rank is neither 2 nor 4.
    """
    if mask is None:
        return None
    rank = len(mask.shape)
    if rank == 2:
        return padding_mask(mask)
    if rank == 4:
        return ops.cast(mask, "bool")
    raise ValueError(
        "An attention mask is bool of shape [B, S] (True where a key is real) or of rank 4, "
        f"broadcastable to [B, H, T, S]. Received one of shape {tuple(mask.shape)}."
    )
