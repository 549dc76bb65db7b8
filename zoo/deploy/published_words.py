"""The characters of the classes of the library `tokenizers`."""

import functools
import itertools

from tokenizers import Regex, normalizers

from zoo.deploy.unicode_graph import character_ranges


@functools.cache
def library_ranges(pattern):
    """The characters that match an escape of the library, such as \\p{L}, for an RE2 class."""
    others = normalizers.Replace(Regex(rf"[^{pattern}]+"), "")
    return character_ranges(others.normalize_str("".join(_characters())))


def _characters():
    """All but those of planes 4 to 13, which are not assigned."""
    ranges = range(0xD800), range(0xE000, 0x40000), range(0xE0000, 0x110000)
    return map(chr, itertools.chain(*ranges))
