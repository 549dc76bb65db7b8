"""What all benchmarks share: contenders in processes of their own, which take turns.

A benchmark is a file with cases, and with contenders: functions ``(folder, **settings) -> run``,
where ``run() -> outputs`` computes the case once. Each contender runs in a process of its own, so
that the threads of one library do not disturb another's; it waits for a line on standard input,
repeats its run for about a second and answers with the seconds: A B C A B C. Ratios are medians
over the rounds, so that changes in the speed of the machine affect all contenders alike.

With a GPU, all compute on it, in larger batches, which are in its memory before the time is taken.

A floor is printed with each time: the time for the operations of the case at the rate of a large
matrix product, or for its bytes at the rate of a large copy, whichever is longer. Both rates are
measured before the first case. A time of 2.5 times the floor's uses 40 % of what the machine
reaches. The share of the rate of products that a case uses, its model FLOPs utilization, is printed
as well: for training on a GPU, it says more than the floor.
"""

import argparse
import functools
import importlib.util
import itertools
import json
import operator
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import NamedTuple

import numpy as np
from machine import CORES, FOLDER, GPU, head, load

TURN = 1.0  # seconds that a contender repeats its run
PAUSE = 0.4  # seconds before a turn: threads of OpenMP wait in busy loops after their work
COLUMNS = (
    "case",
    "contender",
    "speed",
    "ms",
    "times the first's (range)",
    "times the floor's",
    "matrix rate used",
    "difference",
    "memory, MiB",
    "cores",
    "first run, s",
)
TORCH_DEVICE = "cuda" if GPU else "cpu"


class Case(NamedTuple):
    """What the contenders compute.

    Fields:
        name: in the report.
        settings: keyword arguments of the contenders, as JSON stores them.
        contenders: names in the benchmark's `CONTENDERS`; the others are compared with the first.
        items: number of items that a run handles.
        unit: what an item is, such as "images".
        operations, bytes: at least so many are needed for a run; 0 if unknown.
        precision: of the operations.
    """

    name: str
    settings: dict
    contenders: tuple
    items: int = 1
    unit: str = "runs"
    operations: float = 0
    bytes: float = 0
    precision: str = "float32"


def parser(description):
    """The arguments of all benchmarks."""
    result = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    result.add_argument("--rounds", type=int, default=7, help="turns of each contender (7)")
    result.add_argument("--only", default="", metavar="TEXT", help="cases with this in their names")
    result.add_argument("--json", type=pathlib.Path, help="file for the measurements")
    return result


def run(file, cases, args):
    """Measures the cases of a benchmark and prints the report; returns it as a dict.

    Args:
        file: path of the benchmark: it has `CONTENDERS`, {name: function}, and it may have a
            function ``prepare(folder, all_settings)``, which runs first in a process of its own.
        cases: list of `Case`.
        args: of `parser`; the file for the measurements is in ``runs/benchmarks`` by default.
    """
    names = [case.name for case in cases]
    cases = [case for case in cases if args.only in case.name]
    if not cases:
        raise SystemExit(f"--only {args.only!r} matches none of the cases:\n" + "\n".join(names))
    report = {**head(), "cases": []}
    for name, value in report.items():
        if name != "cases":
            print(f"- {name}: {value}")
    print(f"\n| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        all_settings = [case.settings for case in cases]
        preparation = Contender(file, "prepare", folder, all_settings=all_settings)
        if preparation.first:
            raise SystemExit(f"The benchmark could not be prepared: {preparation.first}")
        has_floor = any(case.operations for case in cases)
        report["rates"] = measured_rates(folder) if has_floor else {}
        for case in cases:
            result = measure(file, case, folder, args.rounds)
            result["floor"] = floor_seconds(case, report["rates"])
            result["matrix rate"] = report["rates"].get(f"matrix product, {case.precision}")
            report["cases"].append(result)
            print("\n".join(rows(case, result)), flush=True)
    report["load after"] = load()
    for name in ("rates", "load after"):
        print(f"\n- {name}: {report[name]}")
    path = args.json or FOLDER.parent / "runs" / "benchmarks" / f"{pathlib.Path(file).stem}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(report, indent=1))
    return report


ENVIRONMENT = {
    "OMP_NUM_THREADS": str(CORES),
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_FORCE_GPU_ALLOW_GROWTH": "true",  # leaves memory to the other contenders
}


class Contender:
    """A process that computes a case when it is told to.

    Args:
        file: path of the benchmark.
        name: of the contender.
        folder: for files of the benchmark.
        **settings: see `Case`.
    """

    def __init__(self, file, name, folder, **settings):
        self.name = name
        self._errors = pathlib.Path(folder) / f"errors of {name}"
        with self._errors.open("w") as errors:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(file), name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**ENVIRONMENT, **os.environ},
            )
        self.first = self.ask(json.dumps({"folder": folder, **settings}))

    def ask(self, line):
        """Sends a line and waits for the answer, a dict."""
        try:
            print(line, file=self._process.stdin, flush=True)
            answer = json.loads(self._process.stdout.readline())
        except (BrokenPipeError, json.JSONDecodeError):
            answer = {"failed": f"the process ended with status {self._process.wait()}"}
        if "failed" in answer:
            sys.stderr.write(self._errors.read_text())
        return answer

    def close(self):
        self._process.stdin.close()
        self._process.wait()


def measure(file, case, folder, rounds):
    """Lets the contenders of a case take turns: its name and settings, and what each answers."""
    # With a GPU, what they compile first takes longest, on one core each.
    with ThreadPoolExecutor(len(case.contenders) if GPU else 1) as pool:
        start = functools.partial(Contender, file, folder=folder, **case.settings)
        contenders = list(pool.map(start, case.contenders))
    answers = {contender.name: {**contender.first, "seconds": []} for contender in contenders}
    running = [contender for contender in contenders if "outputs" in contender.first]
    for _ in range(rounds):
        for contender in running:
            time.sleep(PAUSE)
            answer = contender.ask("go")
            measured = answers[contender.name]
            measured["seconds"].append(answer.pop("seconds", float("nan")))
            measured.update(answer)
    for contender in contenders:
        contender.close()
    expected = answers[case.contenders[0]].get("outputs")
    for measured in answers.values():
        outputs = measured.pop("outputs", None)
        if outputs is not None and expected is not None:
            measured["difference"] = difference(outputs, expected)
    return {**case._asdict(), "contenders": answers}


def difference(outputs, expected):
    """The largest difference of numbers relative to the largest number; or the share of others."""
    outputs = np.asarray(outputs)
    expected = np.asarray(expected)
    if outputs.shape != expected.shape:
        return f"shapes {outputs.shape}, {expected.shape}"
    if outputs.dtype.kind == "f":
        return f"{np.abs(outputs - expected).max() / np.abs(expected).max():.0e}"
    return f"{(outputs != expected).mean():.1%} differ"


def measured_rates(folder):
    """Operations or bytes per second of each of `FLOOR`."""
    rates = {}
    for name, (_, amount) in FLOOR.items():
        contender = Contender(__file__, name, folder)
        rates[name] = amount / median(contender.ask("go")["seconds"] for _ in range(5))
        contender.close()
    return rates


def floor_seconds(case, rates):
    """The time that the case takes at least, 0 if that is unknown."""
    if not rates:
        return 0
    seconds = case.bytes / rates["copy"]
    rate = rates.get(f"matrix product, {case.precision}")
    return max(seconds, case.operations / rate) if rate else seconds


def rows(case, result):
    """Lines of the table, one for each contender and one for the floor."""
    first = result["contenders"][case.contenders[0]]["seconds"]
    for name, answer in result["contenders"].items():
        cells = dict.fromkeys(COLUMNS, "") | {"case": case.name, "contender": name}
        problems = [f"{kind}: {answer[kind]}" for kind in ("skipped", "failed") if kind in answer]
        if problems:
            cells["speed"] = problems[0]
        else:
            increase = answer["memory"] - answer["memory before"]
            cells["memory, MiB"] = f"{answer['memory']:,.0f} (+{increase:,.0f})"
            cells["difference"] = answer.get("difference", "")
            cells["first run, s"] = f"{answer['first run']:.1f}"
        if answer["seconds"] and not problems:
            seconds = median(answer["seconds"])
            ratios = sorted(map(operator.truediv, answer["seconds"], first))
            cells["speed"] = f"{case.items / seconds:,.4g} {case.unit}/s"
            cells["ms"] = f"{1000 * seconds:,.4g}"
            cells["cores"] = f"{answer['cores']:.1f}"
            if ratios:
                spread = f"({ratios[0]:.2f} to {ratios[-1]:.2f})"
                cells["times the first's (range)"] = f"{median(ratios):.2f} {spread}"
            if result["floor"]:
                cells["times the floor's"] = f"{seconds / result['floor']:.2g}"
            if result["matrix rate"] and case.operations:
                used = case.operations / seconds / result["matrix rate"]
                cells["matrix rate used"] = f"{used:.0%}"
        yield f"| {' | '.join(cells.values())} |"
    if result["floor"]:
        work = f"floor: {case.operations:.2g} operations, {case.bytes:.2g} bytes"
        speed = f"{case.items / result['floor']:,.4g} {case.unit}/s"
        empty = " |" * (len(COLUMNS) - 4)
        yield f"| {case.name} | {work} | {speed} | {1000 * result['floor']:,.4g} |{empty}"


def answer_turns(file, name):
    """Runs a contender: reads its settings, then repeats its run for each line."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print

    def answer(**values):
        print(json.dumps(values), file=answers, flush=True)

    settings = json.loads(sys.stdin.readline())
    begin = time.perf_counter()
    try:
        spec = importlib.util.spec_from_file_location(pathlib.Path(file).stem, file)
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        if name == "prepare":
            getattr(module, "prepare", lambda **_: None)(**settings)
            return answer()
        compute = module.CONTENDERS[name](**settings)
        memory_before = memory()
        outputs = compute()
        first_run = time.perf_counter() - begin  # with imports, weights, tracing and compilation
        compute()  # libraries that compile may do so again
        start = time.perf_counter()
        compute()
        count = max(1, round(TURN / (time.perf_counter() - start)))
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name
        if missing and importlib.util.find_spec(missing.partition(".")[0]) is None:
            return answer(skipped=f"{missing} is not installed")
        traceback.print_exc()
        return answer(failed=f"{type(error).__name__}: {error}".splitlines()[0])
    outputs = np.asarray(outputs).tolist()
    first = {
        "outputs": outputs,
        "memory": memory(),
        "memory before": memory_before,
        "first run": first_run,
    }
    answer(**first)
    for _ in sys.stdin:
        start = time.perf_counter()
        cpu_start = time.process_time()
        for _ in range(count):
            compute()
        seconds = time.perf_counter() - start
        cpu_seconds = time.process_time() - cpu_start
        answer(seconds=seconds / count, cores=cpu_seconds / seconds, memory=memory())


def memory():
    """The peak of this process or of one that it started, in MiB."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(kind).ru_maxrss for kind in kinds) / 1024


def steps_of_fit(model, batches, steps):
    """A function that trains a compiled Keras model for some steps, and returns their mean loss.

    It calls `fit`. With a GPU, only the first call does, which compiles; the others call the step
    that `fit` has compiled, with a batch that is on the device: they measure the step alone.

    Args:
        model: compiled `keras.Model`, such as a `zoo.training.trainer.Trainer`.
        batches: `tf.data.Dataset` that repeats one batch.
        steps: number of steps.
    """
    import tensorflow as tf

    from zoo.training import distribution
    from zoo.training.trainer import Trainer

    def fit():
        return model.fit(batches, steps_per_epoch=steps, verbose=0).history["loss"]

    if not GPU:
        return fit
    elements = batches
    if isinstance(model, Trainer):
        worker_batches = distribution.as_worker_batches(batches)
        elements = distribution.distribute(worker_batches, tf.distribute.get_strategy())
    with tf.device("GPU:0"):
        batch = tf.nest.map_structure(tf.identity, next(iter(elements)))

    def train():
        model.reset_metrics()
        for _ in range(steps):
            logs = model.train_function(iter([batch]))
        return [float(logs["loss"])]

    return first_then(fit, train)


def first_then(first, then):
    """A function that calls `first` once, and `then` in all later calls."""
    functions = itertools.chain([first], itertools.repeat(then))
    return lambda: next(functions)()


def on_device(array):
    """A TensorFlow tensor in the memory of the GPU; the array itself without a GPU."""
    if not GPU:
        return array
    import tensorflow as tf

    with tf.device("GPU:0"):
        return tf.identity(array)


def matrix_product(dtype, folder):
    import tensorflow as tf

    matrix = tf.cast(tf.random.normal((SIDE, SIDE)), dtype)
    return lambda: tf.cast(tf.matmul(matrix, matrix)[0, 0], tf.float32).numpy()


def copy(folder):
    if GPU:
        return copy_on_device()
    parts = [np.ones(COPIED // CORES, np.uint8) for _ in range(CORES)]
    copies = [part.copy() for part in parts]
    threads = ThreadPoolExecutor(CORES)
    return lambda: len(list(threads.map(np.copyto, copies, parts)))


def copy_on_device():
    import tensorflow as tf

    numbers = tf.random.normal([COPIED // 4])
    return lambda: tf.negative(numbers)[0].numpy()


SIDE = 8192 if GPU else 2048  # of the matrices
COPIED = 2**32 if GPU else 2**28  # bytes
FLOOR = {
    "matrix product, float32": (lambda **x: matrix_product("float32", **x), 2 * SIDE**3),
    "matrix product, bfloat16": (lambda **x: matrix_product("bfloat16", **x), 2 * SIDE**3),
    "copy": (copy, 2 * COPIED),  # bytes that are read and written
}
CONTENDERS = {name: function for name, (function, _) in FLOOR.items()}

if __name__ == "__main__":
    answer_turns(*sys.argv[1:])
