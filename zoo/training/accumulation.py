"""In how many parts the batches of a run fit into the memory of its GPUs."""

import errno
import os

import tensorflow as tf

from zoo.errors import UserError
from zoo.training import distribution, state_file


def parts_that_fit(trainer, batches):
    """Returns the fewest parts, a power of two, in which an update fits into memory.

    It tries an update with each number of parts, and restores the state of the trainer afterwards.

    Args:
        trainer: compiled `zoo.training.trainer.Trainer`.
        batches: data set or `WorkerBatches`, of which the first batch takes the most memory.

    Raises:
        UserError: if even parts of one row do not fit.
    """
    variables = state_file.variables(trainer)
    state = {name: tf.convert_to_tensor(one.value).numpy() for name, one in variables.items()}
    rows = _rows_of_share(trainer, batches)
    parts = 1
    while not _fits(trainer, batches, parts):
        if parts >= rows:
            raise UserError(
                f"A batch of {rows} rows does not fit into memory, not even row by row. Train a "
                "smaller model or on shorter inputs, or pass --remat."
            )
        parts *= 2
    state_file.set_state(trainer, state)
    return parts


def _fits(trainer, batches, parts):
    try:
        trainer.fit(batches, steps_per_epoch=1, verbose=0, accumulation=parts)
    except tf.errors.ResourceExhaustedError as error:
        if not lacks_memory(error):
            raise
        return False
    except tf.errors.CancelledError:  # by a replica that failed; its error may come last
        return False
    return True


def lacks_memory(error):
    """Whether a `ResourceExhaustedError` is for memory, not for disk space or open files."""
    others = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
    return not any(os.strerror(code) in error.message for code in others)


def _rows_of_share(trainer, batches):
    """The number of rows of a batch that a replica computes."""
    shares = distribution.as_worker_batches(batches).shares(tf.distribute.InputContext())
    _, _, share_weights = next(iter(shares))
    return -(-len(share_weights.is_real) // trainer.distribute_strategy.num_replicas_in_sync)
