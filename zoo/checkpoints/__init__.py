"""Loads saved runs and published weights; each format has a table that maps its names to ours."""

from zoo.checkpoints.formats import is_checkpoint, load
from zoo.errors import CheckpointError
