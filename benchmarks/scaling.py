"""How training scales, on paper: from a step's time on one GPU and the bytes that GPUs exchange.

    python benchmarks/scaling.py
    python benchmarks/scaling.py --parameters 86_567_656 --step-ms 250 --gpus 16 --gigabytes 10

The first prints the table of docs/distribution.md, the second a line for your own figures. A run
prints its `images_per_second_per_device` or `tokens_per_second_per_device`, which give the step's
time on one GPU; `all_reduce_perf` of nccl-tests prints the bandwidth, as "busbw".
"""

import argparse
from typing import NamedTuple

GRADIENT = 4  # bytes of a gradient, also in mixed precision


class Step(NamedTuple):
    """What one GPU was measured to do."""

    what: str
    parameters: int
    milliseconds: float
    source: str


class Network(NamedTuple):
    """GPUs that were measured to exchange so many bytes."""

    what: str
    gpus: int
    gigabytes: float  # a second; "busbw" of nccl-tests
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
    """Rate of `gpus` beside that of one, each at its own batch.

    A ring moves 2 (N - 1) / N times the gradients over each link (Patarasuk and Yuan 2009,
    "Bandwidth optimal all-reduce algorithms", section 3). They are sent once all are there:
    nothing overlaps.
    """
    moved = 2 * (gpus - 1) / gpus * parameters * bytes_each
    return gpus / (1 + moved / (gigabytes * 1e9) / (milliseconds / 1000))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parameters", type=int, help="of the model that is trained")
    parser.add_argument("--step-ms", type=float, help="milliseconds of a step on one GPU")
    parser.add_argument("--gpus", type=int, default=8, help="in all machines together (8)")
    parser.add_argument("--gigabytes", type=float, help="a second that the slowest link carries")
    args = parser.parse_args()
    if any((args.parameters, args.step_ms, args.gigabytes)):
        if not all((args.parameters, args.step_ms, args.gigabytes)):
            parser.error("--parameters, --step-ms and --gigabytes belong together")
        factor = times_faster(args.parameters, args.step_ms, args.gpus, args.gigabytes)
        print(f"{args.gpus} GPUs: {factor:.2f} times the rate of one")
        return
    for step in steps():
        print(f"\n{step.what}: {step.milliseconds:.1f} ms, {step.parameters:,} parameters")
        print(f"  ({step.source})")
        for network in NETWORKS:
            rest = (step.milliseconds, network.gpus, network.gigabytes)
            four, two = (times_faster(step.parameters, *rest, size) for size in (GRADIENT, 2))
            print(
                f"  {network.what}: {four:.2f} of {network.gpus} "
                f"(with gradients of 2 bytes: {two:.2f}; {network.source})"
            )


if __name__ == "__main__":
    main()
