"""Estimates how training scales, from the step time on one GPU and the bandwidth between GPUs.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --parameters 86_567_656 --step-ms 250 --gpus 16 --gigabytes 10

The first command prints the table in docs/distribution.md, the second the result for your own
figures. A run logs `images_per_second_per_device` or `tokens_per_second_per_device`, which give the
step time on one GPU; `all_reduce_perf` of nccl-tests prints the bandwidth as "busbw".
"""

import argparse
from typing import NamedTuple

GRADIENT = 4  # bytes per gradient, also in mixed precision


class Step(NamedTuple):
    """A measured training step on one GPU."""

    name: str
    parameters: int
    milliseconds: float
    source: str


class Network(NamedTuple):
    """A measured bandwidth between GPUs."""

    name: str
    gpus: int
    gigabytes: float  # per second; "busbw" of nccl-tests
    source: str


def steps():
    import zoo

    big = zoo.transformer("big", source_vocab_size=33_708, target_vocab_size=33_708, shared="all")
    vit = zoo.vit("B/16", num_classes=1000, input_shape=(224, 224, 3))
    nvidia = "NVIDIA DeepLearningExamples, PyTorch/Translation/Transformer"
    timm = "timm, results/benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv"
    return [
        Step(
            "Transformer big, 10,240 tokens, A100, 16 bits",
            big.count_params(),
            1000 * 10_240 / 82_059,
            nvidia,
        ),
        Step(
            "Transformer big, 10,240 tokens, A100, TF32",
            big.count_params(),
            1000 * 10_240 / 51_057,
            nvidia,
        ),
        Step("ViT-B/16, 192 images, RTX 3090, 16 bits", vit.count_params(), 487.7, timm),
    ]


NETWORKS = [
    Network("8 A100 in a machine, NVLink", 8, 200.0, "nccl-tests issue 149"),
    Network("8 machines of 8 A100, four 200 Gb/s cards each", 64, 84.8, "nccl-tests issue 119"),
    Network("8 machines of 8, one 100 Gb/s card each", 64, 12.5, "rate of the card"),
]


def times_faster(parameters, milliseconds, gpus, gigabytes, bytes_each=GRADIENT):
    """Speed of `gpus` GPUs relative to one, with the same batch size per GPU.

    A ring all-reduce moves 2 (N - 1) / N times the gradients over each link (Patarasuk and Yuan
    2009, "Bandwidth optimal all-reduce algorithms", section 3). Communication does not overlap with
    computation.
    """
    moved = 2 * (gpus - 1) / gpus * parameters * bytes_each
    return gpus / (1 + moved / (gigabytes * 1e9) / (milliseconds / 1000))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=int, help="number of parameters")
    parser.add_argument("--step-ms", type=float, help="milliseconds per step on one GPU")
    parser.add_argument("--gpus", type=int, default=8, help="number of GPUs on all machines (8)")
    parser.add_argument("--gigabytes", type=float, help="gigabytes per second of the slowest link")
    args = parser.parse_args()
    if any((args.parameters, args.step_ms, args.gigabytes)):
        if not all((args.parameters, args.step_ms, args.gigabytes)):
            parser.error("--parameters, --step-ms and --gigabytes must be passed together")
        factor = times_faster(args.parameters, args.step_ms, args.gpus, args.gigabytes)
        print(f"{args.gpus} GPUs: {factor:.2f} times as fast as one")
        return
    for step in steps():
        print(f"\n{step.name}: {step.milliseconds:.1f} ms, {step.parameters:,} parameters")
        print(f"  ({step.source})")
        for network in NETWORKS:
            figures = (step.parameters, step.milliseconds, network.gpus, network.gigabytes)
            four = times_faster(*figures)
            two = times_faster(*figures, bytes_each=2)
            print(
                f"  {network.name}: {four:.2f} of {network.gpus} "
                f"(with gradients of 2 bytes: {two:.2f}; {network.source})"
            )


if __name__ == "__main__":
    main()
