"""Tokenizers and control ids.

The control ids are defined here only. This module imports nothing, so models can import it.
"""

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2  # padding, begin and end of a sequence: <pad>, <s>, </s>
