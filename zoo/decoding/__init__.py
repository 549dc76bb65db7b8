"""Greedy search, beam search and sampling over one function.

The function is ``step(tokens, cache) -> (logits, cache)``, such as that of
`zoo.models.Transformer`; for beam search, its cache needs a method ``reorder(parents)``. All
searches are graphs of fixed shapes, which can be compiled. The rules for the next token, such as
`SearchOptions`, are in logits.py.
"""

# ruff: noqa: F401
from zoo.decoding.beam import beam_search
from zoo.decoding.greedy import greedy_search
from zoo.decoding.hypotheses import Hypotheses, length_penalty
from zoo.decoding.logits import LogitsProcessor, SearchOptions, SpecialTokens, never_generated
from zoo.decoding.sampling import sample
