"""Published weights: each format is a table of names, which `mapping` applies."""

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.loading import is_checkpoint, load
