"""Sequence-to-sequence models for other tasks than translation, such as T5 and BART."""

from zoo.tasks.translator import Translator


class TextToTextGenerator(Translator):
    """A model that writes an output text for each text, such as a summary or an answer.

    It has the calls of a `Translator`, except that each text is read as a whole by default, and
    that texts without a letter are no exception: ``keep_numbers=False``.

    Args, Attributes, Raises: see `zoo.tasks.translator.Translator`.
    """

    description_file = "text_to_text.json"
    splits_sentences = False
    long_texts = "truncate"

    def __init__(
        self, model, source_tokenizer, target_tokenizer, *args, keep_numbers=False, **kwargs
    ):
        super().__init__(
            model, source_tokenizer, target_tokenizer, *args, keep_numbers=keep_numbers, **kwargs
        )
