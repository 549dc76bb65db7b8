"""What a translator and a text generator share: beam search and sampling over batches of texts.

Axes: B texts, K hypotheses of a text, T tokens.
"""

import numpy as np

from zoo.errors import checked
from zoo.tasks.task import TextTask, without_nan


class TextWriter(TextTask):
    """A task that writes texts.

    A subclass has `search` and `draw`, the graphs of both, and `_inputs`, what they take of a
    batch: (arrays [B, ...], the largest number of tokens to write, that for which there is memory).
    """

    def __call__(self, texts, **options):
        """The best answer to each text, a list of str; see `n_best`."""
        return [best.text for [best, *_] in self.n_best(texts, **options)]

    def _searched(self, rows, most, n, beam_size, length_penalty, least_beam_size=1):
        """For each row of tokens the arrays of its `zoo.decoding.Hypotheses`, by beam search.

        At most `most` tokens are written, or by default as many as `_inputs` says. The default of
        the beam size is `n`, but at least `least_beam_size`.
        """
        n = checked("n", n, int, 1)
        beam_size = max(n, least_beam_size) if beam_size is None else beam_size
        settings = {"beam_size": checked("beam_size", beam_size, int, n), "best_only": n == 1}
        alpha = np.float32(checked("length_penalty", length_penalty, float))

        def search(batch):
            inputs, length, buffer = self._inputs(batch, most)
            if self.engine is not None:  # of a translator
                [source] = (array[: len(batch.indices)] for array in inputs)
                return without_nan(self.engine(source, alpha, length, settings["beam_size"]))
            return self.run(self.search, *inputs, alpha, length, buffer_length=buffer, **settings)

        best = self.compute([[row] for row in rows], search, most or 0)
        return [[array[:n] for array in arrays] for arrays in best]

    def _drawn(self, rows, most, n, seed, temperature, top_k, top_p):
        """The same by sampling, `n` for each row."""
        n, seed = checked("n", n, int, 1), checked("seed", seed, int, 0)
        temperature = np.float32(checked("temperature", temperature, float, 1e-3))
        top_k = None if top_k is None else checked("top_k", top_k, int, 1)
        top_p = np.float32(1.0 if top_p is None else checked("top_p", top_p, float, 1e-6, 1.0))

        def draw(batch):
            inputs, length, buffer = self._inputs(batch, most)
            random = np.zeros((len(inputs[0]), n, buffer), np.float32)
            for row, index in zip(random, batch.indices):  # those of a text depend on it alone
                row[:] = np.random.default_rng([seed, index]).random((buffer, n), np.float32).T
            scalars = (length, temperature, top_p)
            return self.run(self.draw, *inputs, random, *scalars, top_k=top_k)

        return self.compute([[row] for row in rows], draw, most or 0)
