"""Compares tokenizers in a graph, as exports have them, with the same tokenizers in Python.

    python benchmarks/text_graphs.py flores-dev.en flores-dev.pt spa.txt
    python benchmarks/text_graphs.py texts.txt --count 10000 \
        --bert bert-base-uncased --gpt2 gpt2 --spm opus-mt-en-es/source.spm

Lines are drawn from each file; hand-made texts that are hard to tokenize are added. SentencePiece
models of each kind are trained on them; --bert and --gpt2 are folders with a published vocabulary,
--spm a published model. Printed are the texts with other ids, by their kind, the texts that are
decoded otherwise, the time of the graph relative to Python's for all texts at once, and the longest
time for a text of 63 KB without spaces.
"""

import argparse
import itertools
import pathlib
import random
import statistics
import time

ODD = {
    "Chinese, Japanese, Korean": [
        "我们今天去公园。",
        "東京は日本の首都です。",
        "ひらがなとカタカナ",
        "中文abc混合123",
        "ｆｕｌｌ ｗｉｄｔｈ",
        "〇〡〢 ㈠ ㍻ 豈更車",
        "한국어 문장입니다 각",
        "\u1112\u1161\u11ab",
    ],
    "other scripts": [
        "שלום עולם",
        "نص حكيم له سر قاطع",
        "مُحَمَّد",
        "हिन्दी में एक वाक्य",
        "ภาษาไทย",
        "Ελληνικά ΣΊΣΥΦΟΣ",
        "Привет, мир! Ёлка",
        "ქართული",
        "አማርኛ",
        "தமிழ்",
        "İstanbul ıI",
        "straße STRASSE ẞ",
    ],
    "emoji": [
        "\U0001f600 \U0001f44d\U0001f3fd \U0001f469\u200d\U0001f467",
        "🇩🇪🇪🇸 flags",
        "\u2764\ufe0f \u263a\ufe0e",
        "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466x",
        "1\ufe0f\u20e32\ufe0f\u20e3",
    ],
    "accents": [
        "cafe\u0301 \xf1and\xfa\u0301",
        "a\u0323\u0301 \u0300x",
        "ộ ΐ 각",
        "élève ÉLÈVE",
        "Zürich naïve coöperate",
        "e\u0301\u0301\u0301",
    ],
    "spaces and controls": [
        "two  spaces",
        " lead and trail ",
        "tab\tnew\nline\r\nend",
        "wide\u3000space\xa0nbsp",
        "zero\u200bwidth\u200d\ufeffx",
        "a\x00b\x07\x1b[31m",
        "\x85next\u2028line\u2029",
        "soft\xadhyphen",
        "\u2581 \u2581\u2581x\u2581",
    ],
    "symbols": [
        "well-known... (yes)!? [no]",
        "$5.00 €7,50 £3 ©®™ §",
        "a_b @user #tag 50% x^2",
        "http://example.com/a?b=c&d=e",
        "“curly” ‘quotes’ — dash…",
        "½ ² ﬁ ① ㎏ ℃",
        "<s> </s> [SEP] <unk> <0x41> <",
        "endoftext>",
        "it's we're I'll DON'T",
        "∑∫√≤≠∞ →←",
    ],
    "digits": [
        "1234567890",
        "3,141.59",
        "٣٤٥ १२३",
        "٢٠٢٦-11-25",
        "12:30 v1.2.3",
    ],
    "long words": ["x" * 300, "abc" * 200, "1" * 400, "!" * 200, "Donaudampfschifffahrt" * 3],
}
LARGE = {
    "one letter": "x" * 63_000,
    "letters": "asdfghjkqwertyu" * 4_200,
    "CJK": "我们今天去" * 4_200,
}


def odd_texts(each=100):
    """{kind: texts}: the hand-made ones, mixtures of them, and characters of all of Unicode."""
    draw = random.Random(1)
    texts = {}
    for kind, samples in ODD.items():
        texts[kind] = [*samples]
        while len(texts[kind]) < each:
            parts = draw.sample(samples, draw.randint(1, 3))
            parts = (part[: draw.randint(1, len(part))] for part in parts)
            texts[kind].append(draw.choice([" ", "", " - ", "\n"]).join(parts))
    every = [*map(chr, itertools.chain(range(0xD800), range(0xE000, 0x20000)))]
    drawn = ("".join(draw.choices(every, k=draw.randint(1, 30))) for _ in range(2 * each))
    return {**texts, "characters of all of Unicode": [*drawn]}


def texts_of(paths, count):
    """{name: texts}: lines of files, and the odd ones, `count` in all."""
    odd = odd_texts()
    draw = random.Random(0)
    texts = {}
    files = {path.name: path.read_text("utf-8").splitlines() for path in paths}
    left = count - sum(map(len, odd.values()))
    for index, name in enumerate(sorted(files, key=lambda name: len(files[name]))):
        each = left // (len(files) - index)  # of what the smaller files have left
        texts[name] = draw.sample(files[name], min(each, len(files[name])))
        left -= len(texts[name])
    return {**texts, **odd}


def tokenizers_of(args, lines):
    """Yields (name, tokenizer)."""
    from zoo.checkpoints import hugging_face_tokenizers as published
    from zoo.text.sentencepiece import KINDS, SentencePieceTokenizer, train_tokenizer

    for kind in KINDS:
        yield f"SentencePiece, {kind}", train_tokenizer(lines, kind, 8000)
    for path in args.spm:
        yield path.name, SentencePieceTokenizer(path.read_bytes())
    if args.bert:
        yield "BERT", published.encoder_tokenizer(args.bert, vocab_size=0)[0]
    if args.gpt2:
        yield "GPT-2", published.byte_level_bpe(args.gpt2, vocab_size=0)[0]


def seconds(function, texts, turns=7):
    function(texts)
    times = []
    for _ in range(turns):
        start = time.perf_counter()
        function(texts)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="+", type=pathlib.Path, help="texts, one per line")
    parser.add_argument("--count", type=int, default=10_000, help="texts in all (10000)")
    parser.add_argument("--bert", type=pathlib.Path, help="folder of a tokenizer")
    parser.add_argument("--gpt2", type=pathlib.Path, help="folder of a tokenizer")
    parser.add_argument("--spm", type=pathlib.Path, nargs="*", default=[])
    args = parser.parse_args()
    import tensorflow as tf

    from zoo.deploy.text_graph import TextGraph

    texts = texts_of(args.files, args.count)
    together = sum(texts.values(), [])
    print(f"{len(together):,} texts")
    print("| tokenizer | other ids | other texts | graph / Python | 63 KB |\n|---|---|---|---|---|")
    for name, tokenizer in tokenizers_of(args, together):
        graph = TextGraph(tokenizer)
        other = {}
        decoded = 0
        for kind, some in texts.items():
            expected = tokenizer.encode(some)
            found = graph.encode(tf.constant(some)).to_list()
            if found != expected:
                other[kind] = sum(map(list.__ne__, found, expected))
            ids = tf.ragged.constant(expected, tf.int32, ragged_rank=1).to_tensor(-1)
            answers = [text.decode() for text in graph.decode(ids).numpy()]
            decoded += sum(map(str.__ne__, answers, tokenizer.decode(expected)))
        ratio = seconds(graph.encode, tf.constant(together)) / seconds(tokenizer.encode, together)
        large = max(seconds(graph.encode, tf.constant([text])) for text in LARGE.values())
        shown = str(sum(other.values()))
        if other:
            kinds = ", ".join(f"{kind} {count}" for kind, count in other.items())
            shown += f" ({kinds})"
        print(f"| {name} | {shown} | {decoded} | {ratio:.2f} | {1000 * large:.0f} ms |", flush=True)


if __name__ == "__main__":
    main()
