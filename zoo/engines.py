"""Engines that compute the outputs of a loaded model in place of TensorFlow, on CPUs.

Axes: B images or sentences, S source tokens, T target tokens, K hypotheses of a sentence.
"""

import math
import os
import pathlib
import tempfile
import threading

import numpy as np
from keras import ops

from zoo import decoding
from zoo.deploy import ctranslate2_format, onnx_format
from zoo.deploy.plain_graphs import classifier_graph
from zoo.errors import UserError, needed
from zoo.tasks.classifier import ImageClassifier
from zoo.tasks.translator import Translator

# CTranslate2 fills up missing hypotheses with tokens that cannot come next; their log-probabilities
# are -1e10 or less.
_IMPOSSIBLE = -1e9


def dtypes(name):
    """The values of `dtype` that `zoo.load` takes with an engine, the default first."""
    if name not in ENGINES:
        raise UserError(f"engine must be one of {(*ENGINES,)}. Received: engine={name!r}.")
    return ENGINES[name][2]


def create_engine(loaded, name, dtype):
    """The `engine` of a classifier or translator, see `zoo.load`."""
    task, create, _ = ENGINES[name]
    if not isinstance(loaded, task):
        raise UserError(
            f"engine={name!r} computes a model of type {task.__name__}. Received: "
            f"{type(loaded).__name__}."
        )
    return create(loaded, dtype)


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
    settings = {"PERFORMANCE_HINT": "LATENCY"}  # all cores for one batch
    settings["INFERENCE_PRECISION_HINT"] = {"float32": "f32", "bfloat16": "bf16"}[dtype]
    any_number = openvino.compile_model(model, "CPU", settings)
    model.reshape({"images": [1, *classifier.model.input_shape]})
    only_one = openvino.compile_model(model, "CPU", settings)  # faster, as its shapes are known
    lock = threading.Lock()

    def probabilities(images):
        with lock:  # they fail if two threads call them at the same time
            return (only_one if len(images) == 1 else any_number)(images)["probabilities"]

    return probabilities


def ctranslate2_engine(translator, dtype):
    """CTranslate2 as a function of tokens and settings: `zoo.decoding.Hypotheses`."""
    special, engine = translator.special_tokens, _ctranslate2_model(translator, dtype)
    prefix = [] if special.first is None else [str(special.first)]

    def search(source, alpha, max_length, first=None, *, beam_size, options, best_only):
        """Like `zoo.tasks.translator.Translator.search`, for arrays."""
        prefixes = [prefix] * len(source)
        if first is not None:
            prefixes = [[str(id) for id in row if id != special.pad] for row in first]
        limit = int(max_length) - options.forced_eos
        results = engine.translate_batch(
            [[str(id) for id in row if id != special.pad] for row in source],
            target_prefix=prefixes,
            max_batch_size=math.ceil(len(source) / engine.num_translators),  # computed at once
            beam_size=beam_size,
            num_hypotheses=beam_size,
            length_penalty=float(alpha),
            max_input_length=0,  # no limit; otherwise longer texts are cut
            max_decoding_length=limit,
            suppress_sequences=[[str(id)] for id in decoding.excluded(special, options)],
            **ctranslate2_format.search_options(options),
            return_scores=True,
        )
        tokens = np.full((len(source), beam_size, max_length), special.pad, np.int32)
        log_probs = np.full(tokens.shape[:2], -np.inf, np.float32)
        for row, best in enumerate(results):
            for k, (names, score) in enumerate(zip(best.hypotheses, best.scores)):
                ids = [*map(int, names), special.end][:max_length]
                log_prob = score * len(ids) ** alpha  # CTranslate2's length penalty
                if not log_prob < _IMPOSSIBLE:  # but NaN, which is an error
                    tokens[row, k, : len(ids)] = ids
                    log_probs[row, k] = log_prob
        given = 0 if first is None else (first != special.pad).sum(axis=-1, keepdims=True)
        return _sorted(translator, tokens, log_probs, alpha, given)

    return search


def _ctranslate2_model(translator, dtype):
    threads = {}
    if dtype == "int8":  # faster with one thread per sentence
        has_affinity = hasattr(os, "sched_getaffinity")
        cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
        threads = {"intra_threads": 1, "inter_threads": cores}
    with tempfile.TemporaryDirectory() as folder:
        special = translator.special_tokens
        ctranslate2_format.write_model(translator.model, special, pathlib.Path(folder), dtype)
        return needed("ctranslate2").Translator(folder, **threads)


def _sorted(translator, tokens, log_probs, alpha, given=0):
    """`Hypotheses` in the order of the zoo's scores, which do not count `given` tokens."""
    special = translator.special_tokens
    lengths = np.maximum((tokens != special.pad).sum(axis=-1) - given, 1)
    penalty = decoding.LengthPenalty(alpha, translator.length_offset)
    scores = log_probs / ops.convert_to_numpy(decoding.length_penalty(lengths, penalty))
    is_cut = (tokens != special.end).all(axis=-1)
    order = np.lexsort((-scores, is_cut & (translator.early_stopping == "never")))
    return decoding.Hypotheses(
        np.take_along_axis(tokens, order[..., None], axis=1),
        np.take_along_axis(log_probs, order, axis=1),
        np.take_along_axis(scores, order, axis=1),
    )


ENGINES = {  # name: (class of tasks, function of one and a dtype, dtypes)
    "onnxruntime": (ImageClassifier, onnxruntime_engine, ("float32", "int8")),
    "openvino": (ImageClassifier, openvino_engine, ("float32", "bfloat16")),
    "ctranslate2": (Translator, ctranslate2_engine, ("float32", "int8")),
}
