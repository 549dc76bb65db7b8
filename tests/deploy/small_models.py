"""Small models with drawn weights, for tests of what leaves the zoo."""

import keras
import numpy as np

import zoo
from zoo.data.preprocessing import ImagePreprocessing
from zoo.tasks.classifier import ImageClassifier, TextClassifier
from zoo.tasks.generator import TextGenerator
from zoo.tasks.translator import Translator
from zoo.text import EOS_ID
from zoo.text.sentencepiece import train_tokenizer

LINES = ["The cat sat on the mat, and the dog sat on the cat.", "¿Dónde está el gato? Aquí, 12."]


def small_classifier(precision="float32", image=(8, 12, 3), **settings):
    """Classes with odd names, and pixels that matter."""
    keras.utils.set_random_seed(0)
    random = np.random.default_rng(1)
    sizes = {"patch_size": 4, "embed_dim": 16, "num_heads": 2, "num_layers": 2, "ff_dim": 24}
    model = zoo.vit(input_shape=image, num_classes=4, **{**sizes, **settings}, dtype=precision)
    _draw(model, random, 0.2)
    channels = image[-1]
    preprocessing = ImagePreprocessing(
        image[:2], channels, (0.5, 0.4, 0.3)[:channels], (0.2, 0.3, 0.25)[:channels]
    )
    return ImageClassifier(model, preprocessing, ["ant", "bee, or so", "gato ñ", "line\nbreak"])


def random_images(classifier, count):
    """Pixels of the size of its images."""
    shape = (count, *classifier.model.input_shape)
    return np.random.default_rng(3).integers(0, 256, shape, dtype=np.uint8)


def small_text_classifier(precision="float32", kind="bpe", **settings):
    """Three classes; the answer depends on every token."""
    model, tokenizer = _model_of_texts(
        zoo.text_classifier, np.random.default_rng(3), precision, kind, num_classes=3, **settings
    )
    return TextClassifier(model, tokenizer, ["ant", "bee, or so", "gato ñ"])


def small_generator(precision="float32", kind="bpe", **settings):
    """Continuations make no sense, but they depend on every token, and some end."""
    settings = {"tie_weights": False, **settings}
    return TextGenerator(
        *_model_of_texts(zoo.causal_lm, np.random.default_rng(3), precision, kind, **settings)
    )


def small_translator(precision="float32", kind="bpe", beam_size=3, lines=LINES, **settings):
    """Translations make no sense, but they end, some soon and some not at all."""
    random, settings = np.random.default_rng(5), {"norm": "pre", "shared": "none", **settings}
    model, tokenizer = _model_of_texts(
        zoo.transformer, random, precision, kind, lines, seed=1, **settings
    )
    if model.norm == "pre" and model.norm_type == "layer" and model.shared == "none":
        # A constant part in what the output layer sees gives the end a constant part in its logit.
        constant = random.normal(size=model.embed_dim)
        model.decoder_norm.beta.assign(constant)
        kernel = keras.ops.convert_to_numpy(model.output_projection.kernel).copy()
        kernel[:, EOS_ID] += constant * 4.4 / (constant @ constant)
        model.output_projection.kernel.assign(kernel)
    return Translator(model, tokenizer, tokenizer, beam_size=beam_size)


def _model_of_texts(make, random, precision, kind, lines=LINES, seed=0, **settings):
    """A small model of texts and its tokenizer."""
    keras.utils.set_random_seed(seed)
    tokenizer = train_tokenizer(lines, kind, 330)
    sizes = {"embed_dim": 16, "num_heads": 2, "num_layers": 2, "ff_dim": 24, "max_length": 40}
    sides = ("source_", "target_") if make is zoo.transformer else ("",)
    vocabularies = {f"{side}vocab_size": tokenizer.vocab_size for side in sides}
    model = make(**vocabularies, **{**sizes, **settings}, dtype=precision)
    _draw(model, random, 0.3)
    return model, tokenizer


def _draw(model, random, scale):
    for weight in model.weights:
        weight.assign(weight + random.normal(0.0, scale, weight.shape))
