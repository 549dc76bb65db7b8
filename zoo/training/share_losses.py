"""Losses of the shares of a batch, whose sum is the loss that Keras computes for all its rows.

`zoo.data.worker_batches` explains the words and the three reductions.
"""

import keras
from keras import ops

from zoo import compat
from zoo.errors import UserError

_SUM = "sum"
_MEAN = "sum_over_batch_size"
_WEIGHTED_MEAN = "mean_with_sample_weight"


def common_reduction(losses):
    """Returns the reduction that all losses of a model share.

    Args:
        losses: what the model is compiled with: None, a loss, or a structure with one per output.

    Returns:
        "sum", "sum_over_batch_size" or "mean_with_sample_weight".

    Raises:
        UserError: if they have different reductions, or none.
    """
    reductions = set()
    for loss in keras.tree.flatten(losses):
        reduction = getattr(loss, "reduction", _MEAN)  # the default of functions and names
        reductions.add(_MEAN if reduction == "mean" else reduction)
    if not reductions:
        return _MEAN
    if len(reductions) > 1 or not reductions <= {_SUM, _MEAN, _WEIGHTED_MEAN}:
        raise UserError(
            "All losses of a model must have the same reduction: "
            f'"{_MEAN}", which is Keras\'s default, "{_SUM}" or "{_WEIGHTED_MEAN}". '
            f"Received: {', '.join(sorted(map(repr, reductions)))}."
        )
    return reductions.pop()


def loss_weights(share_weights, reduction, num_replicas):
    """Computes the weights with which the losses of all shares sum to that of the batch.

    Args:
        share_weights: `ShareWeights` of B rows.
        reduction: reduction of the loss.
        num_replicas: number of replicas.

    Returns:
        float32 [B] or [B, ...], weights for `ShareLoss`.
    """
    if reduction == _SUM:
        factor = share_weights.is_real
    elif reduction == _WEIGHTED_MEAN:
        factor = ops.divide_no_nan(share_weights.is_real, share_weights.total_weight)
    else:
        # Keras divides by the rows of the share, and by the replicas; wanted is num_rows.
        divisor = ops.cast(ops.shape(share_weights.is_real)[0] * num_replicas, "float32")
        factor = share_weights.is_real * divisor / share_weights.num_rows
    if share_weights.weights is None:
        return factor
    return share_weights.weights * _with_axes(factor, len(share_weights.weights.shape))


class ShareLoss(keras.losses.Loss):
    """A loss of a share of a batch.

    It takes the weights of `loss_weights`, [B] or [B, ...], for values of any shape: Keras accepts
    weights [B] only if the values are [B]. Without weights, the loss of a single share is that of
    Keras.

    Args:
        loss: `keras.losses.Loss`, or function of (labels, outputs).
        num_shares: number of shares of a batch.

    Raises:
        UserError: when it is called, if the loss of a batch is not a sum over its shares: if the
            loss is one number for a batch, compares its rows, overrides ``__call__``, or is a mean
            over the items that a mask selects, and there are several shares. With
            "mean_with_sample_weight", masks of weighted items are always refused.
    """

    def __init__(self, loss, num_shares=1):
        if isinstance(loss, keras.losses.Loss):
            self._subject = f"The loss {loss.name}"  # of error messages
        else:
            self._subject = f"The loss {getattr(loss, '__name__', type(loss).__name__)}"
            loss = compat.loss_of_function(loss)
        # The weights are already divided by the sum of all weights.
        reduction = _SUM if loss.reduction == _WEIGHTED_MEAN else loss.reduction
        super().__init__(loss.name, reduction, loss.dtype)
        self.loss = loss
        self.num_shares = num_shares

    def __call__(self, y_true, y_pred, sample_weight=None):
        overrides_call = type(self.loss).__call__ is not keras.losses.Loss.__call__
        if self.num_shares == 1 and (sample_weight is None or overrides_call):
            return self.loss(y_true, y_pred, sample_weight)
        if overrides_call:
            self._check_single_share("overrides __call__", "Override call")
        if getattr(self.loss, "fn", None) is keras.losses.circle:
            self._check_single_share("compares the rows of a batch", "Use another loss")
        self._check_mask(y_pred)
        self._weights = sample_weight  # `call` multiplies by them
        return super().__call__(y_true, y_pred)

    def call(self, y_true, y_pred):
        values = self.loss.call(y_true, y_pred)  # [B, ...]
        self._check_mask(values)
        mask = compat.get_keras_mask(values)
        weights = ops.cast(self._weights, values.dtype)
        rank = len(values.shape)
        if rank == 0:
            self._check_single_share(
                "returns one number for a batch", "Return a value for each row"
            )
            return values * weights  # whose mean or sum Keras takes, of those that a mask selects
        if values.shape[0] not in (None, keras.tree.flatten(y_pred)[0].shape[0]):
            self._check_single_share(
                "returns values that are not those of rows", "Return [rows, ...]"
            )
        while len(weights.shape) > rank:
            weights = ops.squeeze(weights, -1)
        if self.loss.reduction == _WEIGHTED_MEAN and rank > len(weights.shape):
            values = ops.mean(values, tuple(range(len(weights.shape), rank)))
        values = values * _with_axes(weights, len(values.shape))
        if mask is not None:
            compat.set_keras_mask(values, mask)
        return values

    def _check_mask(self, tensor):
        """Checks the mask of outputs, or that of losses which ignore a class."""
        if self.loss.reduction == _SUM or compat.get_keras_mask(tensor) is None:
            return
        if self.loss.reduction == _WEIGHTED_MEAN:
            raise UserError(
                f"{self._subject} has a mask, which is not supported with the reduction "
                f'"{_WEIGHTED_MEAN}". Use weights of 0 instead, or Keras\'s default reduction.'
            )
        if self.num_shares > 1:
            raise UserError(
                f"{self._subject} has a mask, so a batch cannot be split between "
                f"{self.num_shares} devices or parts of a batch. Use weights of 0 instead of "
                f'the mask, and the reduction "{_WEIGHTED_MEAN}", or train on one device '
                "without accumulation."
            )

    def _check_single_share(self, reason, advice):
        if self.num_shares > 1:
            raise UserError(
                f"{self._subject} {reason}, so a batch cannot be split between "
                f"{self.num_shares} devices or parts of a batch. {advice}, or train on one "
                "device without accumulation."
            )


def _with_axes(tensor, rank):
    """Appends axes of size 1."""
    while len(tensor.shape) < rank:
        tensor = ops.expand_dims(tensor, -1)
    return tensor
