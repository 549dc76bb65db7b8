"""Greedy search, beam search and sampling over one function.

The function is ``step(tokens, cache) -> (logits, cache)``, such as that of
`zoo.models.Transformer`; its cache needs a method ``follow(parents)``. All searches are graphs of
fixed shapes, which can be compiled. Padding and the start token are never generated, unless they
are the end token as well. What else may come next is one function of logits (logits.py).
"""

# ruff: noqa: F401
from zoo.decoding.beam import BeamState, beam_search
from zoo.decoding.greedy import greedy_search
from zoo.decoding.hypotheses import Hypotheses, LengthPenalty, length_penalty
from zoo.decoding.logits import LogitsProcessor, SearchOptions, SpecialTokens, excluded
from zoo.decoding.sampling import sample
