"""Translates with the model in this folder; README.md names the packages that it needs.

    python translate.py "hello world"
    python translate.py --file sentences.txt --beam-size 4 --n-best 2

From Python, with this folder on the path:

    from translate import Translator
    Translator("folder of the export")(["hello world"])      # ["hola mundo"]

engine.py runs the model.
"""

import argparse
import json
import math
import pathlib
import unicodedata
from typing import NamedTuple

import tokenizers
from engine import END_ID, Engine

_LENGTHS = [16 * 2**n for n in range(16)]  # padded lengths of source batches
_BATCH, _TOKENS_IN_BATCH = 32, 4096


class InputError(ValueError):
    """Invalid text, option or folder; the message says why."""


class Translation(NamedTuple):
    """A translation and its score: log-probability divided by length penalty, at most 0."""

    text: str
    score: float


class Translator:
    """Translates texts.

    Args:
        folder: folder of the export; by default the folder of this file.

    Raises:
        InputError: if the folder is not an export of a translator.
    """

    def __init__(self, folder=None):
        folder = pathlib.Path(__file__).parent if folder is None else pathlib.Path(folder)
        self.source_tokenizer = _tokenizer(folder / "source_tokenizer.json")
        self.target_tokenizer = _tokenizer(folder / "target_tokenizer.json")
        try:
            self.search = json.loads((folder / "export.json").read_text("utf-8"))["search"]
            self.engine = Engine(folder)
        except OSError as error:
            raise InputError(f"{error.filename} cannot be read: {error.strerror}.") from None
        except Exception as error:  # those of the runtimes have no class in common
            reason = f"{type(error).__name__}: {error}"
            raise InputError(f"{folder} is not a whole export of a translator: {reason}") from None

    def __call__(self, texts, **options):
        """Returns the best translation of each text, a list of str. Options: see `n_best`."""
        return [best.text for best, *_ in self.n_best(texts, **options)]

    def n_best(self, texts, n=1, beam_size=None, length_penalty=None, max_length=None):
        """Returns the n best translations of each text with scores.

        Args:
            texts: list of str; the translation of an empty text is empty.
            n: number of translations; an empty text gets one.
            beam_size: beam size of the search; 1 is greedy search.
            length_penalty: exponent; 0 favors short translations, higher values longer ones.
            max_length: maximum number of target tokens; by default twice the length to which the
                source is padded.

        Returns:
            For each text a list of `Translation`, the best first.

        Raises:
            InputError: if a text is too long or an option is invalid.
        """
        longest = self.search["max_length"]
        beam_size = max(n, self.search["beam_size"]) if beam_size is None else beam_size
        alpha = self.search["length_penalty"] if length_penalty is None else length_penalty
        _check("n", n, 1)
        _check("beam_size", beam_size, n)
        if not math.isfinite(alpha):
            raise InputError(f"length_penalty must be finite. Received: length_penalty={alpha}.")
        _check("max_length", longest if max_length is None else max_length, 1, longest)
        found, by_width = [[Translation("", 0.0)] for _ in texts], {}
        for index, ids in self._sources(texts):
            width = min(longest, next(length for length in _LENGTHS if length >= len(ids)))
            by_width.setdefault(width, []).append((index, ids))
        for width, sources in sorted(by_width.items()):
            length = max_length or min(2 * width, longest)
            rows = max(1, min(_BATCH, _TOKENS_IN_BATCH // width))
            for start in range(0, len(sources), rows):
                indices, ids = zip(*sources[start : start + rows])
                for index, best in zip(indices, self.engine(ids, beam_size, alpha, length)):
                    found[index] = [
                        Translation(self.target_tokenizer.decode(ids), score)
                        for ids, score in best[:n]
                    ]
        return found

    def _sources(self, texts):
        """Yields (index, ids with the end token) of each text that is not empty."""
        if isinstance(texts, (str, bytes)):
            raise InputError("texts must be a list. Pass [text] for one text.")
        longest = self.search["max_length"]
        longest_token = max(map(len, self.source_tokenizer.get_vocab()))  # in bytes
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"Text {index} is of type {type(text).__name__}, not str.")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise InputError(
                    f"Text {index}: Invalid Unicode: {error.reason} at character {error.start}."
                ) from None
            normalized, ids = unicodedata.normalize("NFC", text), []
            count = len(normalized.encode()) // longest_token
            if count <= longest:  # tokenizing a huge text would be slow
                ids = [*self.source_tokenizer.encode(normalized).ids, END_ID]
                count = len(ids)
            if count > longest:
                raise InputError(
                    f"Text {index} is too long: it has at least {count} tokens, the maximum is "
                    f"{longest}. Shorten or split it. It begins: {text[:60]!r}."
                )
            if text.strip():
                yield index, ids


def _tokenizer(path):
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:  # the library has no class of its own
        raise InputError(f"The tokenizer {path} cannot be read: {error}.") from None


def _check(name, value, low, high=float("inf")):
    if not low <= value <= high:
        limits = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise InputError(f"{name} must be {limits}. Received: {name}={value}.")


def _lines(path):
    """Reads the lines of a file, or of standard input if the path is "-"."""
    try:
        with open(0 if path == "-" else path, encoding="utf-8") as file:
            return [line.removesuffix("\n") for line in file]
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}.") from None


def main(arguments=None):
    """Runs the command line."""
    parser = argparse.ArgumentParser(
        description="Translates texts; see the docstring of this file."
    )
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="default: standard input")
    parser.add_argument("--file", help="text file with one text per line")
    parser.add_argument("--folder", help="folder of the export (that of this file)")
    parser.add_argument("--beam-size", type=int, help="beam size; 1 is greedy search")
    parser.add_argument(
        "--length-penalty", type=float, help="higher values favor longer translations"
    )
    parser.add_argument(
        "--n-best", type=int, help="translations per text; with scores if above 1 (1)"
    )
    args = parser.parse_args(arguments)
    try:
        if args.texts and args.file:
            raise InputError("Pass either texts or --file, not both.")
        texts = args.texts or _lines(args.file or "-")
        translator = Translator(args.folder)
        n = translator.search.get("n_best", 1) if args.n_best is None else args.n_best
        options = {"beam_size": args.beam_size, "length_penalty": args.length_penalty}
        for translations in translator.n_best(texts, n, **options):
            for text, score in translations:
                print(f"{score:.4f}\t{text}" if n > 1 else text)
    except InputError as error:
        parser.exit(2, f"error: {error}\n")


if __name__ == "__main__":
    main()
