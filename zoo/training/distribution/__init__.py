"""All that the zoo knows about strategies of `tf.distribute`: how many devices and workers train.

A worker is a process, a replica the copy of a model on one device. The chief is the worker that
writes the run folder; without several workers it is the only one.
"""

from zoo.training.distribution.agreement import Agreement
from zoo.training.distribution.choice import choose
from zoo.training.distribution.feeding import distribute
from zoo.training.distribution.workers import (
    check_agreement,
    exit_if_a_worker_is_lost,
    from_chief,
    is_chief,
    num_workers,
    private_folder,
    replica_values,
    set_random_state,
    sum_over_replicas,
    worker_index,
)
