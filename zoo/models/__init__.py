"""Models composed of `zoo.layers`."""

from zoo.models.causal_lm import CausalLM, causal_lm
from zoo.models.text_classifier import EncoderClassifier, text_classifier
from zoo.models.transformer import Transformer, transformer
from zoo.models.vit import ViT, vit
