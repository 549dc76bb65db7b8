"""Searches find what they should, by comparison with each other and with trying everything."""

import functools
import itertools
import math
from typing import Any, NamedTuple
from unittest import mock

import keras
import numpy as np
import pytest
from keras import ops

import zoo
from zoo.decoding import (
    LogitsProcessor,
    SpecialTokens,
    beam_search,
    greedy_search,
    length_penalty,
    sample,
)
from zoo.decoding.top_k import blockwise_top_k

# Log-probabilities are sums of a few float32 numbers around 1.
TOLERANCE = 1e-4
SPECIAL = SpecialTokens(start=1, end=2, pad=0)
LENGTH = 4


def model_of(vocab_size=6, spread=1.0, seed=0):
    """A small Transformer whose distributions are neither flat nor certain."""
    keras.utils.set_random_seed(seed)
    model = zoo.transformer(
        source_vocab_size=12,
        target_vocab_size=vocab_size,
        embed_dim=16,
        num_heads=2,
        num_layers=1,
        shared="none",
    )
    random = np.random.default_rng(seed)
    for variable in model.trainable_variables:
        variable.assign(variable + random.normal(0.0, 0.3, variable.shape))
    kernel = model.output_projection.kernel
    kernel.assign(kernel * spread)
    return model


def sources(count=3, length=5, seed=0):
    return ops.convert_to_tensor(
        np.random.default_rng(seed).integers(3, 12, (count, length)).astype("int32")
    )


def greedy(model, source, length=LENGTH, **options):
    cache = model.start(source, length)
    return as_numpy(greedy_search(model.step, cache, len(source), SPECIAL, length, **options))


def beam(model, source, beam_size, length=LENGTH, **options):
    cache = model.start(source, length, beam_size)
    return as_numpy(
        beam_search(model.step, cache, len(source), SPECIAL, length, beam_size, **options)
    )


def as_numpy(hypotheses):
    return type(hypotheses)(*map(ops.convert_to_numpy, hypotheses))


def log_probs_of(model, source, hypotheses):
    """The log-probability of each hypothesis of a sentence, by one call of the model."""
    labels = np.array([*itertools.zip_longest(*hypotheses, fillvalue=SPECIAL.pad)], "int32").T
    target = np.pad(labels[:, :-1], [(0, 0), (1, 0)], constant_values=SPECIAL.start)
    inputs = {"source": ops.repeat(source, len(labels), axis=0), "target": target}
    logits = ops.convert_to_numpy(model(inputs)).astype("float64")
    log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
    gained = np.take_along_axis(log_probs, labels[..., None], axis=-1)[..., 0]
    return (gained * (labels != SPECIAL.pad)).sum(axis=-1)


def without_padding(tokens):
    return tuple(int(token) for token in tokens if token != SPECIAL.pad)


def penalty(tokens, alpha):
    return ((5 + len(tokens)) / 6) ** alpha


def every_hypothesis(vocab_size, length):
    """All that can be found: ended ones of up to `length` tokens."""
    words = range(3, vocab_size)
    for count in range(length):
        for tokens in itertools.product(words, repeat=count):
            yield (*tokens, SPECIAL.end)


@pytest.fixture(scope="module")
def log_probs():
    """{hypothesis: its log-probability} for each of two sources."""
    model, source = model_of(), sources(2)
    every = list(every_hypothesis(6, LENGTH))
    assert len(every) == 1 + 3 + 9 + 27
    return [dict(zip(every, log_probs_of(model, source[row : row + 1], every))) for row in (0, 1)]


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_the_widest_beam_finds_what_trying_everything_finds(log_probs, alpha):
    model, source, every = model_of(), sources(2), [*log_probs[0]]
    found = beam(model, source, beam_size=3**LENGTH + len(every), alpha=alpha)
    for row in range(2):
        scores = {t: log_probs[row][t] / penalty(t, alpha) for t in every}
        ranked = sorted(every, key=scores.get, reverse=True)
        np.testing.assert_allclose(
            found.scores[row, : len(every)], [scores[t] for t in ranked], atol=TOLERANCE
        )
        assert without_padding(found.tokens[row, 0]) == ranked[0]
        assert {without_padding(t) for t in found.tokens[row, : len(every)]} == set(every)
        # after them, those that were cut off
        cut = [without_padding(t) for t in found.tokens[row, len(every) :]]
        assert set(cut) == set(itertools.product(range(3, 6), repeat=LENGTH))


def test_scores_are_log_probabilities_over_the_penalty(alpha=0.6):
    model, source = model_of(9, seed=1), sources(4, seed=1)
    for found in (greedy(model, source, 6, alpha=alpha), beam(model, source, 3, 6, alpha=alpha)):
        for row in range(4):
            tokens = [without_padding(tokens) for tokens in found.tokens[row]]
            expected = log_probs_of(model, source[row : row + 1], tokens)
            np.testing.assert_allclose(found.log_probs[row], expected, rtol=0, atol=TOLERANCE)
            expected /= [penalty(t, alpha) for t in tokens]
            np.testing.assert_allclose(found.scores[row], expected, rtol=0, atol=TOLERANCE)
            # the best first; those that were cut off, after those that ended
            ended = (found.tokens[row] == SPECIAL.end).any(axis=-1)
            order = sorted(zip(ended, found.scores[row]), reverse=True)
            assert list(zip(ended, found.scores[row])) == order


def test_the_length_penalty_is_the_papers_or_that_of_other_libraries():
    assert float(length_penalty(7, 0.6)) == pytest.approx(2.0**0.6)
    assert float(length_penalty(7, 0.0)) == 1.0
    for length, expected in ((1, 1.0), (9, 3.0)):
        assert float(length_penalty(length, 0.5, offset=0.0)) == pytest.approx(expected)


class Table:
    """A step function whose log-probabilities depend on the last token and the position alone."""

    def __init__(self, log_probs):
        self.log_probs = np.asarray(log_probs, "float32")  # [T, V, V]

    def step(self, tokens, cache):
        rows = ops.take(ops.convert_to_tensor(self.log_probs), cache.position, axis=0)
        return ops.take(rows, tokens, axis=0), cache.next()

    def search(self, beam_size, alpha, rows=1, **options):
        settings = (rows, SPECIAL, len(self.log_probs), beam_size, alpha)
        return as_numpy(beam_search(self.step, _Position.first(), *settings, **options))

    def reference(self, beam_size, alpha):
        """Beam search in Python that never stops early: [(score, tokens)], the best first."""
        length, words = self.log_probs.shape[:2]
        live, finished = [(0.0, ())], []
        for position in range(length):
            candidates = sorted(
                (
                    (
                        total + self.log_probs[position, (SPECIAL.start, *tokens)[-1], word],
                        (*tokens, word),
                    )
                    for total, tokens in live
                    for word in range(SPECIAL.end, words)
                ),
                reverse=True,
            )
            for total, tokens in candidates[:beam_size]:
                if tokens[-1] == SPECIAL.end:
                    finished.append((total / penalty(tokens, alpha), tokens))
            live = [c for c in candidates if c[1][-1] != SPECIAL.end][:beam_size]
        finished = sorted(finished, reverse=True)[:beam_size]
        cut = [(total / penalty(tokens, alpha), tokens) for total, tokens in live]
        return (finished + cut)[:beam_size]


class _Position(NamedTuple):
    """A cache that knows the position only."""

    position: Any

    @classmethod
    def first(cls):
        return cls(ops.zeros((), "int32"))

    def next(self):
        return _Position(self.position + 1)

    def reorder(self, parents):
        return self


@pytest.mark.parametrize("beam_size, alpha", [(1, 0.6), (2, 0.0), (2, -0.5), (4, 1.5)])
def test_stopping_early_loses_nothing(beam_size, alpha):
    """The best is that of a search that never stops, with beams narrower than the search space."""
    random = np.random.default_rng(0)
    for _ in range(4):
        logits = random.normal(0.0, 1.5, size=(7, 7, 7))
        logits[..., SPECIAL.end] += 1.0
        table = Table(logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True)))
        found, expected = table.search(beam_size, alpha), table.reference(beam_size, alpha)
        assert without_padding(found.tokens[0, 0]) == expected[0][1]
        assert found.scores[0, 0] == pytest.approx(expected[0][0], abs=TOLERANCE)
        assert (found.scores[0] <= np.array([s for s, _ in expected]) + TOLERANCE).all()
        assert sum(SPECIAL.end in t for t in found.tokens[0]) == sum(
            SPECIAL.end in tokens for _, tokens in expected
        )


def test_a_search_stops_once_the_best_is_certain():
    """Two hypotheses have ended, and the best can no longer be surpassed; the second could be."""
    log_probs = np.full((6, 8, 8), -20.0)
    log_probs[0, SPECIAL.start, [SPECIAL.end, 3, 4]] = np.log([0.6, 0.3, 0.02])
    log_probs[1, 3, [5, SPECIAL.end]] = np.log([0.8, 0.1])
    log_probs[2:, 5, SPECIAL.end] = math.log(0.9)
    found = Table(log_probs).search(2, alpha=0.0)
    assert [without_padding(row) for row in found.tokens[0]] == [(SPECIAL.end,), (3, SPECIAL.end)]


def test_a_model_that_starts_with_the_end_token_can_end():
    """Like M2M100 and mBART, whose decoder starts with the end of the sentence before."""
    table = np.full((4, 5, 5), -9.0)
    table[0, SPECIAL.end, 3] = table[1, 3, 4] = table[2, 4, SPECIAL.end] = 0.0
    special = SpecialTokens(start=SPECIAL.end, end=SPECIAL.end, pad=0)
    step = Table(table).step
    for search in (greedy_search, beam_search):
        found = as_numpy(search(step, _Position.first(), 1, special, 4))
        assert without_padding(found.tokens[0, 0]) == (3, 4, SPECIAL.end)


@pytest.mark.parametrize(
    "beam_size, early_stopping", [(1, None), (3, "never"), (2, False), (2, True)]
)
def test_each_sentence_has_its_own_maximum_length(beam_size, early_stopping):
    """In a buffer for the longest; it finds what a search of this sentence alone finds."""
    model, source, lengths = model_of(9), sources(2), [5, 3]
    settings = {"beam_size": beam_size, "early_stopping": early_stopping}
    search = greedy_search if beam_size == 1 else functools.partial(beam_search, **settings)
    cache, each = model.start(source, 6, beam_size), ops.convert_to_tensor(lengths, "int32")
    found = as_numpy(search(model.step, cache, 2, SPECIAL, each, alpha=0.6, buffer_length=6))
    for row, length in enumerate(lengths):
        cache = model.start(source[row : row + 1], length, beam_size)
        alone = as_numpy(search(model.step, cache, 1, SPECIAL, length, alpha=0.6))
        np.testing.assert_array_equal(found.tokens[row, :, :length], alone.tokens[0])
        assert not found.tokens[row, :, length:].any()
        for part, expected in zip(found[1:], alone[1:]):
            np.testing.assert_allclose(part[row], expected[0], atol=TOLERANCE)


def processed(logits, tokens, max_length=9, special=SPECIAL, **options):
    """The logits after `tokens`, a single hypothesis; the buffer has room for more."""
    logits, buffer = np.asarray([[logits]], "float32"), np.asarray([[[*tokens, 0, 0]]], "int32")
    process = LogitsProcessor(special, max_length, **options)
    found = process(ops.convert_to_tensor(logits), ops.convert_to_tensor(buffer), len(tokens))
    return ops.convert_to_numpy(found)[0, 0].tolist()


def test_processed_logits():
    """For 7 tokens; the first two are padding and start."""
    no, logits = -math.inf, [9.0, 9.0, 2.0, -1.0, 3.0, -4.0, 0.5]
    free = [no, no, *logits[2:]]
    assert processed(logits, [3, 4]) == free
    assert processed(logits, [3, 4], repetition_penalty=2.0) == [no, no, 2, -2, 1.5, -4, 0.5]
    assert processed(logits, [3, 4], suppress_tokens=(2, 6)) == [no, no, no, -1, 3, -4, no]
    # 3 was followed by 4 and 5; an incomplete n-gram forbids nothing; all that occurred
    assert processed(logits, [3, 4, 3, 5, 3], no_repeat_ngram_size=2) == [
        *(no, no, 2, -1),
        *(no, no, 0.5),
    ]
    assert processed(logits, [3, 4, 3], no_repeat_ngram_size=3) == free
    assert processed(logits, [3, 4, 3], no_repeat_ngram_size=9) == free
    assert processed(logits, [3, 5], no_repeat_ngram_size=1) == [no, no, 2, no, 3, no, 0.5]
    prompt = np.asarray([[5, 3, 4, 3]], "int32")  # in place of the start token
    found = processed(logits, [4], prompt=prompt, no_repeat_ngram_size=3)
    assert found == [no, no, 2, no, 3, -4, 0.5]
    # the start token counts for the length
    assert processed(logits, [3, 4], min_length=3) == free
    assert processed(logits, [3, 4], min_length=4) == [no, no, no, *logits[3:]]
    assert processed(logits, [3, 4], min_new_tokens=3) == [no, no, no, *logits[3:]]
    prefix = np.asarray([[3]], "int32")
    assert processed(logits, [3, 4], prefix=prefix, min_new_tokens=2)[2] == no
    special = SPECIAL._replace(prefix=(3,))
    assert processed(logits, [3, 4], special=special, min_new_tokens=2) == free
    assert processed(logits, [], special=special) == [no, no, no, 0, no, no, no]
    # the end token, where nothing else is left, and at the maximum length
    nothing = processed(logits, [3], suppress_tokens=range(2, 7))
    assert nothing[2] < -1e8 and np.isneginf(np.delete(nothing, 2)).all()
    last = [no, no, 0, no, no, no, no]
    assert processed(logits, [3, 4], max_length=3, forced_eos=True, min_length=9) == last


@pytest.mark.parametrize("beam_size", [1, 3])
def test_options_in_searches(beam_size):
    """Each sentence has the result that it has alone, with its own prefix."""
    model, source = model_of(12), sources(3)
    options = {"no_repeat_ngram_size": 2, "repetition_penalty": 1.5, "suppress_tokens": (4,)}
    options |= {"min_new_tokens": 3, "forced_eos": True}
    prefix = np.asarray([[5, 6], [7, 0], [0, 0]], "int32")  # with padding

    def search(rows):
        cache = model.start(source[rows], 9, beam_size)
        settings = (model.step, cache, len(prefix[rows]), SPECIAL, 9)
        if beam_size == 1:
            return as_numpy(greedy_search(*settings, alpha=1.0, prefix=prefix[rows], **options))
        return as_numpy(
            beam_search(*settings, beam_size, alpha=1.0, prefix=prefix[rows], **options)
        )

    together, alone = search(slice(0, 3)), search(slice(1, 2))
    np.testing.assert_array_equal(together.tokens[1], alone.tokens[0])
    np.testing.assert_allclose(together.scores[1], alone.scores[0], atol=TOLERANCE)
    for row, length in enumerate((2, 1, 0)):
        for tokens in map(without_padding, together.tokens[row]):
            assert tokens[:length] == tuple(prefix[row, :length]) and tokens[-1] == SPECIAL.end
            assert len(tokens) > length + 3 and 4 not in tokens[length:]
            pairs = list(itertools.pairwise(tokens))
            assert len(pairs) == len({*pairs})
    uniforms = np.random.default_rng(0).random((3, 4, 9), np.float32)
    cache = model.start(source, 9, 4)
    drawn = as_numpy(sample(model.step, cache, uniforms, SPECIAL, 9, prefix=prefix, **options))
    assert (drawn.tokens[0, :, :2] == [5, 6]).all() and (drawn.tokens != 4).all()


def test_more_hypotheses_than_there_are():
    """With one word and two places there are two hypotheses that end and one that is cut off."""
    model, source = model_of(4), sources(1)
    found = beam(model, source, 5, 2)
    assert np.isfinite(found.log_probs[0]).sum() == 3
    assert {without_padding(t) for t in found.tokens[0, :3]} == {(2,), (3, 2), (3, 3)}


class FirstToken:
    """A step function with given probabilities of the first token, and the end as second."""

    def __init__(self, probabilities):
        self.first = np.log(np.asarray(probabilities, "float32"))

    def step(self, tokens, cache):
        end = np.where(np.arange(len(self.first)) == SPECIAL.end, 0.0, -50.0).astype("float32")
        logits = ops.where((tokens == SPECIAL.start)[..., None], self.first, end)
        return logits, cache


PROBABILITIES = np.asarray([1e-9, 1e-9, 1e-9, 0.5, 0.25, 0.15, 0.1])


@pytest.mark.parametrize(
    "options, expected",
    [
        ({}, [0.5, 0.25, 0.15, 0.1]),
        ({"top_k": 2}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_p": 0.6}, [2 / 3, 1 / 3, 0, 0]),
        ({"top_p": 0.05}, [1, 0, 0, 0]),
        ({"temperature": 0.5}, [0.25, 0.0625, 0.0225, 0.01]),
        ({"top_k": 3, "top_p": 0.8, "temperature": 0.5}, [0.25, 0.0625, 0, 0]),
    ],
)
def test_sampling_frequencies_follow_the_softmax(options, expected):
    count = 20_000
    uniforms = np.random.default_rng(0).random((1, count, 2), np.float32)
    table = FirstToken(PROBABILITIES)
    cache = ops.zeros((1,))
    found = as_numpy(sample(table.step, cache, uniforms, SPECIAL, 2, **options))
    shares = np.bincount(found.tokens[0, :, 0], minlength=7)[3:] / count
    expected = np.asarray(expected) / np.sum(expected)
    # four standard deviations of a share of 20,000 draws are at most 0.014
    np.testing.assert_allclose(shares, expected, atol=0.014)
    assert (shares[expected == 0] == 0).all()
    first = found.tokens[0, :, 0]
    np.testing.assert_allclose(found.log_probs[0], np.log(PROBABILITIES[first]), atol=TOLERANCE)


def test_a_draw_depends_on_its_random_numbers_alone():
    model, source = model_of(20), sources(4)
    uniforms = np.random.default_rng(0).random((4, 3, 6), np.float32)

    def draws(rows):
        cache = model.start(source[rows], 6, 3)
        return as_numpy(sample(model.step, cache, uniforms[rows], SPECIAL, 6)).tokens

    together = draws(slice(0, 4))
    np.testing.assert_array_equal(draws(slice(2, 3))[0], together[2])
    assert len({tuple(tokens) for tokens in together.reshape(-1, 6)}) > 6
    for extreme in (0.0, np.nextafter(np.float32(1), np.float32(0))):
        uniforms[:] = extreme
        assert (draws(slice(0, 4)) < 20).all()


def test_the_best_hypothesis_needs_no_others():
    """The search stops when it has ended, and finds the same."""
    model, source = model_of(9, spread=3.0), sources(16)
    for alpha in (-0.5, 0.6):
        settings = {"beam_size": 4, "length": 8, "alpha": alpha}
        found = [beam(model, source, **settings, best_only=value) for value in (False, True)]
        for field in zip(*found):
            np.testing.assert_array_equal(*(values[:, 0] for values in field))
    table = np.log(np.broadcast_to([1e-6, 1e-6, 0.9, 0.05, 0.05], (4, 5, 5)))
    for best_only, ended in ((False, 2), (True, 1)):
        found = Table(table).search(2, 0.0, best_only=best_only)
        assert np.isfinite(found.log_probs).sum() == ended
        assert without_padding(found.tokens[0, 0]) == (SPECIAL.end,)


def best_of(probabilities, early_stopping):
    """The best of two hypotheses; `probabilities` [T, V] do not depend on the last token."""
    table = np.log(np.broadcast_to(probabilities[:, None], (len(probabilities), 5, 5)))
    found = Table(table).search(2, 1.0, length_offset=0.0, early_stopping=early_stopping)
    return without_padding(found.tokens[0, 0])


@pytest.mark.parametrize("early_stopping, length", [(True, 1), (False, 1), ("never", 7)])
def test_early_stopping(early_stopping, length):
    """After "end" and "a end", two hypotheses have ended; "a a" would score less if it ended."""
    table = np.full((7, 5), 1e-6)
    table[:, 3] = 1.0  # "a"
    table[0, [2, 3, 4]] = 0.5, 0.3, 0.05
    table[1, [2, 3]] = 0.6, 0.4
    table[6, [2, 3]] = 1.0, 1e-6
    assert best_of(table, early_stopping) == (3,) * (length - 1) + (SPECIAL.end,)


@pytest.mark.parametrize("early_stopping, best", [(True, (3, 3)), (False, (3, 3)), ("never", (2,))])
def test_early_stopping_at_the_maximum_length(early_stopping, best):
    """There, "end" and "a end" have ended, but "a a", which is cut off, scores higher."""
    table = np.full((2, 5), 1e-6)
    table[:, [2, 3]] = [[0.3, 0.7], [0.1, 0.9]]
    assert best_of(table, early_stopping) == best


@pytest.mark.parametrize("k", [1, 3, 8])
@pytest.mark.parametrize("length", [4099, 8000, 8191])
def test_blockwise_top_k(k, length):
    """Values, indices and the order of equal values, of which there are many."""
    values = np.random.default_rng(length).normal(size=(2, 3, length)).astype("float32").round(1)
    values[1, 2, 20:] = -np.inf
    with mock.patch("zoo.decoding.top_k.ops", mock.Mock(wraps=ops)) as spy:
        found = blockwise_top_k(ops.convert_to_tensor(values), k)
        widths = [call.args[0].shape[-1] for call in spy.top_k.call_args_list]
        assert max(widths) <= 8 * 128, "the whole axis is not sorted"
        short = ops.convert_to_tensor(values[..., : 4 * k * 64])
        blockwise_top_k(short, k)
        assert spy.top_k.call_args.args[0] is short
    largest, indices = map(ops.convert_to_numpy, found)
    order = np.argsort(-values, axis=-1, kind="stable")[..., :k]
    np.testing.assert_array_equal(largest, np.take_along_axis(values, order, axis=-1))
    np.testing.assert_array_equal(largest, np.take_along_axis(values, indices, axis=-1))
    if keras.backend.backend() != "torch":  # which does not order equal values
        np.testing.assert_array_equal(indices, order)


@pytest.mark.parametrize("shape", [(4099,), (5, 4099), (2, 3, 4099)])
def test_blockwise_top_k_of_any_number_of_rows(shape):
    """Also in a graph, in which the number is not known."""
    values = np.random.default_rng(0).normal(size=shape).astype("float32")

    def top_k(values):
        return blockwise_top_k(values, 2)

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        spec = tf.TensorSpec((*[None] * (len(shape) - 1), 4099), tf.float32)
        top_k = tf.function(top_k, input_signature=[spec])
    order = np.argsort(-values, axis=-1, kind="stable")[..., :2]
    largest, indices = map(ops.convert_to_numpy, top_k(ops.convert_to_tensor(values)))
    np.testing.assert_array_equal(indices, order)
    np.testing.assert_array_equal(largest, np.take_along_axis(values, order, axis=-1))
    symbolic, _ = blockwise_top_k(keras.KerasTensor((None, 4099)), 2)
    assert symbolic.shape == (None, 2)
