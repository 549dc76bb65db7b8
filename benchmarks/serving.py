"""Measures throughput, latency and correctness of `python -m zoo serve` under load.

    python -m zoo export runs/en_es serving/en_es/1
    python -m zoo export runs/vit_digits serving/digits/1
    python benchmarks/serving.py serving/en_es serving/digits

Starts a server and sends requests from 64 concurrent clients; each sends its next request when it
has received the last response. Requests contain one to three of a few texts and images, whose
expected outputs are computed by calling the SavedModel in another process. In a second phase,
invalid requests are sent as well; they must be rejected. A request is lost if it gets no response,
and wrong if it gets an unexpected one. The clients run in their own process on the same machine and
use a good part of its CPU time.

    python benchmarks/serving.py serving/en_es serving/digits --compare-starlette --rounds 3

serves the same exports by plain_server.py as well, in turns, and prints a table.
"""

import argparse
import asyncio
import base64
import collections
import json
import multiprocessing
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import time

import httpx
import numpy as np
import psutil

TEXTS = (
    "the dog sees a house.",
    "where is the red car?",
    "i do not know.",
    "my brother has two small cats and an old table.",
    "good morning!",
    "",
)
BAD = (  # (path after the model's name, body, status)
    (":predict", b"{", 400),
    (":predict", b'{"instances": []}', 400),
    (":predict", b'{"instances": ["a"], "signature_name": "nope"}', 400),
    (":predict", b'{"instances": [{"oops": 1}]}', 400),
    (":predict", b'{"instances": [1.5]}', 400),
    (":predict", b'{"instances": [["a"], ["b", "c"]]}', 400),
    (":predict", b'{"instances": [{"b64": "?"}]}', 400),
    (":predict", b" " * (33 * 2**20), 413),
    ("/versions/999:predict", b"{}", 404),
    ("x:predict", b"{}", 404),
    (":classify", b"{}", 405),
)


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="exports to serve")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--max-batch", type=int, default=32)
    parser.add_argument("--batch-wait-ms", type=float, default=2.0)
    parser.add_argument("--compare-starlette", action="store_true", help="compare, see above")
    parser.add_argument("--rounds", type=int, default=1, help="turns of each server (1)")
    args = parser.parse_args()
    if min(args.clients, args.rounds, args.seconds) <= 0:
        parser.error("--clients, --rounds and --seconds must be positive.")
    return args


def pictures(count=12):
    """Yields PNG files of noise in several sizes, as {"b64": ...}."""
    import tensorflow as tf

    generator = np.random.default_rng(0)
    for side in generator.integers(8, 200, count):
        pixels = generator.integers(0, 256, (side, side, 3), np.uint8)
        yield {"b64": base64.b64encode(tf.io.encode_png(pixels).numpy()).decode()}


def known_answers(folders):
    """Computes [(name, instance, prediction)] with the SavedModels, one instance at a time."""
    from zoo.startup import import_tensorflow_quietly

    import_tensorflow_quietly()
    from zoo.server.models import load_all
    from zoo.server.rest_json import decode, encode

    answers = []
    for model in load_all(folders):
        inputs = model.signatures["serving_default"].inputs
        for instance in TEXTS if "texts" in inputs else list(pictures()):
            read = decode({"instances": [instance]}, inputs)
            answer = encode(model.call("serving_default", read), row_form=True)
            answers.append((model.name, instance, json.loads(answer)["predictions"][0]))
    return answers


def agrees(answer, expected):
    """Compares predictions; numbers may differ by 1e-4, as batching changes rounding."""
    if isinstance(expected, dict):
        return answer.keys() == expected.keys() and all(
            agrees(answer[k], expected[k]) for k in answer
        )
    if isinstance(expected, list):
        return len(answer) == len(expected) and all(map(agrees, answer, expected))
    if isinstance(expected, float):
        return abs(answer - expected) <= 1e-4
    return answer == expected


class Load:
    """Clients that send requests until `end`, and their results."""

    def __init__(self, url, answers):
        self.url = url
        self.by_name = collections.defaultdict(list)
        for name, instance, prediction in answers:
            self.by_name[name].append((instance, prediction))
        self.latencies = []
        self.items = 0
        self.wrong = []
        self.lost = []
        self.end = 0.0

    async def client(self, seed):
        choice = random.Random(seed)
        async with httpx.AsyncClient(timeout=120) as http:
            while time.monotonic() < self.end:
                name = choice.choice(sorted(self.by_name))
                asked = choice.choices(self.by_name[name], k=choice.randint(1, 3))
                await self._ask(http, name, asked)

    async def _ask(self, http, name, asked):
        body = json.dumps({"instances": [instance for instance, _ in asked]})
        started = time.monotonic()
        try:
            answer = await http.post(f"{self.url}/v1/models/{name}:predict", content=body)
        except httpx.HTTPError as error:
            self.lost.append(repr(error))
            return
        self.latencies.append(time.monotonic() - started)
        self.items += len(asked)
        expected = [prediction for _, prediction in asked]
        if answer.status_code != 200 or not agrees(answer.json()["predictions"], expected):
            self.wrong.append(answer.text[:200])

    async def bad_client(self, results):
        async with httpx.AsyncClient(timeout=120) as http:
            for name in sorted(self.by_name):
                for path, body, status in BAD:
                    answer = await http.post(f"{self.url}/v1/models/{name}{path}", content=body)
                    ok = answer.status_code == status and "error" in answer.json()
                    results.append(None if ok else f"{path} {body[:40]}: {answer.text[:200]}")

    async def run(self, clients, seconds, process, with_bad=False):
        """Runs the clients; returns the server's memory in MB after 10 s and at the end, and the
        results of invalid requests."""
        self.end = time.monotonic() + seconds
        memory = []
        results = []

        async def measure_memory():
            first = min(10.0, seconds / 2)
            for wait in (first, seconds - first):
                await asyncio.sleep(wait)
                memory.append(process.memory_info().rss / 1e6)

        work = [self.client(seed) for seed in range(clients)]
        work.append(measure_memory())
        if with_bad:
            work.append(self.bad_client(results))
        await asyncio.gather(*work)
        return memory, results


def start_server(command):
    """Starts a server in another process; returns the process and the URL, when it is ready."""
    root = pathlib.Path(__file__).parents[1]
    server = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.PIPE, text=True, cwd=root
    )
    for line in server.stdout:
        print(line, end="")
        match = re.search(r"Serving at (http\S+)/", line)
        if match:
            return server, match[1]
    raise SystemExit("The server did not start.")


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def report(title, load, seconds, memory):
    ms = [1000 * value for value in load.latencies]
    print(f"{title}: {len(ms) / seconds:.0f} requests/s, {load.items / seconds:.0f} items/s")
    if ms:
        print(
            f"  latency, ms: p50 {statistics.median(ms):.0f}, p95 {percentile(ms, 0.95):.0f}, "
            f"p99 {percentile(ms, 0.99):.0f}, longest {max(ms):.0f}"
        )
    print(f"  {len(ms)} responses; wrong: {len(load.wrong)}; lost: {len(load.lost)}")
    print(f"  server memory, MB: {memory[0]:.0f} after 10 s, {memory[1]:.0f} at the end")
    for line in (load.wrong + load.lost)[:5]:
        print(f"    {line}")


def measure(command, args, answers, with_bad=False):
    """Starts a server and measures it; returns the `Load` and a list of problems."""
    server, url = start_server(command)
    try:
        return measure_started(server, url, args, answers, with_bad)
    finally:
        server.kill()  # does nothing after its end


def measure_started(server, url, args, answers, with_bad):
    """`measure` with the process and the URL of a server, which it ends."""
    process = psutil.Process(server.pid)
    # A first run without timing, in which the searches are compiled.
    asyncio.run(Load(url, answers).run(args.clients, min(20.0, args.seconds), process))
    if server.poll() is not None:
        raise SystemExit(f"The server ended with status {server.returncode}.")
    load = Load(url, answers)
    memory, _ = asyncio.run(load.run(args.clients, args.seconds, process))
    report(f"{args.clients} clients", load, args.seconds, memory)
    problems = [*load.wrong, *load.lost]
    if with_bad:
        mixed = Load(url, answers)
        seconds = min(10.0, args.seconds)
        memory, results = asyncio.run(mixed.run(args.clients, seconds, process, with_bad=True))
        report("with invalid requests", mixed, seconds, memory)
        wrong = [result for result in results if result]
        print(f"  invalid requests: {len(results)}; not rejected as expected: {len(wrong)}")
        for line in wrong:
            print(f"    {line}")
        problems += mixed.wrong + mixed.lost + wrong
    server.send_signal(signal.SIGTERM)
    status = server.wait(60)
    print(f"exit status of the server after SIGTERM: {status}")
    if status:
        problems.append(f"status {status}")
    return load, problems


def table(loads, seconds):
    """Compares servers: medians of the rounds, with the range of the requests per second."""
    lines = ["", "| server | requests/s (range) | latency: median, 99th percentile | wrong, lost |"]
    lines.append("|---|---|---|---|")
    for name, rounds in loads.items():
        rates = sorted(len(load.latencies) / seconds for load in rounds)
        half = statistics.median(percentile(load.latencies, 0.5) for load in rounds)
        tail = statistics.median(percentile(load.latencies, 0.99) for load in rounds)
        wrong = sum(len(load.wrong) for load in rounds)
        lost = sum(len(load.lost) for load in rounds)
        rate = f"{statistics.median(rates):.0f} ({rates[0]:.0f} to {rates[-1]:.0f})"
        lines.append(f"| {name} | {rate} | {half:.2f} s, {tail:.2f} s | {wrong}, {lost} |")
    return "\n".join(lines)


def main():
    args = parse()
    args.folders = [str(pathlib.Path(folder).resolve()) for folder in args.folders]
    # The expected outputs are computed in another process, to keep TensorFlow out of this one.
    with multiprocessing.get_context("spawn").Pool(1) as other:
        answers = other.apply(known_answers, (args.folders,))
    options = ["--max-batch", str(args.max_batch), "--batch-wait-ms", str(args.batch_wait_ms)]
    commands = {"zoo": ["-m", "zoo", "serve", *args.folders, "--port", "0", *options]}
    if args.compare_starlette:
        plain = str(pathlib.Path(__file__).with_name("plain_server.py"))
        commands["Starlette"] = [plain, *args.folders]
    loads = collections.defaultdict(list)
    problems = []
    for _ in range(args.rounds):
        for name, command in commands.items():
            load, failures = measure(command, args, answers, with_bad=name == "zoo")
            loads[name].append(load)
            if name == "zoo":  # the exit status of this program is that of the zoo
                problems += failures
    if args.compare_starlette:
        print(table(loads, args.seconds))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
