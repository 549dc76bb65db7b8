"""Compares the translation of texts of mixed lengths with CTranslate2, from text to text.

    python recipes/translate.py --tsv spa.txt --out runs/en_es
    python -m pip install -r benchmarks/requirements.txt
    python benchmarks/texts.py runs/en_es --data spa.txt

Both have the same weights and tokenizers, beam size 4 and no length penalty. They may differ where
hypotheses are equally likely, and where one stops its search earlier.
"""

import json
import pathlib

import translation
import turns

BATCH = 32  # sentences that CTranslate2 computes at once, at most; the zoo as well


def cases(run_folder, data, count):
    """The first column of lines from the whole file, which may be sorted by length."""
    lines = data.read_text(encoding="utf-8").splitlines()
    texts = [line.split("\t")[0] for line in lines[:: max(1, len(lines) // count)]][:count]
    settings = {"run_folder": str(run_folder), "texts": texts}
    return [turns.Case(f"{len(texts)} texts", settings, tuple(CONTENDERS), len(texts), "texts")]


def prepare(folder, all_settings):
    """Writes the model in the format of CTranslate2, and its tokenizers."""
    import zoo
    from zoo.text.saved_tokenizers import save_tokenizer

    folder = pathlib.Path(folder)
    translator = zoo.load(all_settings[0]["run_folder"])
    special = translator.special_tokens
    translation.write_ctranslate2(translator.model, special, folder / "ctranslate2")
    save_tokenizer(translator.source_tokenizer, folder, "source")
    save_tokenizer(translator.target_tokenizer, folder, "target")
    (folder / "special_tokens.json").write_text(json.dumps(special._asdict()))


def in_zoo(folder, run_folder, texts, **options):
    import zoo

    translator = zoo.load(run_folder, **options)
    return lambda: translator(texts, sentences=False, beam_size=4, length_penalty=0.0)


def in_zoo_bfloat16(folder, **settings):
    return in_zoo(folder, dtype="bfloat16", **settings)


def in_zoo_int8(folder, **settings):
    return in_zoo(folder, dtype="int8", **settings)


def in_engine_int8(folder, **settings):
    return in_zoo(folder, engine="ctranslate2", dtype="int8", **settings)


def in_ctranslate2(folder, run_folder, texts, dtype="float32"):
    import ctranslate2

    from zoo.text.saved_tokenizers import load_tokenizer  # which does not import TensorFlow

    folder = pathlib.Path(folder)
    source = load_tokenizer(folder, "source")
    target = load_tokenizer(folder, "target")
    special = json.loads((folder / "special_tokens.json").read_text())
    end = str(special["end"])
    unwanted = [[str(special["pad"])], [str(special["start"])]]
    translators = 1
    if dtype == "int8":  # several times as fast: short products are slow with several threads
        translators = turns.CORES
    translator = ctranslate2.Translator(
        str(folder / "ctranslate2"),
        compute_type=dtype,
        inter_threads=translators,
        intra_threads=turns.CORES // translators,
    )

    def translate():
        tokens = [[*map(str, row), end] for row in source.encode(texts)]
        results = translator.translate_batch(
            tokens,
            beam_size=4,
            length_penalty=0,
            max_batch_size=BATCH,
            min_decoding_length=0,
            max_decoding_length=2 * max(map(len, tokens)),  # as the zoo, roughly
            suppress_sequences=unwanted,
        )
        return target.decode([[*map(int, one.hypotheses[0])] for one in results])

    return translate


def in_ctranslate2_int8(folder, **settings):
    return in_ctranslate2(folder, dtype="int8", **settings)


CONTENDERS = {
    "zoo": in_zoo,
    "zoo, bfloat16": in_zoo_bfloat16,
    "zoo, int8": in_zoo_int8,
    "zoo, engine ctranslate2, int8": in_engine_int8,
    "CTranslate2": in_ctranslate2,
    "CTranslate2, int8": in_ctranslate2_int8,
}

if __name__ == "__main__":
    parser = turns.parser(__doc__)
    parser.add_argument(
        "run_folder", metavar="RUN", type=pathlib.Path, help="run or published model"
    )
    parser.add_argument("--data", type=pathlib.Path, required=True, help="tab-separated texts")
    parser.add_argument("--count", type=int, default=1000, help="number of texts (1000)")
    args = parser.parse_args()
    turns.run(__file__, cases(args.run_folder, args.data, args.count), args)
