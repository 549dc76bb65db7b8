"""SavedModel signatures of classifiers and encoders: images or texts to labels or features.

Axes: B images or texts, H image height, W image width, C channels, K returned classes, E features.
"""

import numpy as np
import tensorflow as tf

from zoo.data.image_files import decode, refusal
from zoo.data.worker_batches import without_autotuning
from zoo.deploy.signatures import TEXTS, Signature, Signatures, TextSignatures, example_texts
from zoo.deploy.text_graph import TextGraph
from zoo.models.attention_rollout import attention_rollout
from zoo.tasks.classifier import Classifier

_PARALLEL_DECODES = 4
_IMAGES_AT_ONCE = 32  # bounds the memory for a large batch


class ClassifierSignatures(Signatures):
    """`Signatures` of a classifier or encoder of images.

    Args:
        classifier: `zoo.tasks.classifier.ImageClassifier` or `zoo.tasks.encoder.ImageEncoder`.
        top_k: K; None for an encoder.
        dynamic_size: whether pixels are not resized.
    """

    def __init__(self, classifier, top_k=None, dynamic_size=False):
        super().__init__(classifier)
        self._top_k = top_k
        self._dynamic_size = dynamic_size
        self._preprocessing = classifier.preprocessing
        self._outputs = tf.function(self._compute_outputs, autograph=False)

    def signatures(self):
        encoded = tf.TensorSpec([None], tf.string, "image_bytes")
        channels = self._preprocessing.channels
        pixels = tf.TensorSpec([None, None, None, channels], tf.uint8, "pixels")
        sizes = "any size, not resized," if self._dynamic_size else "any size"
        found = "labels" if self._top_k else "features"
        signatures = {
            "serving_default": _signature(self.classify, encoded, f"encoded images to {found}"),
            "pixels": _signature(self.classify_pixels, pixels, f"pixels of {sizes} to {found}"),
        }
        if hasattr(self._model, "attention_maps"):
            what = "encoded images to attention rollout"
            signatures["attention"] = _signature(self.attention, encoded, what)
        return signatures

    def examples(self):
        random = np.random.default_rng(0)
        size = np.array(self._preprocessing.image_size)
        images = [np.full((*size, 3), 128, np.uint8)]
        for scale in ((1.0, 1.0), (0.4, 0.7), (3.0, 1.7), (1.2, 4.0)):
            height, width = np.maximum(1, size * scale).astype(int)
            images.append(random.integers(0, 256, (height, width, 3), np.uint8))
        files = []
        for pixels in images:
            files.append(tf.io.encode_png(pixels).numpy())
            files.append(tf.io.encode_jpeg(pixels).numpy())
        return files, _all_answers(self._task, [decode(file).numpy() for file in files])

    def classify(self, image_bytes):
        """Classifies JPEG or PNG images, string [B]."""
        return self._answers(*self._read(image_bytes))

    def classify_pixels(self, pixels):
        """Classifies pixels, uint8 [B, height, width, C]."""
        return self._answers(self._fit(pixels), tf.fill(tf.shape(pixels)[:1], ""))

    def attention(self, image_bytes):
        """Returns the attention rollout to each patch, and the preprocessed pixels."""
        pixels, error = self._read(image_bytes)
        shares = attention_rollout(self._model, self._preprocessing.normalize(pixels))
        return {
            "attention": _spread(shares, error),
            "pixels": _spread(pixels, error),
            "error": error,
        }

    def _answers(self, pixels, error):
        """Computes the valid images of a batch, uint8 [valid, H, W, C]; `error` is string [B]."""
        outputs = _spread(self._outputs(pixels), error)
        return _labeled(self._task, outputs, error, self._top_k)

    def _compute_outputs(self, pixels):
        return self._task.compute_outputs(self._preprocessing.normalize(pixels))

    def _fit(self, pixels):
        """Resizes and crops pixels to the size of the model; with `dynamic_size`, checks theirs."""
        sides = tf.shape(pixels)[1:3]  # height and width
        unit = self._model.patch_size if self._dynamic_size else 1
        check = tf.debugging.Assert(
            tf.reduce_all((sides > 0) & (sides % unit == 0)),
            [f"Height and width must be multiples of {unit}, not 0. Received:", sides],
        )
        with tf.control_dependencies([check]):
            pixels = tf.identity(pixels)
        if self._dynamic_size:
            return pixels
        shape = (*self._preprocessing.image_size, self._preprocessing.channels)
        spec = tf.TensorSpec(shape, tf.uint8)
        return tf.map_fn(self._preprocessing.fit, pixels, fn_output_signature=spec)

    def _read(self, image_bytes):
        """Returns pixels of the valid images, uint8 [valid, H, W, C], and errors, string [B]."""
        count = tf.shape(image_bytes, out_type=tf.int64)[0]
        shape = (*self._preprocessing.image_size, self._preprocessing.channels)
        empty = tf.zeros(shape, tf.uint8)

        def read(index, data):
            reason = refusal(data)
            pixels = tf.cond(
                reason == "", lambda: self._preprocessing.fit(decode(data)), lambda: empty
            )
            return index, pixels, reason

        # In a graph, only a data set can ignore errors. Without it, an error of one image would
        # fail the whole batch.
        images = tf.data.Dataset.from_tensor_slices((tf.range(count), image_bytes))
        images = images.map(read, num_parallel_calls=_PARALLEL_DECODES).ignore_errors()
        end = tf.data.Dataset.from_tensors((count, empty, "end"))  # so that no batch is empty
        images = images.concatenate(end).batch(count + 1)
        indices, pixels, reasons = without_autotuning(images).get_single_element()
        error = tf.fill([count + 1], "It is damaged or uses an unsupported feature.")
        error = tf.tensor_scatter_nd_update(error, indices[:, None], reasons)
        return tf.boolean_mask(pixels, reasons == ""), error[:-1]


class TextClassifierSignatures(TextSignatures):
    """`Signatures` of a classifier or encoder of texts; `top_k` is None for an encoder."""

    def __init__(self, classifier, top_k=None):
        self._top_k = top_k
        self._text_graph = TextGraph(classifier.tokenizer)
        super().__init__(classifier, classifier.model.max_length, self._text_graph)

    def signatures(self):
        found = "labels" if self._top_k else "features"
        return {"serving_default": Signature(self.classify, [TEXTS], f"texts to {found}")}

    def examples(self):
        texts = example_texts(self._task.tokenizer, self._limit - 2)
        return texts, _all_answers(self._task, texts)

    def classify(self, texts):
        """Classifies texts, string [B]."""
        tokens, error = self._encode(
            self._text_graph, texts, [self._special.start], [self._special.end]
        )
        [outputs] = self._computed(
            lambda _, tokens: [self._task.compute_outputs(tokens)],
            [tokens],
            error,
            [tf.zeros([tf.size(texts), self._task.output_width])],
        )
        return _labeled(self._task, outputs, error, self._top_k)


def _all_answers(task, inputs):
    if isinstance(task, Classifier):
        return task(inputs, top_k=len(task.class_names))
    return task(inputs)


def _labeled(task, outputs, error, top_k):
    """The outputs of a signature, given those of the model: [B, classes], or features [B, E]."""
    if not top_k:
        return {"features": outputs, "error": error}
    probabilities, order = tf.math.top_k(outputs, top_k)
    labels = tf.where((error == "")[:, None], tf.gather(task.class_names, order), "")
    return {"labels": labels, "probabilities": probabilities, "error": error}


def _signature(function, spec, what):
    """Returns a `Signature` that computes `_IMAGES_AT_ONCE` images at a time.

    `function` takes a tensor [B, ...] and returns {name: tensor [B, ...]}.
    """
    part = tf.function(function, input_signature=[spec], autograph=False)

    def whole(images):
        outputs = part.get_concrete_function().structured_outputs
        starts = tf.range(0, tf.maximum(1, tf.shape(images)[0]), _IMAGES_AT_ONCE)
        found = tf.map_fn(
            lambda start: part(images[start : start + _IMAGES_AT_ONCE]),
            starts,  # one for an empty part, if there are no images
            parallel_iterations=1,
            fn_output_signature={
                name: tf.RaggedTensorSpec(output.shape, output.dtype, ragged_rank=0)
                for name, output in outputs.items()
            },
        )
        return {name: parts.values for name, parts in found.items()}

    return Signature(whole, [spec], what)


def _spread(values, error):
    """Inserts zeros for invalid images into the values of valid ones: [valid, ...] to [B, ...]."""
    shape = tf.concat([tf.shape(error), tf.shape(values)[1:]], axis=0)
    return tf.scatter_nd(tf.cast(tf.where(error == ""), tf.int32), values, shape)
