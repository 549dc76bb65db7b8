"""Compares decoding and training steps of the translation Transformer with other libraries.

    python -m pip install -r benchmarks/requirements.txt
    python benchmarks/translation.py
    python benchmarks/translation.py --only "decoding, batch 1, greedy"

All contenders have the same random weights, in the form that CTranslate2 and transformers' Marian
compute as well: post-norm, one embedding for all. They decode exactly 32 tokens, and train on
batches without padding, with label smoothing.

Axes: B sentences, K hypotheses of a sentence, S source tokens, T target tokens, E model width.
"""

import math
import pathlib

import numpy as np
import turns

PAD, START, END = range(3)
BASE = {"vocab_size": 32000, "embed_dim": 512, "num_heads": 8, "num_layers": 6, "ff_dim": 2048}
# the defaults of recipes/translate.py
SMALL = {"vocab_size": 10000, "embed_dim": 128, "num_heads": 4, "num_layers": 4, "ff_dim": 256}
STEPS = 10 if turns.GPU else 2  # training steps of a run


def cases():
    """Decoding at several batch sizes, and training steps of both models."""
    cases = []
    batch_sizes = (1, 32, 256) if turns.GPU else (1, 8, 32)
    for precision in ("float32", "bfloat16", "int8"):
        for beam_size in (1, 4):
            for batch_size in batch_sizes:
                cases.append(decoding(BASE, batch_size, beam_size, precision))
    base, small = (256, 2048) if turns.GPU else (32, 256)  # batch sizes
    for precision in ("float32", "bfloat16"):
        cases.append(training("base", BASE, base, 0.1, precision))
        cases.append(training("small", SMALL, small, 0.3, precision))
    return cases


def decoding(sizes, batch_size, beam_size, precision, source_length=20, target_length=32):
    contenders = {
        "float32": ["zoo", "CTranslate2", "transformers"],
        "bfloat16": ["zoo", "transformers"],
        "int8": ["zoo", "CTranslate2"],
    }
    rows = batch_size * beam_size
    width = sizes["embed_dim"]
    encoder, decoder, output = parameters(**sizes)
    # The source's keys and values are computed once. At each step, they are read for each sentence,
    # those of the target so far for each hypothesis.
    per_token = sizes["num_layers"] * 2 * width
    encoder += per_token * width
    decoder -= per_token * width
    source = per_token * source_length
    target = per_token * target_length / 2
    keys = batch_size * source + rows * target
    numbers = encoder + target_length * (decoder + output + keys)
    search = "greedy" if beam_size == 1 else f"beam {beam_size}"
    return turns.Case(
        f"decoding, batch {batch_size}, {search}, {target_length} tokens, {precision}",
        {
            "kind": "decoding",
            "sizes": sizes,
            "batch_size": batch_size,
            "precision": precision,
            "beam_size": beam_size,
            "lengths": [source_length, target_length],
        },
        contenders[precision],
        batch_size * target_length,
        "tokens",
        2 * batch_size * source_length * encoder
        + 2 * rows * target_length * (decoder + output + source + target),
        numbers * {"float32": 4, "bfloat16": 2, "int8": 1}[precision],
        precision,
    )


def training(name, sizes, batch_size, dropout, precision, length=32):
    encoder, decoder, output = parameters(**sizes)
    attention = sizes["num_layers"] * 3 * 2 * length * sizes["embed_dim"]
    return turns.Case(
        f"training, {name}, batch {batch_size}, {length} tokens, {precision}",
        {
            "kind": "training",
            "sizes": sizes,
            "batch_size": batch_size,
            "precision": precision,
            "dropout": dropout,
            "lengths": [length, length],
        },
        ["zoo", "transformers"],
        STEPS * batch_size * length,
        "tokens",
        # Forward, and backward for inputs and weights. Adam reads weights, gradients and two
        # moments and writes as many numbers.
        STEPS * 3 * 2 * batch_size * length * (encoder + decoder + output + attention),
        STEPS * 8 * 4 * (encoder + decoder + output),
        precision,
    )


def parameters(vocab_size, embed_dim, num_heads, num_layers, ff_dim):
    """Numbers of weights in the matrices of encoder, decoder and output."""
    attention = 4 * embed_dim**2
    feed_forward = 2 * embed_dim * ff_dim
    encoder = num_layers * (attention + feed_forward)
    return encoder, encoder + num_layers * attention, vocab_size * embed_dim


def zoo_transformer(sizes, **settings):
    """The zoo's model, with weights drawn from a seed."""
    import zoo
    from zoo.layers import SinusoidalPositions

    settings = {**sizes, **settings, "shared": "all", "pad_id": PAD, "epsilon": 1e-5}
    size = settings.pop("vocab_size")
    positions = SinusoidalPositions("halves")
    model = zoo.transformer(
        source_vocab_size=size, target_vocab_size=size, positions=positions, **settings
    )
    random = np.random.default_rng(0)
    for weight in model.weights:
        drawn = random.normal(size=weight.shape)
        if len(weight.shape) == 1:
            # Scales of both signs: otherwise the output layer, tied to the embedding, would always
            # repeat the previous token.
            drawn = np.sign(drawn) * weight.numpy() + 0.02 * drawn
        elif weight.path.endswith("embeddings"):
            drawn *= sizes["embed_dim"] ** -0.5
        else:
            drawn *= weight.shape[0] ** -0.5 / 2
        weight.assign(drawn)
    return model


def prepare(folder, all_settings):
    """Writes the weights of each model in the formats of other libraries."""
    import keras

    from zoo.checkpoints.hugging_face_translators import SHARED, TABLE
    from zoo.checkpoints.mapping import collect, same
    from zoo.decoding import SpecialTokens

    for sizes in (settings["sizes"] for settings in all_settings):
        path = weights_folder(folder, sizes)
        if path.exists():
            continue
        path.mkdir()
        model = zoo_transformer(sizes)
        table = {**TABLE, "decoder_embedding/tokens/embeddings": same(SHARED)}
        np.savez(path / "marian.npz", **collect(model, table))
        write_ctranslate2(model, SpecialTokens(START, END, PAD), path / "ctranslate2")
        keras.backend.clear_session()


def write_ctranslate2(model, special, path):
    """Writes a model in the format of CTranslate2, if that is installed."""
    from zoo.deploy.ctranslate2_format import write_model
    from zoo.errors import ExportError

    path.mkdir()
    try:
        write_model(model, special, path)
    except ExportError as error:
        print(error)


def weights_folder(folder, sizes):
    return pathlib.Path(folder) / "_".join(map(str, sizes.values()))


def sentences(sizes, batch_size, lengths):
    """Tokens without padding: (sources [B, S], targets [B, T + 1])."""
    random = np.random.default_rng(0)
    source_length, target_length = lengths
    shapes = [(batch_size, source_length), (batch_size, target_length + 1)]
    return [random.integers(END + 1, sizes["vocab_size"], shape, np.int32) for shape in shapes]


def in_zoo(folder, sizes, batch_size, precision, kind, lengths, beam_size=1, dropout=0.0):
    half = "mixed_bfloat16" if kind == "training" else "bfloat16"
    policy = half if precision == "bfloat16" else "float32"
    model = zoo_transformer(sizes, dropout=dropout, dtype=policy)
    sources, targets = sentences(sizes, batch_size, lengths)
    if kind == "training":
        return zoo_training(model, sources, targets)
    if precision == "int8":
        model.quantize("int8")
    return zoo_decoding(model, sources, beam_size, lengths[1])


def zoo_decoding(model, sources, beam_size, length):
    import tensorflow as tf

    from zoo.decoding import SpecialTokens, beam_search, greedy_search

    @tf.function(jit_compile=True)
    def search(source):
        cache = model.start(source, length, beam_size)
        settings = (model.step, cache, len(sources), SpecialTokens(START, END, PAD), length)
        # The minimum includes the end token, so length + 1 prevents it.
        if beam_size == 1:
            return greedy_search(*settings, min_length=length + 1).tokens[:, 0]
        hypotheses = beam_search(*settings, beam_size=beam_size, alpha=0.0, min_length=length + 1)
        return hypotheses.tokens[:, 0]

    source = tf.constant(sources)
    return lambda: search(source).numpy()


def zoo_training(model, sources, targets):
    """`fit` as in the recipe."""
    import keras
    import tensorflow as tf

    from zoo.data.worker_batches import without_autotuning
    from zoo.training.losses import SmoothedCrossEntropy
    from zoo.training.trainer import Trainer

    trainer = Trainer(model)
    trainer.compile(keras.optimizers.Adam(1e-4, epsilon=1e-8), SmoothedCrossEntropy(0.1))
    inputs = {"source": sources, "target": targets[:, :-1]}
    labels = targets[:, 1:]
    weights = np.ones(labels.shape, "float32")
    batches = without_autotuning(tf.data.Dataset.from_tensors((inputs, labels, weights)).repeat())
    return turns.steps_of_fit(trainer, batches, STEPS)


def in_transformers(folder, sizes, batch_size, precision, kind, lengths, beam_size=1, dropout=0.0):
    import torch

    model = marian(folder, sizes, lengths, dropout)
    arrays = sentences(sizes, batch_size, lengths)
    source, target = (
        torch.tensor(tokens, dtype=torch.int64, device=turns.TORCH_DEVICE) for tokens in arrays
    )
    mask = torch.ones_like(source)
    if kind == "decoding":
        model.eval().to(getattr(torch, precision))

        def decode():
            tokens = model.generate(
                source,
                attention_mask=mask,
                max_new_tokens=lengths[1],
                min_new_tokens=lengths[1],
                num_beams=beam_size,
                do_sample=False,
                length_penalty=0.0,
                bad_words_ids=[[PAD], [START]],
            )
            return tokens[:, 1:].cpu().numpy()

        return decode
    optimizer = torch.optim.Adam(model.train().parameters(), 1e-4)
    cast = torch.autocast(turns.TORCH_DEVICE, torch.bfloat16, enabled=precision == "bfloat16")

    def train():
        losses = []
        for _ in range(STEPS):
            with cast:
                outputs = model(source, attention_mask=mask, decoder_input_ids=target[:, :-1])
            logits = outputs.logits.float().flatten(0, 1)  # [B T, V]
            labels = target[:, 1:].flatten()
            loss = torch.nn.functional.cross_entropy(logits, labels, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [torch.stack(losses).mean().item()]

    return train


def marian(folder, sizes, lengths, dropout):
    """transformers' model with the weights of the zoo's."""
    import torch
    from transformers import MarianConfig, MarianMTModel

    config = MarianConfig(
        vocab_size=sizes["vocab_size"],
        d_model=sizes["embed_dim"],
        max_position_embeddings=max(512, *lengths),
        scale_embedding=True,
        activation_function="relu",
        dropout=dropout,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        forced_eos_token_id=None,
        decoder_start_token_id=START,
        encoder_layers=sizes["num_layers"],
        encoder_attention_heads=sizes["num_heads"],
        encoder_ffn_dim=sizes["ff_dim"],
        decoder_layers=sizes["num_layers"],
        decoder_attention_heads=sizes["num_heads"],
        decoder_ffn_dim=sizes["ff_dim"],
    )
    model = MarianMTModel(config)
    weights = np.load(weights_folder(folder, sizes) / "marian.npz")
    tensors = {name: torch.tensor(weights[name]) for name in weights}
    missing, unknown = model.load_state_dict(tensors, strict=False)
    rest = [name for name in missing if "embed" not in name and "lm_head" not in name]
    assert rest in ([], ["final_logits_bias"]) and not unknown, (rest, unknown)
    torch.set_float32_matmul_precision("high")  # TensorFloat-32 on GPUs, as TensorFlow
    return model.to(turns.TORCH_DEVICE)


def in_ctranslate2(folder, sizes, batch_size, precision, kind, lengths, beam_size):
    import ctranslate2

    path = weights_folder(folder, sizes) / "ctranslate2"
    translators = 1
    if precision == "int8" and not turns.GPU:
        translators = turns.CORES  # faster with one thread per sentence, also for a single one
    translator = ctranslate2.Translator(
        str(path),
        compute_type=precision,
        inter_threads=translators,
        intra_threads=turns.CORES // translators,
        device=turns.TORCH_DEVICE,
    )
    sources, _ = sentences(sizes, batch_size, lengths)
    source = [[str(token) for token in row] for row in sources]

    def decode():
        results = translator.translate_batch(
            source,
            beam_size=beam_size,
            length_penalty=0,
            return_scores=False,
            min_decoding_length=lengths[1],
            max_decoding_length=lengths[1],
            suppress_sequences=[[str(PAD)], [str(START)]],
            max_batch_size=math.ceil(batch_size / translators),
        )
        return [[int(token) for token in one.hypotheses[0]] for one in results]

    return decode


CONTENDERS = {"zoo": in_zoo, "CTranslate2": in_ctranslate2, "transformers": in_transformers}

if __name__ == "__main__":
    turns.run(__file__, cases(), turns.parser(__doc__).parse_args())
