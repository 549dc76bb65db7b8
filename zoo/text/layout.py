"""Splits a text into its sentences and the characters between them.

The rule is one regular expression with the same matches in Python's `re` and in RE2, the library of
TensorFlow's graphs. RE2 has no look-ahead: a full stop that does not end a sentence is matched
together with the characters that follow it. Characters are listed, as the Unicode classes of the
two libraries may differ. Exports copy this file, so it imports nothing but `re`.

Source of the full stops: Unicode Standard Annex 29, "Unicode Text Segmentation", section 5.
"""

import re

_BREAK = "\t-\r\x1c-\x1e\x85\u2028\u2029"  # ends lines and cells, which are translated separately
_BLANK = (  # other spaces, of zero width as well
    " \x1f\xa0\u1680\u2000-\u200b\u200e\u200f\u202a-\u202f\u205f\u2060\u2066-\u2069\u3000\ufeff"
)
_STOP = ".!?…\u037e"  # ends a sentence before a space, or before Chinese characters
_FULL_STOP = (  # ends a sentence before anything
    "\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0964\u0965"  # Armenian to Devanagari
    "\u0f0e\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5"  # Tibetan to Khmer
    "\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1c3b\u1c3c\u1c7e\u1c7f"
    "\u203c\u203d\u2047-\u2049\u2e2e\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f"
    "\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb"
    "\u3002\ufe12\ufe15\ufe16\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61\U00011141\U00011142"
)
_CLOSE = r"\"'”’»›)\]}」』）］｝】》〉〕〗〙*_~`¹²³⁰⁴-⁹"  # belongs to the sentence before it
_OPEN = r"\"'“‘„‚«‹(\[{「『（［｛【《〈〔〖〘¿¡‒-―"
_CONTINUE = ",;:،؛、，；："  # no sentence begins with these, nor with a lower-case letter
_LOWER = "".join(c for c in map(chr, [*range(0x61, 0x590), *range(0x1E00, 0x2000)]) if c.islower())
_CHINESE = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"

# Abbreviations: anywhere, before numbers, and after the number of a day or century.
_TITLES = (
    "Mr Mrs Ms Messrs Dr Drs Prof St Rev Gen Col Capt Cmdr Lt Sgt Cpl Gov Sen Rep Pres Hon Mt Ft "
    "vs cf Sr Sra Sres Srta Dra Dña Ud Uds EE FF RR Lic Gral Profa Exmo Exma Eng Ing Arq Av av "
    "Avda MM Mme Mmes Mlle Mgr Sig sig Dott dott Avv Hr Frl bzw ca evtl ggf inkl exkl sog vgl bspw "
    "Mio Mrd Dipl Abs dhr mevr drs bijv np tzn tzw prof dr ul im tj wg např tzv ул см ср проф акад "
    "тов séc bl.a t.ex p.ex p.ej f.eks"
).split()
_NUMBERED = (
    "No no Nos nos Nr nr Núm núm Art art Fig fig Abb Abs Vol vol Bd Ch ch Sec sec Eq eq pp p pág "
    "págs pag s S str стр Kap cap Cap Tab blz godz Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Okt "
    "Nov Dec Dez Mon Tue Wed Thu Fri Sat Sun al approx aprox est env max min ext tel Tel Rs"
).split()
_DATES = (
    "Januar Jänner Februar März April Mai Juni Juli August September Oktober November Dezember "
    "Jahrhundert Jh"
).split()


def _any(words):
    return "|".join(sorted((word.replace(".", r"\.") for word in words), key=len, reverse=True))


_SPACE = f"{_BREAK}{_BLANK}"
_STOPS = f"{_STOP}{_FULL_STOP}"
_IN_WORD = f"[^{_SPACE}{_STOPS}{_OPEN}]"
_CLOSES = rf"(?:[{_CLOSE}]|[{_BLANK}]»|\[[0-9]+\]|</[A-Za-z]+>)*"  # [1]: notes; </b>
_FOLLOWS = f"[^{_SPACE}{_STOPS}{_CLOSE}<"
_UNITS = "|".join(
    [
        rf"(?:{_any(_TITLES)})\.",
        rf"(?:{_any(_NUMBERED)})\.[{_BLANK}]*\(?[0-9]",
        rf"[0-9][0-9]?\.[{_BLANK}]*(?:{_any(_DATES)})",
        rf"[ap]\.[{_BLANK}]?m",  # the stop after it may end a sentence
        "-?[A-Za-z\xc0-\u052f][.]",  # initials, e. g., z. B.
        f"{_IN_WORD}+(?:'{_IN_WORD}+)*",
        rf"[{_STOP}]+{_CLOSES}{_FOLLOWS}{_CHINESE}\[]{_IN_WORD}*",  # 3.5, example.com
        f"[.…]+{_CLOSES}[{_CHINESE}]{_IN_WORD}*",
        f"[{_STOPS}]+[{_CLOSE}]+{_FOLLOWS}{_OPEN}]{_IN_WORD}*",  # 「はい。」と
        f"[{_STOPS}]+{_CLOSES}[{_BLANK}]*[{_CONTINUE}]",
        rf"[{_STOP}]+{_CLOSES}[{_BLANK}]+(?:[(\[–—-][{_BLANK}]*)?[{_LOWER}](?:\.|{_IN_WORD}*)",
        rf"．[0-9０-９A-Za-zＡ-Ｚａ-ｚ]{_IN_WORD}*",
        f"[{_OPEN}]",
    ]
)
_END = f"[{_STOPS}]+{_CLOSES}"
_ENUMERATED = rf"(?:[(\[]?[0-9]+[.)][{_BLANK}]+)?"  # "1. The first item"

# The characters before a sentence, and the sentence, which is empty at the end of a text. Before it
# are spaces, or the beginning of a line of Markdown: of a heading, an item or a quote.
SENTENCE = (
    f"((?:(?:#+|[-*+>|•]|\\[[ xX]\\])[{_BLANK}]|[{_SPACE}])*)"
    f"({_ENUMERATED}(?:{_UNITS})(?:[{_BLANK}]*(?:{_UNITS}))*(?:[{_BLANK}]*{_END})?|{_END}|$)"
)
# Parts that are not translated: punctuation, lines, arrows, emoji.
NO_TEXT = (
    "[\\x00-/:-@\\[-`{-\xa9\xab-\xb1\xb4\xb6-\xb8\xbb\xbf\xd7\xf7\u2000-\u206f\u2190-\u245f\u2500-\u27bf"
    "\u2900-\u2bff\u3000-\u3004\u3008-\u3020\u3030\ufe00-\ufe19\ufe30-\ufe6f\ufeff\uff01-\uff0f"
    "\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65\U0001f000-\U0001faff]*"
)
# Translations after which there is no space, as they end in Chinese or Japanese; before which there
# is none, as they begin so; and sources that are the end of a sentence or clause.
NO_SPACE_FOLLOWS = f"(?s).*[{_CHINESE}\u3001-\u303f\uff01-\uff65][.,;:!?…{_CLOSE}]*"
NO_SPACE_BEFORE = f"(?s)[{_OPEN}]*[{_CHINESE}].*"
ENDED = f"(?s).*[{_STOPS}{_CONTINUE}][{_CLOSE}]*"
_SENTENCE = re.compile(SENTENCE)
_NO_TEXT = re.compile(NO_TEXT)
_CLAUSES = r"(?<=[;:…])\s+|(?<=[，、；：])"  # between clauses
_WORDS = r"\s+"  # between words


def split_sentences(text):
    """Splits a text into fields: alternately the characters between sentences, and a sentence.

    Returns:
        list of str of odd length whose concatenation is the text. The fields at odd indices are the
        sentences: without line breaks and tabs, without spaces at their ends, and with a letter or
        a number.
    """
    fields = [""]
    at = 0
    while at < len(text):
        match = _SENTENCE.match(text, at)
        if match is None:
            break
        between, sentence = match.groups()
        fields[-1] += between
        at = match.end()
        if _NO_TEXT.fullmatch(sentence):
            fields[-1] += sentence
        else:
            fields += [sentence, ""]
    fields[-1] += text[at:]
    return fields


def join_sentences(fields, translations):
    """Returns the text of `fields`, see `split_sentences`, with translations of the sentences.

    Spaces between two sentences are removed if the first translation ends in Chinese or Japanese.
    If there is nothing between them, as in Chinese, a space is inserted after the end of a sentence
    or clause, unless the translation before it ends, or the one after it begins, in Chinese or
    Japanese.
    """
    joined = [*fields]
    joined[1::2] = translations
    for index in range(2, len(fields) - 1, 2):
        before, between, after = joined[index - 1 : index + 2]
        if between.strip(" "):
            continue
        if re.fullmatch(NO_SPACE_FOLLOWS, before):
            joined[index] = ""
        elif not between and before and re.fullmatch(ENDED, fields[index - 1]):
            joined[index] = "" if re.fullmatch(NO_SPACE_BEFORE, after) else " "
    return "".join(joined)


def has_letter(text):
    """Whether a text has a letter of any script."""
    return any(map(str.isalpha, text))


def without_numbers(fields):
    """Returns fields whose parts without a letter, such as numbers and dates, are no parts."""
    kept = fields[:1]
    for part, between in zip(fields[1::2], fields[2::2]):
        if has_letter(part):
            kept += [part, between]
        else:
            kept[-1] += part + between
    return kept


def split_long(fields, fits):
    """Splits sentences that are too long: between sentences, clauses or words, or anywhere.

    Args:
        fields: see `split_sentences`.
        fits: function from a str to a bool. A single character is not split.

    Returns:
        Fields whose concatenation is the same text.
    """
    shorter = fields[:1]
    for part, between in zip(fields[1::2], fields[2::2]):
        if len(part) > 1 and not fits(part):
            first, *others = split_long(_halves(part), fits)
            shorter[-1] += first
            shorter += others
        else:
            shorter += [part, ""]
        shorter[-1] += between
    return shorter


def _halves(text):
    """The sentences of a text, or two halves of a single sentence, as fields."""
    fields = split_sentences(text)
    if fields[1:-1] != [text]:
        return fields
    for pattern in (_CLAUSES, _WORDS, ""):
        cuts = [match.span() for match in re.finditer(pattern, text)]
        cuts = [(start, end) for start, end in cuts if start > 0 and end < len(text)]
        if cuts:
            break
    start, end = min(cuts, key=lambda cut: abs(sum(cut) - len(text)))  # nearest to the middle
    return ["", text[:start], text[start:end], text[end:], ""]
