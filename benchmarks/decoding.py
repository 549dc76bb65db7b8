"""Speed of translation, side by side with CTranslate2 in float32 on the same weights.

    python -m pip install ctranslate2
    python benchmarks/decoding.py   # the base model, vocabulary 32,000
    python benchmarks/decoding.py --batch-sizes 8 --beams 1 --target-length 64

Weights are drawn at random and given to both. Each decodes a fixed number of tokens, so that both
do the same work; ours is start and search in one graph, compiled by XLA. That the tokens and scores
come out alike is shown first. Both take turns within one process, so that a machine that slows down
slows down both; what counts is the ratio of a turn, and the median of the ratios. The machine must
be otherwise idle: where others take its cores, CTranslate2's threads, which wait for each other
busily, become slower by far more than ours.
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
# The OpenMP threads of CTranslate2 wait busily for 0.2 s after their work, on cores we would need.
PAUSE = 0.4


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7, help="turns of each")
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
            # scales of either sign, lest the output layer, being the embedding, repeat its token
            drawn = np.sign(drawn) * _array(weight) + 0.02 * drawn
        elif weight.path.endswith("embeddings"):
            drawn *= args.embed_dim**-0.5
        else:
            drawn *= weight.shape[0] ** -0.5 / 2
        weight.assign(drawn)
    return model


def ctranslate2_translator(model, args, folder):
    """A `ctranslate2.Translator` with the weights of our model."""
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


def ours(model, sources, beam, length):
    """A function that decodes: () -> (tokens [B, T], log-probabilities [B]), the best ones."""

    @tf.function(jit_compile=True)
    def search(source):
        cache = model.start(source, length, beam)
        # min_length counts the end token, which is never to come here
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


def theirs(translator, sources, beam, length):
    """The same of CTranslate2."""
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


def compare(work, args):
    """Median seconds of a turn of each, and the ratios."""
    seconds = {name: [] for name in work}
    for _ in range(args.rounds):
        for name, decode in work.items():
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
    print(f"{model.count_params():,} parameters, {args.threads} threads, {args.rounds} turns")
    print("        tokens: equal, different | scores  |   tokens/s                |")
    print("batch beam       ones in a row   | differ  | CTranslate2     zoo | ratio (range)")
    for beam in args.beams:
        for batch_size in args.batch_sizes:
            shape = (batch_size, args.source_length)
            sources = random.integers(len(TOKENS), args.vocab_size, shape)
            work = {
                "CTranslate2": theirs(translator, sources, beam, args.target_length),
                "zoo": ours(model, sources, beam, args.target_length),
            }
            (their_tokens, their_scores), (tokens, scores) = [decode() for decode in work.values()]
            equal = (tokens == their_tokens).mean()
            kinds = np.mean([len(set(row)) for row in tokens])  # 1 would show little
            error = np.abs(scores - their_scores).max()
            seconds, ratios = compare(work, args)
            speed = {name: batch_size * args.target_length / time for name, time in seconds.items()}
            print(
                f"{batch_size:5} {beam:4} {equal:9.1%} {kinds:11.1f}   | {error:7.0e} | "
                f"{speed['CTranslate2']:11.0f} {speed['zoo']:7.0f} | "
                f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})",
                flush=True,
            )


if __name__ == "__main__":
    main(parse())
