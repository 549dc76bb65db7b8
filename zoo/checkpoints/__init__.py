"""Saved runs and published weights; each format has a table that maps its names to ours."""

from zoo.errors import CheckpointError as CheckpointError
