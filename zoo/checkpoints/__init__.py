"""Trained weights: those of runs, and published ones, each format a table of names."""

from zoo.checkpoints.errors import CheckpointError
from zoo.checkpoints.formats import is_checkpoint, load
