"""Tokenizers and control ids.

The control ids are defined here only. This module imports nothing, so models can import it.
"""

PAD_ID = 0  # padding, <pad>
BOS_ID = 1  # begin of a sequence, <s>
EOS_ID = 2  # end of a sequence, </s>
