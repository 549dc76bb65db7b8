"""Engines that compute the outputs of a loaded model in place of TensorFlow, on CPUs.

Axes: B images or sentences, T target tokens, K hypotheses of a sentence, F tokens of a prefix.
"""

import math
import pathlib
import tempfile
import threading
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from keras import ops

from zoo import decoding
from zoo.deploy import ctranslate2_format, onnx_format
from zoo.deploy.plain_graphs import classifier_graph
from zoo.errors import UserError, needed
from zoo.hardware import num_cores
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.translator import Translator

# CTranslate2 fills up missing hypotheses with tokens that cannot come next; their log-probabilities
# are -1e10 or less.
_IMPOSSIBLE = -1e9


def dtypes(name):
    """The values of `dtype` that an engine supports, the default first."""
    if name not in ENGINES:
        raise UserError(f"engine must be one of {(*ENGINES,)}. Received: engine={name!r}.")
    return ENGINES[name].dtypes


def create_engine(loaded, name, dtype):
    """Creates the `engine` of a classifier or translator, see `zoo.load`."""
    engine = ENGINES[name]
    if not isinstance(loaded, engine.task):
        raise UserError(
            f"engine={name!r} computes a model of type {engine.task.__name__}. Received: "
            f"{type(loaded).__name__}."
        )
    return engine.create(loaded, dtype)


def onnxruntime_engine(classifier, dtype):
    """ONNX Runtime as a function of preprocessed images: probabilities, float32 [B, classes]."""
    graph = classifier_graph(classifier, preprocessed=True)
    run = onnx_format.runner(onnx_format.to_onnx(graph, dtype).SerializeToString())
    return lambda images: run(images=images)["probabilities"]


def openvino_engine(classifier, dtype):
    """OpenVINO as a function of preprocessed images: probabilities, float32 [B, classes]."""
    openvino = needed("openvino")
    graph = classifier_graph(classifier, preprocessed=True)
    model = openvino.Core().read_model(onnx_format.to_onnx(graph).SerializeToString())
    hints = {
        "PERFORMANCE_HINT": "LATENCY",  # all cores for one batch
        "INFERENCE_PRECISION_HINT": {"float32": "f32", "bfloat16": "bf16"}[dtype],
    }
    run_batch = openvino.compile_model(model, "CPU", hints)
    model.reshape({"images": [1, *classifier.image_shape]})
    run_one = openvino.compile_model(model, "CPU", hints)  # faster: all lengths are known
    lock = threading.Lock()

    def probabilities(images):
        run = run_one if len(images) == 1 else run_batch
        with lock:  # OpenVINO fails if two threads call a model at the same time
            return run(images)["probabilities"]

    return probabilities


def ctranslate2_engine(translator, dtype):
    """CTranslate2 as a function like `zoo.tasks.translator.Translator.search`, for arrays."""
    special = translator.special_tokens
    engine = _ctranslate2_model(translator, dtype)

    def as_names(rows):
        """int [B, T], with padding -> a list of names of tokens for each row."""
        return [[str(token) for token in row if token != special.pad] for row in rows]

    def translate(source, prefix, alpha, max_length, beam_size, options):
        suppressed = decoding.never_generated(special, options.suppress_tokens)
        return engine.translate_batch(
            as_names(source),
            target_prefix=as_names(prefix),
            max_batch_size=math.ceil(len(source) / engine.num_translators),  # computed at once
            beam_size=beam_size,
            num_hypotheses=beam_size,
            length_penalty=float(alpha),
            max_input_length=0,  # no limit; otherwise longer texts are cut
            max_decoding_length=int(max_length) - options.forced_eos,
            suppress_sequences=[[str(token)] for token in suppressed],
            **ctranslate2_format.search_options(options),
            return_scores=True,
        )

    def search(source, alpha, max_length, prefix=None, *, beam_size, options, best_only):
        batch_size = len(source)
        unscored_lengths = np.zeros((batch_size, 1), int)  # the length penalty does not count these
        if prefix is None:
            prefix = np.tile(np.array([special.prefix], int), (batch_size, 1))  # [B, F]
        else:
            unscored_lengths = (prefix != special.pad).sum(axis=-1, keepdims=True)  # [B, 1]
        results = [None] * batch_size
        # CTranslate2 counts a prefix as new tokens: sentences are grouped by its length.
        given = unscored_lengths[:, 0] * (options.min_new_tokens > 0)
        for length in np.unique(given).tolist():
            [rows] = np.nonzero(given == length)
            counted = options._replace(min_new_tokens=options.min_new_tokens + length)
            found = translate(source[rows], prefix[rows], alpha, max_length, beam_size, counted)
            for row, result in zip(rows, found):
                results[row] = result
        tokens = np.full((batch_size, beam_size, max_length), special.pad, np.int32)  # [B, K, T]
        log_probs = np.full((batch_size, beam_size), -np.inf, np.float32)  # [B, K]
        for row, result in enumerate(results):
            for k, (names, score) in enumerate(zip(result.hypotheses, result.scores)):
                ids = [*map(int, names), special.end][:max_length]
                log_prob = score * len(ids) ** alpha  # CTranslate2's length penalty
                if not log_prob < _IMPOSSIBLE:  # but NaN, which is an error
                    tokens[row, k, : len(ids)] = ids
                    log_probs[row, k] = log_prob
        return _sort(translator, tokens, log_probs, alpha, unscored_lengths)

    return search


def _ctranslate2_model(translator, dtype):
    threads = {}
    if dtype == "int8":  # faster with one thread per sentence
        threads = {"intra_threads": 1, "inter_threads": num_cores()}
    with tempfile.TemporaryDirectory() as folder:
        ctranslate2_format.write_model(
            translator.model, translator.special_tokens, pathlib.Path(folder), dtype
        )
        return needed("ctranslate2").Translator(folder, **threads)


def _sort(translator, tokens, log_probs, alpha, unscored_lengths):
    """Returns `Hypotheses` in the order of the zoo's scores.

    Args:
        tokens: int32 [B, K, T].
        log_probs: float32 [B, K].
        alpha: exponent of the length penalty.
        unscored_lengths: int [B, 1], numbers of tokens that the length penalty does not count.
    """
    special = translator.special_tokens
    lengths = (tokens != special.pad).sum(axis=-1) - unscored_lengths  # [B, K]
    penalty = decoding.length_penalty(np.maximum(lengths, 1), alpha, translator.length_offset)
    scores = log_probs / ops.convert_to_numpy(penalty)
    comes_last = np.zeros_like(scores, bool)
    if translator.early_stopping == "never":
        comes_last = (tokens != special.end).all(axis=-1)  # hypotheses that were cut off
    order = np.lexsort((-scores, comes_last))  # [B, K]
    return decoding.Hypotheses(
        tokens=np.take_along_axis(tokens, order[..., None], axis=1),
        log_probs=np.take_along_axis(log_probs, order, axis=1),
        scores=np.take_along_axis(scores, order, axis=1),
    )


class _Engine(NamedTuple):
    """How to create an engine.

    Fields:
        task: the class of tasks that the engine supports.
        create: function of a task and a dtype that returns the engine.
        dtypes: the dtypes that it supports, the default first.
    """

    task: type
    create: Callable
    dtypes: tuple


ENGINES = {
    "onnxruntime": _Engine(ImageClassifier, onnxruntime_engine, ("float32", "int8")),
    "openvino": _Engine(ImageClassifier, openvino_engine, ("float32", "bfloat16")),
    "ctranslate2": _Engine(Translator, ctranslate2_engine, ("float32", "int8")),
}
