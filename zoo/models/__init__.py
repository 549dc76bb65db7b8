"""The bricks composed."""

from zoo.models.vit import ViT, vit
