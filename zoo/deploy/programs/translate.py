"""Translates with the model in this folder; requires ctranslate2 and sentencepiece.

    python translate.py "hello world"
    python translate.py --beam-size 4 < sentences.txt

From Python, with this folder on the path:

    from translate import Translator
    Translator("folder of the export")(["hello world"])      # ["hola mundo"]
"""

import argparse
import json
import pathlib
import sys

import ctranslate2
import sentencepiece
from layout import join_sentences, split_sentences  # the file beside this one

_SEARCH = ("n_best", "beam_size", "length_penalty", "max_length")


class Translator:
    """Translates texts.

    Args:
        folder: folder of the export; by default the folder of this file.
        **options: arguments of `ctranslate2.Translator`, such as ``inter_threads=4``.
    """

    def __init__(self, folder=pathlib.Path(__file__).parent, **options):
        folder = pathlib.Path(folder)
        self.settings = json.loads((folder / "export.json").read_text("utf-8"))["search"]
        self.source, self.target = (
            sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{side}.spm"))
            for side in ("source", "target")
        )
        self.model = ctranslate2.Translator(str(folder), **options)

    def __call__(self, texts, sentences=None, **options):
        """Translates texts.

        Args:
            texts: list of str.
            sentences: whether to translate sentence by sentence and keep the layout; by default as
                in export.json.
            **options: see `n_best`.

        Returns:
            The best translation of each text, a list of str.
        """
        sentences = self.settings["sentences"] if sentences is None else sentences
        layouts = [split_sentences(text) if sentences else ["", text, ""] for text in texts]
        found = self.n_best([part for fields in layouts for part in fields[1::2]], **options)
        found = iter([best for [(best, _), *_] in found])
        return [join_sentences(fields, [next(found) for _ in fields[1::2]]) for fields in layouts]

    def n_best(self, texts, **options):
        """Translates texts as they are, with several translations each.

        Args:
            texts: list of str; a blank text has one translation.
            **options: `n_best`, the number of translations, `beam_size`, `length_penalty` and
                `max_length`, by default those of export.json; and other arguments of
                `ctranslate2.Translator.translate_batch`.

        Returns:
            For each text a list of (translation, score), the best first.

        Raises:
            ValueError: if a text has more tokens than the maximum of the model.
        """
        settings = self.settings
        n, beam_size, alpha, length = (options.pop(name, settings[name]) for name in _SEARCH)
        rows = [
            [*settings["source_prefix"], *pieces, settings["end"]]
            for pieces in self.source.encode(texts, out_type=str)
        ]
        longest = max(rows, key=len, default=[])
        if len(longest) > settings["max_length"]:
            raise ValueError(
                f"A text is too long: it has {len(longest)} tokens, and the maximum is "
                f"{settings['max_length']}. It begins: {texts[rows.index(longest)][:60]!r}."
            )
        found = self.model.translate_batch(
            rows,
            target_prefix=[settings["target_prefix"]] * len(rows),
            max_batch_size=32,
            beam_size=max(beam_size, n),
            num_hypotheses=n,
            length_penalty=alpha,
            max_input_length=0,  # no limit; otherwise, longer texts would be truncated
            max_decoding_length=length - settings["forced_eos"],
            suppress_sequences=[[token] for token in settings["suppressed"]],
            return_scores=True,
            **{**settings["options"], **options},
        )
        return [
            [(self._text(tokens), score) for tokens, score in zip(one.hypotheses, one.scores)]
            if text.strip()
            else [("", 0.0)]
            for text, one in zip(texts, found)
        ]

    def _text(self, tokens):
        tokens = tokens[len(self.settings["target_prefix"]) :]
        tokens = [token for token in tokens if token not in self.settings["left_out"]]
        text = self.target.decode_pieces(tokens).replace("\u2581", " ")
        return text.strip(" ") if self.settings["strips"] else text


def main():
    """Runs the command line, which prints the best translation of each text."""
    parser = argparse.ArgumentParser(description="Translates texts.")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="default: lines of standard input")
    parser.add_argument("--beam-size", type=int)
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--sentences", action=argparse.BooleanOptionalAction)
    options = {k: v for k, v in vars(parser.parse_args()).items() if v is not None}
    texts = options.pop("texts") or [line.rstrip("\n") for line in sys.stdin]
    try:
        print(*Translator()(texts, **options), sep="\n")
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
