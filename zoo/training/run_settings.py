"""Settings that all recipes share: run directory, devices, checkpoints."""

import dataclasses
from typing import Literal

from zoo.training.settings import Settings

Precision = Literal["float32", "mixed_bfloat16", "mixed_float16", "auto"]


@dataclasses.dataclass(frozen=True)
class RunSettings(Settings):
    """Settings of a run that do not concern its data or its model."""

    out: str | None = None
    """Run directory; by default runs/, the recipe or the model, and the name of the data."""
    overwrite: bool = False
    """Delete an existing run in the run directory."""
    resume: bool = False
    """Resume the run in the run directory, started with the same settings."""
    seed: int = 0
    """Seed of all random numbers: weights, order, dropout, augmentation and held-out data."""
    strategy: Literal["auto", "one", "mirrored", "multiworker"] = "auto"
    """Train on one device, all devices of this machine, or several workers; auto uses all."""
    devices: int | None = None
    """Number of devices to use, all GPUs by default; without GPUs, splits the CPU."""
    precision: Precision = "float32"
    """Mixed precision computes in 16 bits and keeps the weights in float32; auto is mixed_bfloat16
    on a CPU that multiplies matrices more than 1.25 times as fast in bfloat16, otherwise float32,
    or that of the run to resume."""
    steps_per_execution: int = 1
    """Steps that run without returning to Python; must divide the steps of an epoch."""
    checkpoint_minutes: float = 10.0
    """Minutes between checkpoints (0: one after every step); one is also written at the end of each
    epoch."""
    checkpoint_steps: int = 0
    """Steps between additional checkpoints; 0 to disable."""
    checkpoints_kept: int = 3
    """Number of checkpoints to keep; the best one is also kept."""

    def checkpoint(self, folder, steps_per_epoch):
        """The callback that writes checkpoints: `zoo.training.checkpoint.Checkpoint`.

        Args:
            folder: run directory.
            steps_per_epoch: as in `fit`.
        """
        from zoo.training.checkpoint import Checkpoint

        minutes, steps, kept = self.checkpoint_minutes, self.checkpoint_steps, self.checkpoints_kept
        return Checkpoint(folder, steps_per_epoch, minutes, steps, kept)
