"""``python -m zoo generate``."""

from tyro.conf import Positional

from zoo.commands.shared import (
    NO_SEARCH,
    Float,
    Int,
    RunFolder,
    SearchFlags,
    Str,
    flag,
    given,
    load,
)
from zoo.errors import UserError


def generate(
    run_folder: RunFolder,
    prompt: flag(Positional[str], "PROMPT"),
    max_new_tokens: Int = None,
    temperature: Float = None,
    top_k: Int = None,
    top_p: Float = None,
    seed: Int = None,
    beam_size: Int = None,
    dtype: Str = None,
    search: SearchFlags = NO_SEARCH,
):
    """Continue a text.

    For example: python -m zoo generate hf://openai-community/gpt2 "Once upon a time" --top-k 50

    Args:
        prompt: beginning of the text; may be empty
        max_new_tokens: maximum number of new tokens (64, or as many as fit)
        temperature: below 1 favors likely tokens (1)
        top_k: sample from the k most likely tokens
        top_p: sample from the most likely tokens with this total probability
        seed: random seed (0)
        beam_size: beam search instead; 1 is greedy search
        dtype: dtype, such as bfloat16 or int8 (the run's)
    """
    sampling = given(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
    if sampling and beam_size is not None:
        flags = ", ".join("--" + name.replace("_", "-") for name in sampling)
        raise UserError(f"--beam-size selects beam search, without sampling. Remove {flags}.")
    generator = load(run_folder, "generate", dtype=dtype)
    generator.jit_compile = False  # compiling would take longer than one search
    search_options = given(**search._asdict())
    if beam_size is None:
        [[sample]] = generator.sample(
            [prompt], max_new_tokens=max_new_tokens, **sampling, **search_options
        )
        print(sample.text)
    else:
        [text] = generator(
            [prompt], max_new_tokens=max_new_tokens, beam_size=beam_size, **search_options
        )
        print(text)
