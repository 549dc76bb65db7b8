"""Runs encoder.onnx and decoder.onnx with ONNX Runtime; search.py implements the beam search.

Axes: B sentences, S source tokens.
"""

import numpy as np
import onnxruntime
from search import END_ID, PAD_ID, Steps, beam_search, runner

__all__ = ["END_ID", "Engine"]


class Engine:
    """Translates ids; `folder` is that of the export."""

    def __init__(self, folder):
        sessions = [
            onnxruntime.InferenceSession(
                (folder / name).read_bytes(), providers=["CPUExecutionProvider"]
            )
            for name in ("encoder.onnx", "decoder.onnx")
        ]
        self.encode, self.decode = map(runner, sessions)

    def __call__(self, sources, beam_size, length_penalty, max_length):
        """Finds the best translations.

        Args:
            sources: lists of ids, each with the end token.
            beam_size, length_penalty: of the search.
            max_length: largest number of ids of a translation, the end token included.

        Returns:
            For each source a list of (ids, score), the best first.
        """
        batch = np.full((len(sources), max(map(len, sources))), PAD_ID, np.int32)
        for row, ids in zip(batch, sources):
            row[: len(ids)] = ids
        steps, shape = Steps(self.encode, self.decode, batch, beam_size), (len(batch), beam_size)
        tokens, _, scores = beam_search(steps, shape, max_length, length_penalty)
        return [
            [(ids, float(score)) for ids, score in zip(*one) if np.isfinite(score)]
            for one in zip(tokens, scores)
        ]
