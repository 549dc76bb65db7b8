"""Trained weights: those of runs, and published ones, each format a table of names."""

from zoo.checkpoints.formats import is_checkpoint, load
from zoo.errors import CheckpointError
