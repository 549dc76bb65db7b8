"""Compares the speed of translation with CTranslate2, in float32 with the same weights.

    python -m pip install ctranslate2
    python benchmarks/decoding.py   # base model, vocabulary 32,000
    python benchmarks/decoding.py --batch-sizes 8 --beams 1 --target-length 64

Both use the same random weights and decode a fixed number of tokens, so that they do the same work.
The zoo runs encoder and search in one graph, compiled by XLA. The tokens and scores are compared
first. Both take turns in one process, so that changes in the speed of the machine affect both; the
result is the median ratio over the rounds. The machine must be otherwise idle: the threads of
CTranslate2 wait for each other in busy loops, so other load slows it far more than the zoo.
"""

import argparse
import statistics
import tempfile
import time

from zoo.startup import import_tensorflow_quietly

import_tensorflow_quietly()

import ctranslate2  # noqa: E402
import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import zoo  # noqa: E402
from zoo.decoding import SpecialTokens, beam_search, greedy_search  # noqa: E402
from zoo.layers import sinusoidal_positions  # noqa: E402

TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
SPECIAL = SpecialTokens(pad=0, start=1, end=2)
# CTranslate2's OpenMP threads spin for 0.2 s after their work and would slow the zoo's turn.
PAUSE = 0.4


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="number of rounds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 4], help="1 is greedy search")
    parser.add_argument("--source-length", type=int, default=20)
    parser.add_argument("--target-length", type=int, default=32)
    parser.add_argument("--vocab-size", type=int, default=32000)
    parser.add_argument("--embed-dim", type=int, default=512)
    parser.add_argument("--num-heads", type=int, default=8)
    parser.add_argument("--num-layers", type=int, default=6)
    parser.add_argument("--ff-dim", type=int, default=2048)
    return parser.parse_args()


def zoo_transformer(args):
    model = zoo.transformer(
        source_vocab_size=args.vocab_size,
        target_vocab_size=args.vocab_size,
        embed_dim=args.embed_dim,
        num_heads=args.num_heads,
        num_layers=args.num_layers,
        ff_dim=args.ff_dim,
        pad_id=SPECIAL.pad,
    )
    random = np.random.default_rng(0)
    for weight in model.weights:
        drawn = random.normal(size=weight.shape)
        if len(weight.shape) == 1:
            # Scales of both signs: otherwise the output layer, tied to the embedding, would always
            # repeat the previous token.
            drawn = np.sign(drawn) * _array(weight) + 0.02 * drawn
        elif weight.path.endswith("embeddings"):
            drawn *= args.embed_dim**-0.5
        else:
            drawn *= weight.shape[0] ** -0.5 / 2
        weight.assign(drawn)
    return model


def ctranslate2_translator(model, args, folder):
    """Builds a `ctranslate2.Translator` with the weights of the model."""
    spec = ctranslate2.specs.TransformerSpec.from_config(
        args.num_layers, args.num_heads, pre_norm=False
    )
    for stack, blocks, embedding, embeddings in (
        (spec.encoder, model.encoder_blocks, model.source_embedding, spec.encoder.embeddings[0]),
        (spec.decoder, model.decoder_blocks, model.target_embedding, spec.decoder.embeddings),
    ):
        embeddings.weight = _array(embedding.embeddings)
        positions = sinusoidal_positions(model.max_length, args.embed_dim)
        stack.position_encodings.encodings = _array(positions)
        for layer, block in zip(stack.layer, blocks):
            _copy_block(layer, block)
    spec.decoder.projection.weight = _array(model.target_embedding.embeddings)
    spec.config.layer_norm_epsilon = model.decoder_blocks[0].epsilon
    spec.register_source_vocabulary(_vocabulary(args.vocab_size))
    spec.register_target_vocabulary(_vocabulary(args.vocab_size))
    spec.validate()
    spec.save(folder)
    return ctranslate2.Translator(
        folder, device="cpu", compute_type="float32", inter_threads=1, intra_threads=args.threads
    )


def _copy_block(layer, block):
    own = "attention" if hasattr(block, "attention") else "self_attention"
    attention = getattr(block, own)
    _copy_linear(layer.self_attention.linear[0], attention.qkv)
    _copy_linear(layer.self_attention.linear[1], attention.output_projection)
    _copy_norm(layer.self_attention.layer_norm, getattr(block, f"{own}_norm"))
    if hasattr(block, "cross_attention"):
        cross = block.cross_attention
        _copy_linear(layer.attention.linear[0], cross.query)
        _copy_linear(layer.attention.linear[1], cross.key_value)
        _copy_linear(layer.attention.linear[2], cross.output_projection)
        _copy_norm(layer.attention.layer_norm, block.cross_attention_norm)
    _copy_linear(layer.ffn.linear_0, block.feed_forward.hidden)
    _copy_linear(layer.ffn.linear_1, block.feed_forward.output_projection)
    _copy_norm(layer.ffn.layer_norm, block.feed_forward_norm)


def _copy_linear(linear, dense):
    linear.weight = np.ascontiguousarray(_array(dense.kernel).T)
    linear.bias = _array(dense.bias)


def _copy_norm(norm, normalization):
    norm.gamma, norm.beta = _array(normalization.gamma), _array(normalization.beta)


def _array(tensor):
    return keras.ops.convert_to_numpy(tensor)


def _vocabulary(size):
    return [*TOKENS, *(str(token) for token in range(len(TOKENS), size))]


def zoo_decoder(model, sources, beam, length):
    """Returns a function () -> (tokens [B, T], log-probabilities [B]) of the best hypotheses."""

    @tf.function(jit_compile=True)
    def search(source):
        cache = model.start(source, length, beam)
        # min_length includes the end token, so length + 1 prevents it
        settings = (cache, len(sources), SPECIAL, length)
        if beam == 1:
            found = greedy_search(model.step, *settings, min_length=length + 1)
        else:
            found = beam_search(
                model.step, *settings, beam_size=beam, alpha=0.0, min_length=length + 1
            )
        return found.tokens[:, 0], found.log_probs[:, 0]

    source = tf.constant(sources, tf.int32)
    return lambda: [part.numpy() for part in search(source)]


def ctranslate2_decoder(translator, sources, beam, length):
    """Like `zoo_decoder`, with CTranslate2."""
    vocabulary = _vocabulary(int(sources.max()) + 1)
    source = [[vocabulary[token] for token in row] for row in sources]

    def decode():
        found = translator.translate_batch(
            source,
            beam_size=beam,
            length_penalty=0,
            min_decoding_length=length,
            max_decoding_length=length,
            suppress_sequences=[["<pad>"], ["<s>"]],
            return_scores=True,
        )
        special = {token: number for number, token in enumerate(TOKENS)}
        rows = [one.hypotheses[0] for one in found]
        tokens = [[special[t] if t in special else int(t) for t in row] for row in rows]
        return np.array(tokens), np.array([one.scores[0] for one in found])

    return decode


def compare(decoders, args):
    """Returns the median seconds per round of both, and the ratios."""
    seconds = {name: [] for name in decoders}
    for _ in range(args.rounds):
        for name, decode in decoders.items():
            time.sleep(PAUSE)
            start = time.perf_counter()
            decode()
            seconds[name].append(time.perf_counter() - start)
    ratios = [a / b for a, b in zip(seconds["CTranslate2"], seconds["zoo"])]
    return {name: statistics.median(times) for name, times in seconds.items()}, ratios


def main(args):
    tf.config.threading.set_intra_op_parallelism_threads(args.threads)
    model = zoo_transformer(args)
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        translator = ctranslate2_translator(model, args, folder)
    print(f"{model.count_params():,} parameters, {args.threads} threads, {args.rounds} rounds")
    print("           tokens:   distinct  | score   |   tokens/s                |")
    print("batch beam  equal    per row   | error   | CTranslate2     zoo | ratio (range)")
    for beam in args.beams:
        for batch_size in args.batch_sizes:
            shape = (batch_size, args.source_length)
            sources = random.integers(len(TOKENS), args.vocab_size, shape)
            decoders = {
                "CTranslate2": ctranslate2_decoder(translator, sources, beam, args.target_length),
                "zoo": zoo_decoder(model, sources, beam, args.target_length),
            }
            (their_tokens, their_scores), (tokens, scores) = [f() for f in decoders.values()]
            equal = (tokens == their_tokens).mean()
            distinct = np.mean([len(set(row)) for row in tokens])  # 1 would be a weak comparison
            error = np.abs(scores - their_scores).max()
            seconds, ratios = compare(decoders, args)
            speed = {name: batch_size * args.target_length / time for name, time in seconds.items()}
            print(
                f"{batch_size:5} {beam:4} {equal:6.1%} {distinct:10.1f}   | {error:7.0e} | "
                f"{speed['CTranslate2']:11.0f} {speed['zoo']:7.0f} | "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main(parse())
