"""Text and ids.

The control ids are defined here and nowhere else; this module is light, models may import it.
"""

PAD_ID, BOS_ID, EOS_ID = 0, 1, 2  # padding, begin and end of a sequence: <pad>, <s>, </s>
