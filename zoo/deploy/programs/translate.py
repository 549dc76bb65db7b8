"""Translates with the model in this folder; requires ctranslate2 and sentencepiece.

    python translate.py "hello world"
    python translate.py --beam-size 4 < sentences.txt

From Python, with this folder on the path:

    from translate import Translator
    Translator("folder of the export")(["hello world"])      # ["hola mundo"]
"""

import argparse
import json
import os
import pathlib
import sys

import ctranslate2
import sentencepiece
from layout import (
    has_letter,
    join_sentences,
    split_sentences,
    without_numbers,
)  # the file beside this one


class Translator:
    """A translator.

    Args:
        folder: folder of the export; by default the folder of this file.
        **options: arguments of `ctranslate2.Translator`, such as ``inter_threads=4``.
    """

    def __init__(self, folder=pathlib.Path(__file__).parent, **options):
        folder = pathlib.Path(folder)
        self.search = json.loads((folder / "export.json").read_text("utf-8"))["search"]
        self.source = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
        self.target = sentencepiece.SentencePieceProcessor(model_file=str(folder / "target.spm"))
        self.model = ctranslate2.Translator(str(folder), **options)

    def __call__(self, texts, sentences=None, target_prefix=None, **options):
        """Returns the best translation of each text, a list of str.

        Args:
            texts: list of str.
            sentences: whether to translate sentence by sentence and keep the layout; by default as
                in export.json.
            target_prefix: the beginnings of the translations, a list of str. A text without a
                letter stays as it is.
            **options: see `n_best`.
        """
        if sentences is None:
            sentences = self.search["sentences"]
        layouts = [split_sentences(text) if sentences else ["", text, ""] for text in texts]
        if self.search["keep_numbers"]:
            layouts = [without_numbers(fields) for fields in layouts]
        parts = [part for fields in layouts for part in fields[1::2]]
        if target_prefix is not None:  # the first part of a text begins with its prefix
            prefixes = []
            for fields, prefix in zip(layouts, target_prefix, strict=True):
                num_parts = len(fields) // 2
                if num_parts:
                    prefixes.append(prefix)
                    prefixes += [""] * (num_parts - 1)
            options["target_prefix"] = prefixes
        best = iter([answers[0][0] for answers in self.n_best(parts, **options)])
        return [join_sentences(fields, [next(best) for _ in fields[1::2]]) for fields in layouts]

    def n_best(
        self,
        texts,
        n_best=None,
        beam_size=None,
        length_penalty=None,
        max_length=None,
        target_prefix=None,
        **options,
    ):
        """Translates texts as they are; the defaults of the options are in export.json.

        Args:
            texts: list of str; a text that is blank, or is kept as a number, has one translation.
            n_best: number of translations.
            beam_size: beam size, at least `n_best`.
            length_penalty: length penalty.
            max_length: maximum number of tokens of a translation.
            target_prefix: the beginnings of the translations, a list of str; their tokens count
                towards the minimum and the maximum number.
            **options: other arguments of `ctranslate2.Translator.translate_batch`.

        Returns:
            For each text a list of (translation, score), the best first.

        Raises:
            ValueError: if a text has more tokens than the maximum of the model.
        """
        search = self.search
        if n_best is None:
            n_best = search["n_best"]
        if beam_size is None:
            beam_size = search["beam_size"]
        if length_penalty is None:
            length_penalty = search["length_penalty"]
        if max_length is None:
            max_length = search["max_output_length"]
        if search["forced_eos"]:  # which CTranslate2 adds after the last token
            max_length -= 1
        rows = [
            [*search["source_prefix"], *pieces, search["end"]]
            for pieces in self.source.encode(texts, out_type=str)
        ]
        longest = max(rows, key=len, default=[])
        if len(longest) > search["max_length"]:
            raise ValueError(
                f"A text is too long: it has {len(longest)} tokens, and the maximum is "
                f"{search['max_length']}. It begins: {texts[rows.index(longest)][:60]!r}."
            )
        prefixes = [search["target_prefix"] for _ in rows]
        if target_prefix is not None:
            pieces = self.target.encode(target_prefix, out_type=str)
            prefixes = [code + prefix for code, prefix in zip(prefixes, pieces, strict=True)]
        arguments = {
            "max_batch_size": 32,
            "beam_size": max(beam_size, n_best),
            "num_hypotheses": n_best,
            "length_penalty": length_penalty,
            "max_input_length": 0,  # no limit; otherwise, longer texts would be truncated
            "max_decoding_length": max_length,
            "suppress_sequences": [[token] for token in search["suppressed"]],
            "return_scores": True,
        }
        arguments |= search["options"] | options
        results = self.model.translate_batch(rows, target_prefix=prefixes, **arguments)
        answers = []
        for text, result in zip(texts, results):
            is_kept = self.search["keep_numbers"] and not has_letter(text)
            if text.strip() and not is_kept:
                found = zip(result.hypotheses, result.scores)
                answers.append([(self._text(tokens), score) for tokens, score in found])
            else:
                answers.append([(text if is_kept else "", 0.0)])
        return answers

    def _text(self, tokens):
        tokens = tokens[len(self.search["target_prefix"]) :]
        tokens = [token for token in tokens if token not in self.search["left_out"]]
        text = self.target.decode_pieces(tokens).replace("\u2581", " ")
        return text.strip(" ") if self.search["strips"] else text


def main():
    """Runs the command line, which prints the best translation of each text."""
    parser = argparse.ArgumentParser(description="Translates texts.")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="default: lines of standard input")
    parser.add_argument("--beam-size", type=int)
    parser.add_argument("--length-penalty", type=float)
    parser.add_argument("--sentences", action=argparse.BooleanOptionalAction)
    args = parser.parse_args()
    sys.stdout.reconfigure(errors="backslashreplace")
    try:
        texts = args.texts
        if not texts:  # lines end with \n or \r\n, as in other programs, not with \r alone
            lines = sys.stdin.buffer.read().decode().split("\n")
            if not lines[-1]:  # after the end of the last line
                lines.pop()
            texts = [line.removesuffix("\r") for line in lines]
        translations = Translator()(
            texts,
            sentences=args.sentences,
            beam_size=args.beam_size,
            length_penalty=args.length_penalty,
        )
        for translation in translations:
            print(translation)
        sys.stdout.flush()
    except BrokenPipeError:  # of `python translate.py < FILE | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except ValueError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
