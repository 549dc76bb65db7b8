"""A text generator as people use it: searches, draws and streams of texts of any length."""

import keras
import numpy as np
import pytest

import zoo
from tests.tasks.test_translator import nothing_found
from zoo.__main__ import main
from zoo.errors import TaskError, UserError
from zoo.tasks import padded_batches
from zoo.tasks.generator import TextGenerator
from zoo.text import BOS_ID, EOS_ID, PAD_ID
from zoo.text.sentencepiece import train_tokenizer

WORDS = "the a red big house dog cat sees eats in on bread table garden and é 😀".split()
RANDOM = np.random.default_rng(0)
# of 0, 1, 2 tokens and more than are read at once
PROMPTS = ["", "the", "the dog", " ".join(RANDOM.choice(WORDS, 21)), " ".join(["a"] * 16)]


@pytest.fixture(scope="module")
def generator():
    tokenizer = train_tokenizer([" ".join(WORDS)] * 3, "bpe", 330)
    keras.utils.set_random_seed(0)
    sizes = {"embed_dim": 16, "num_heads": 2, "num_layers": 2, "max_length": 64}
    model = zoo.causal_lm(vocab_size=tokenizer.vocab_size, positions="rotary", **sizes)
    for variable in model.trainable_variables:
        variable.assign(variable + RANDOM.normal(0.0, 0.3, variable.shape))
    return TextGenerator(model, tokenizer)


def test_as_many_new_tokens_as_fit(generator):
    """The last new token is not read; 64 is the default of their number."""
    for prompt in PROMPTS:
        length = len(tokens_of(generator, prompt))
        assert generator.num_new(length, 64) == min(64, 65 - length)
    assert generator(PROMPTS[3:]), "they fit"
    with pytest.raises(TaskError, match="Prompt 1 is too long: .* max_new_tokens=30"):
        generator(["the", "the " * 40], max_new_tokens=30)


def logits_after(generator, tokens):
    logits = np.array(generator.model(np.array([tokens])))[0, -1].astype("float64")
    logits[[PAD_ID, BOS_ID]] = -np.inf  # never generated
    return logits


def tokens_of(generator, prompt):
    return [BOS_ID, *generator.tokenizer.encode([prompt])[0]]


def text_of(generator, tokens):
    kept = [token for token in tokens if token not in (BOS_ID, EOS_ID, PAD_ID)]
    return generator.tokenizer.decode([kept])[0]


def test_greedy_search_takes_the_most_likely_token(generator):
    for prompt, found in zip(PROMPTS, generator.n_best(PROMPTS, max_new_tokens=4)):
        tokens = tokens_of(generator, prompt)
        for _ in range(4):
            logits = logits_after(generator, tokens)
            tokens.append(int(logits.argmax()))
            if tokens[-1] == EOS_ID:
                break
        assert found[0].text == text_of(generator, tokens)
        new = tokens[len(tokens_of(generator, prompt)) :]
        logits = np.array(generator.model(np.array([tokens[:-1]])))[0, -len(new) :]
        log_probs = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        score = log_probs[np.arange(len(new)), new].sum()
        assert found[0].score == pytest.approx(score, abs=1e-3)


@pytest.mark.slow
def test_a_prompt_does_not_depend_on_its_neighbors(generator):
    options = {"n": 2, "beam_size": 3, "max_new_tokens": 6}
    for prompt, expected in zip(PROMPTS, generator.n_best(PROMPTS, **options)):
        [alone] = generator.n_best([prompt], **options)
        assert [a.text for a in alone] == [e.text for e in expected]
        np.testing.assert_allclose([a.score for a in alone], [e.score for e in expected], 1e-4)


@pytest.mark.parametrize("prompt", PROMPTS)
def test_the_length_penalty_counts_new_tokens(generator, prompt):
    """However many tokens of the prompt are read at once, which depends on its length."""
    [plain], [penalized] = (
        generator.n_best([prompt], beam_size=1, length_penalty=alpha, max_new_tokens=4)[0]
        for alpha in (0.0, 1.0)
    )
    assert penalized.score == pytest.approx(plain.score / ((5 + 4) / 6), rel=1e-5)


def test_the_command_line(generator, tmp_path, capsys):
    generator.save(tmp_path / "run")
    command = ["generate", str(tmp_path / "run"), "the dog", "--max-new-tokens", "5"]
    assert main([*command, "--beam-size", "1"]) == 0
    assert capsys.readouterr().out == generator(["the dog"], max_new_tokens=5)[0] + "\n"
    assert main([*command, "--seed", "4"]) == 0
    [[drawn]] = generator.sample(["the dog"], seed=4, max_new_tokens=5)
    assert capsys.readouterr().out == drawn.text + "\n"
    assert main([*command, "--beam-size", "2", "--top-k", "3"]) == 2
    assert "Remove --top-k." in capsys.readouterr().err
    assert main([*command, "--top-p", "7"]) == 2
    output = capsys.readouterr()
    assert "top_p must be" in output.err and not output.out
    assert main(["translate", str(tmp_path / "run"), "the dog"]) == 2
    assert "use `python -m zoo generate`" in capsys.readouterr().err


def test_many_new_tokens_make_small_batches(generator, monkeypatch):
    """Memory is needed for new tokens as well."""
    monkeypatch.setattr(padded_batches, "TOKENS_IN_BATCH", 8 * 32)
    rows = []

    def record(graph, prompts, *tensors, **constants):
        rows.append(len(prompts))
        return nothing_found(len(prompts))

    monkeypatch.setattr(generator, "run", record)
    for count in (20, 60):
        generator(["the"] * 3, max_new_tokens=count)
    assert rows == [8, 1, 1, 1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda g: g("the dog"), "must be a list of str"),
        (lambda g: g(["the"], max_new_tokens=0), "max_new_tokens must be an integer of at least 1"),
        (lambda g: g(["the " * 70]), "Prompt 0 is too long: .* max_new_tokens=None"),
        (lambda g: g.sample(["the"], temperature=0.0), "temperature must be a finite number"),
        (lambda g: g.sample(["the"], top_p=1.5), "top_p must be a finite number"),
        (lambda g: g.sample(["the"], top_k=0), "top_k must be an integer of at least 1"),
    ],
)
def test_bad_input(generator, call, message):
    with pytest.raises(UserError, match=message):
        call(generator)
