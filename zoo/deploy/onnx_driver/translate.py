"""Translates with encoder.onnx and decoder.onnx; needs Python, numpy and onnxruntime.

    python translate.py "hello world"
    python translate.py --file sentences.txt --beam-size 4 --n-best 2

From Python, with this folder on the path:

    from translate import Translator
    Translator("folder of the export")(["hello world"])      # ["hola mundo"]

The graphs hold the network; the search is in search.py, and tokenizer.py makes numbers of text.
Axes: B sentences, S source tokens.
"""

import argparse
import json
import pathlib
import sys
from typing import NamedTuple

import numpy as np
import onnxruntime
from search import Steps, beam_search
from tokenizer import END_ID, PAD_ID, InputError, Tokenizer

_LENGTHS = [16 * 2**n for n in range(16)]  # sources of similar length go together
_BATCH, _TOKENS_IN_BATCH = 32, 4096


class Translation(NamedTuple):
    """A translation and its score: log-probability over length penalty, at most 0."""

    text: str
    score: float


class Translator:
    """Text to text.

    Args:
        folder: that of the export; by default that of this file.

    Raises:
        InputError: if the folder is no such export.
    """

    def __init__(self, folder=None):
        folder = pathlib.Path(__file__).parent if folder is None else pathlib.Path(folder)
        self.source_tokenizer = Tokenizer(folder / "source_tokenizer.json")
        self.target_tokenizer = Tokenizer(folder / "target_tokenizer.json")
        self._encoder, self._decoder = (
            _session(folder / name) for name in ("encoder.onnx", "decoder.onnx")
        )
        self.search = _search_settings(self._encoder, folder)

    def __call__(self, texts, **options):
        """The best translation of each text, a list of str. Options: see `n_best`."""
        return [best.text for best, *_ in self.n_best(texts, **options)]

    def n_best(self, texts, n=1, beam_size=None, length_penalty=None, max_length=None):
        """Several translations of each text, the best first, with scores.

        Args:
            texts: list of str; an empty text has an empty translation.
            n: number of translations; an empty text gets one.
            beam_size: hypotheses that the search goes on with; 1 is greedy search.
            length_penalty: 0 favours short translations; the larger, the longer.
            max_length: the largest number of target tokens; about twice the source's by default.

        Returns:
            For each text a list of `Translation`.

        Raises:
            InputError: if a text is too long or an option is wrong.
        """
        longest = self.search["max_length"]
        beam_size = max(n, self.search["beam_size"]) if beam_size is None else beam_size
        alpha = self.search["length_penalty"] if length_penalty is None else length_penalty
        _check("n", n, 1)
        _check("beam_size", beam_size, n)
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
                steps = Steps(self._encoder, self._decoder, _padded(ids), beam_size)
                hypotheses = beam_search(steps, (len(ids), beam_size), length, alpha)
                for index, answer in zip(indices, self._read(hypotheses, n)):
                    found[index] = answer
        return found

    def _sources(self, texts):
        """(index, ids with the end) of each text that is not empty."""
        if isinstance(texts, (str, bytes)):
            raise InputError("Texts are given as a list: [text].")
        longest = self.search["max_length"]
        for index, text in enumerate(texts):
            if not isinstance(text, str):
                raise InputError(f"Text {index} is of type {type(text).__name__}, not str.")
            count, ids = self.source_tokenizer.fewest_ids(text), []
            if count <= longest:  # to cut a huge text takes long
                try:
                    ids = [*self.source_tokenizer.encode(text), END_ID]
                except InputError as error:
                    raise InputError(f"Text {index}: {error}") from None
                count = len(ids)
            if count > longest:
                raise InputError(
                    f"Text {index} is too long: it has {count} tokens or more, and the model takes "
                    f"{longest}. Shorten or split it. It begins: {text[:60]!r}."
                )
            if text.strip():
                yield index, ids

    def _read(self, hypotheses, n):
        """The first n hypotheses of each sentence as `Translation`."""
        for tokens, _, scores in zip(*hypotheses):
            yield [
                Translation(self.target_tokenizer.decode(ids), float(score))
                for ids, score in zip(tokens[:n], scores[:n])
                if np.isfinite(score)
            ]


def _padded(sources):
    """Lists of ids -> int32 [B, S]."""
    batch = np.full((len(sources), max(map(len, sources))), PAD_ID, np.int32)
    for row, ids in zip(batch, sources):
        row[: len(ids)] = ids
    return batch


def _session(path):
    if not path.is_file():
        raise InputError(f"{path.parent} is no export of a translator: there is no {path.name}.")
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def _search_settings(session, folder):
    """The defaults of the search: those of the model, or of export.json where that has any."""
    settings = json.loads(session.get_modelmeta().custom_metadata_map["search"])
    path = folder / "export.json"
    if path.is_file():
        given = json.loads(path.read_text(encoding="utf-8")).get("search", {})
        settings.update({name: value for name, value in given.items() if value is not None})
    return settings


def _check(name, value, low, high=float("inf")):
    if not low <= value <= high:
        limits = f"at least {low}" if high == float("inf") else f"from {low} to {high}"
        raise InputError(f"{name} must be {limits}. Received: {name}={value}.")


def _lines(path):
    """The lines of a file, or of standard input if the path is "-"."""
    try:
        if path == "-":
            text = sys.stdin.buffer.read().decode("utf-8")
        else:
            text = pathlib.Path(path).read_text("utf-8")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8: {error}.") from None
    return text.removesuffix("\n").split("\n") if text else []


def main(arguments=None):
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Translates texts; see the head of this file.")
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="text; none: standard input")
    parser.add_argument("--file", help="text file, a text in each line")
    parser.add_argument("--folder", help="that of the export (that of this file)")
    parser.add_argument("--beam-size", type=int, help="hypotheses to go on with; 1 is greedy")
    parser.add_argument("--length-penalty", type=float, help="the larger, the longer")
    parser.add_argument("--n-best", type=int, help="translations of each, scored (1)")
    args = parser.parse_args(arguments)
    try:
        if args.texts and args.file:
            raise InputError("Give texts or --file, not both.")
        texts = args.texts or _lines(args.file or "-")
        translator = Translator(args.folder)
        n = translator.search.get("n_best", 1) if args.n_best is None else args.n_best
        options = {"beam_size": args.beam_size, "length_penalty": args.length_penalty}
        for translations in translator.n_best(texts, n, **options):
            for text, score in translations:
                print(f"{score:.4f}\t{text}" if n > 1 else text)
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
