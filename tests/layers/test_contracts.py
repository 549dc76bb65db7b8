"""Every public layer keeps the promises of `tests/contracts.py`."""

import functools
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


_PADDING = np.arange(_B)[:, None] * np.ones(_T) > 0  # the first sequence is all padding
_ATTENTION = {
    "num_heads": 2,
    "key_dim": 3,
    "value_dim": 5,
    "dropout": 0.1,
    "qkv_bias": False,
    "output_bias": False,
    "kernel_initializer": "he_uniform",
    "attention": "blockwise",
    "causal": True,
}
_BLOCK = {
    "embed_dim": _E,
    "num_heads": 2,
    "ff_dim": 12,
    "dropout": 0.1,
    "attention_dropout": 0.2,
    "norm": "post",
    "activation": "silu",
    "stochastic_depth": 0.1,
    "layer_scale": 0.5,
    "key_dim": 4,
    "qkv_bias": False,
    "epsilon": 1e-3,
    "kernel_initializer": "he_uniform",
    "attention": "blockwise",
}
_BLOCK_RATES = ("dropout", "attention_dropout", "stochastic_depth")
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
        {"mask": 0},
        ("dropout",),
    ),
    "MultiHeadAttention": Case(
        lambda **k: L.MultiHeadAttention(_E, **_ATTENTION, **k),
        [_SEQUENCE, _array(_B, _T, 6)],
        [(1,), (1,)],
        _hiding_a_row(_T, _T),
        {"mask": 1},
        ("dropout",),
    ),
    "FeedForward": Case(
        lambda **k: L.FeedForward(6, 12, "silu", 0.1, "he_uniform", **k),
        [_SEQUENCE],
        [(1,)],
        rates=("dropout",),
    ),
    "TransformerEncoder": Case(
        lambda **k: L.TransformerEncoder(**_BLOCK, **k),
        [_SEQUENCE],
        [(1,)],
        _hiding_a_row(_T, _T),
        {"mask": 0},
        _BLOCK_RATES,
    ),
    "TransformerDecoder": Case(
        lambda **k: L.TransformerDecoder(**_BLOCK, **k),
        [_SEQUENCE, _array(_B, _S, 6)],
        [(1,), (1,)],
        _hiding_a_row(_T, _T),
        {"mask": 0, "memory_mask": 1},
        _BLOCK_RATES,
    ),
    "TransformerDecoder, no memory": Case(
        lambda **k: L.TransformerDecoder(**_BLOCK, **{"cross_attention": False, **k}),
        [_SEQUENCE],
        [(1,)],
        _hiding_a_row(_T, _T),
        {"mask": 0},
        _BLOCK_RATES,
    ),
    "SSRU": Case(
        lambda **k: L.SSRU(_E, "he_uniform", **k),
        [_array(_B, _T, 6)],
        [(1,)],
        _PADDING,
        {"mask": 0},
        for_each_query=False,
    ),
    "Dropout": Case(lambda **k: L.Dropout(0.3, (None, 1, 1), 7, **k), [_SEQUENCE], [(1,)]),
    "LayerNormalization": Case(lambda **k: L.LayerNormalization(1e-3, **k), [_SEQUENCE], [(1,)]),
    "LayerScale": Case(lambda **k: L.LayerScale(0.3, **k), [_SEQUENCE], [(1,)]),
    "RelativePositions": Case(
        lambda **k: L.RelativePositions(2, 8, 20, False, **k),
        [_POSITIONS[:, :_T], _POSITIONS[:, :_S]],
        [(1,), ()],
    ),
    "RotaryPositions": Case(
        lambda **k: L.RotaryPositions(8, 100.0, 2, **k),
        [np.stack([_POSITIONS, _POSITIONS[::-1]], axis=-1)],
        [(1,)],
    ),
    "SinusoidalGridPositions": Case(
        lambda **k: L.SinusoidalGridPositions((2, 2), **k), [_array(_B, 4, 8)], [(1,)]
    ),
    "SinusoidalPositions": Case(
        lambda **k: L.SinusoidalPositions("halves", 100.0, 3, **k), [_SEQUENCE], [(1,)]
    ),
    "LearnedPositions": Case(
        lambda **k: L.LearnedPositions((2, 2), 1, "bilinear", **k), [_SEQUENCE], [(1,)]
    ),
    "PatchExtract": Case(lambda **k: L.PatchExtract(2, **k), [_IMAGES], [(1, 2)]),
    "PatchEmbed": Case(lambda **k: L.PatchEmbed(_E, 2, "he_uniform", **k), [_IMAGES], [(1, 2)]),
    "PatchDropout": Case(lambda **k: L.PatchDropout(0.5, 1, 7, **k), [_SEQUENCE], [(1,)]),
    "SqueezeExcite": Case(
        lambda **k: L.SqueezeExcite(2, True, **k), [_array(_B, 5, 4, _E)], [(1, 2)]
    ),
    "ConvBlockAttention": Case(
        lambda **k: L.ConvBlockAttention(2, 3, True, **k), [_array(_B, 5, 4, _E)], [(1, 2)]
    ),
    "ClassToken": Case(lambda **k: L.ClassToken(2, "ones", **k), [_SEQUENCE], [(1,)]),
    "RegisterTokens": Case(lambda **k: L.RegisterTokens(2, 1, "ones", **k), [_SEQUENCE], [(1,)]),
}
# The others are made with blockwise attention, which is softmax attention for short inputs.
for _class, _arguments, _kind in (
    ("MultiHeadSelfAttention", {"embed_dim": _E, **_ATTENTION}, "linear"),
    ("TransformerEncoder", _BLOCK, "linear"),
    ("TransformerDecoder", _BLOCK, "linear"),
    ("TransformerDecoder", _BLOCK, "ssru"),
):
    _made = functools.partial(getattr(L, _class), **{**_arguments, "attention": _kind})
    CASES[f"{_class}, {_kind}"] = CASES[_class]._replace(
        make=_made, mask=_PADDING, for_each_query=False
    )
each_layer = pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
# Blocks pass masks and rates on to their attention, whatever its kind.
_ONE_BLOCK = {n: c for n, c in CASES.items() if "," not in n or "Transformer" not in n}


def test_no_layer_is_forgotten():
    classes = {name: value for name, value in vars(L).items() if inspect.isclass(value)}
    public = {name for name, value in classes.items() if issubclass(value, keras.layers.Layer)}
    tested = {name.split(",")[0] for name in CASES}
    assert public == {*tested, "TransformerBlock"}, "TransformerBlock is a base"


def test_no_mask_and_no_rate_is_forgotten():
    for name, case in CASES.items():
        taken = [n for n in inspect.signature(case.make().call).parameters if n.endswith("mask")]
        assert taken[: len(case.inputs)] == list(case.keys), name
        rates = [n for n in case.make().get_config() if "dropout" in n or "depth" in n]
        assert sorted(rates) == sorted(case.rates), name


def test_a_config_that_lacks_an_argument():
    class Lacking(zoo.layers.TransformerEncoder):
        def __init__(self, other, **kwargs):
            super().__init__(**kwargs)

    with pytest.raises(NotImplementedError, match="Lacking.* must store .*other"):
        Lacking(1, embed_dim=4, num_heads=2).get_config()


@pytest.mark.parametrize(
    "check",
    [
        contracts.check_config_is_complete,
        contracts.check_config_round_trip,
        contracts.check_symbolic_shape,
        contracts.check_every_weight_learns,
        contracts.check_subclass_config,
        contracts.check_paths,
        contracts.check_any_initializer,
        contracts.check_sublayer_configs,
        contracts.check_all_is_built,
        contracts.check_empty_batch,
        contracts.check_channels_stay_last,
    ],
    ids=lambda check: check.__name__,
)
@each_layer
def test_contract(case, check):
    check(case)


@each_layer
def test_save_load_save(case, tmp_path):
    contracts.check_save_load_save(case, tmp_path)


@each_layer
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(case, policy):
    contracts.check_mixed_precision(case, policy)


@pytest.mark.parametrize("name", [name for name, case in _ONE_BLOCK.items() if case.rates])
def test_dropout_acts_in_fit(name):
    contracts.check_dropout_acts_in_fit(CASES[name])


@pytest.mark.parametrize("name", [name for name, case in _ONE_BLOCK.items() if case.keys])
def test_masks(name):
    contracts.check_carried_masks(CASES[name])
    contracts.check_float_masks_are_refused(CASES[name])
