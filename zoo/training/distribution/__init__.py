"""Training on several devices and workers: everything that uses `tf.distribute`.

A worker is a process; a replica is the copy of a model on one device. The chief is the worker that
writes the run directory; a single worker is the chief.
"""

from zoo.training.distribution.agreement import any_worker, check_same, from_chief
from zoo.training.distribution.failures import exit_if_a_worker_is_lost, tell_failure
from zoo.training.distribution.feeding import as_batches, as_worker_batches, distribute
from zoo.training.distribution.strategy import choose
from zoo.training.distribution.workers import (
    is_chief,
    num_workers,
    replica_values,
    set_random_state,
    sum_over_replicas,
)
