"""Every public layer keeps the promises of `tests/contracts.py`."""

import inspect

import keras
import numpy as np
import pytest

import zoo
from tests import contracts
from tests.contracts import Case

_RANDOM = np.random.default_rng(0)
_B, _T, _S, _E = 3, 5, 4, 8


def _array(*shape):
    return _RANDOM.normal(size=shape).astype("float32")


def _hiding_a_row(queries, keys):
    mask = np.ones((_B, 1, queries, keys), bool)
    mask[0, :, 1] = False
    return mask


_ATTENTION = {
    "num_heads": 2,
    "key_dim": 3,
    "value_dim": 5,
    "dropout": 0.1,
    "use_bias": False,
    "kernel_initializer": "he_uniform",
}
_SEQUENCE = _array(_B, _T, _E)
_POSITIONS = np.arange(_B * 6, dtype="int32").reshape(_B, 6) % 10
_IMAGES = _array(_B, 4, 6, 3)
L = zoo.layers

CASES = {
    "MultiHeadSelfAttention": Case(
        lambda **k: L.MultiHeadSelfAttention(_E, **_ATTENTION, **k),
        [_SEQUENCE],
        [(1,)],
        _hiding_a_row(_T, _T),
    ),
    "MultiHeadAttention": Case(
        lambda **k: L.MultiHeadAttention(_E, **_ATTENTION, **k),
        [_SEQUENCE, _array(_B, _S, 6)],
        [(1,), (1,)],
        _hiding_a_row(_T, _S),
    ),
    "FeedForward": Case(
        lambda **k: L.FeedForward(6, 12, "silu", 0.1, "he_uniform", **k), [_SEQUENCE], [(1,)]
    ),
    "Residual": Case(
        lambda **k: L.Residual(
            keras.layers.Dense(_E, dtype=k.get("dtype")), "post", 0.1, 0.2, 0.5, 1e-3, **k
        ),
        [_SEQUENCE],
        [(1,)],
    ),
    "TransformerEncoder": Case(
        lambda **k: L.TransformerEncoder(
            _E, 2, 12, 0.1, 0.2, "post", 0.1, 0.5, "silu", 3, 1e-3, **k
        ),
        [_SEQUENCE],
        [(1,)],
        _hiding_a_row(_T, _T),
    ),
    "TransformerDecoder": Case(
        lambda **k: L.TransformerDecoder(_E, 2, 12, 0.1, 0.2, "post", "silu", 3, 1e-3, **k),
        [_SEQUENCE, _array(_B, _S, 6)],
        [(1,), (1,)],
        _hiding_a_row(_T, _T),
    ),
    "TokenEmbedding": Case(
        lambda **k: L.TokenEmbedding(300, _E, False, **k), [_POSITIONS[:, :_T]], [(1,)]
    ),
    "RelativePositions": Case(
        lambda **k: L.RelativePositions(2, 8, 20, False, **k),
        [_POSITIONS[:, :_T], _POSITIONS[:, :_S]],
        [(1,), ()],
    ),
    "SinusoidalPositions": Case(
        lambda **k: L.SinusoidalPositions("halves", 100.0, **k), [_SEQUENCE], [(1,)]
    ),
    "LearnedPositions": Case(
        lambda **k: L.LearnedPositions((2, 2), 1, "bilinear", **k), [_SEQUENCE], [(1,)]
    ),
    "PatchExtract": Case(lambda **k: L.PatchExtract(2, **k), [_IMAGES], [(1, 2)]),
    "PatchEmbed": Case(lambda **k: L.PatchEmbed(_E, 2, **k), [_IMAGES], [(1, 2)]),
    "ClassToken": Case(lambda **k: L.ClassToken(**k), [_SEQUENCE], [(1,)]),
    "RegisterTokens": Case(lambda **k: L.RegisterTokens(2, **k), [_SEQUENCE], [(1,)]),
}
each_layer = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())


def test_no_layer_is_forgotten():
    classes = {name: value for name, value in vars(L).items() if inspect.isclass(value)}
    public = {name for name, value in classes.items() if issubclass(value, keras.layers.Layer)}
    assert public == set(CASES)


@each_layer
def test_config_is_complete(case):
    contracts.check_config_is_complete(case)


@each_layer
def test_config_round_trip(case):
    contracts.check_config_round_trip(case)


@each_layer
def test_save_load_save(case, tmp_path):
    contracts.check_save_load_save(case, tmp_path)


@each_layer
def test_symbolic_shape(case):
    contracts.check_symbolic_shape(case)


@each_layer
def test_every_weight_learns(case):
    contracts.check_every_weight_learns(case)


@each_layer
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(case, policy):
    contracts.check_mixed_precision(case, policy)
