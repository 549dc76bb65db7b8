"""Tests `python -m zoo serve` for minutes under load, with hostile clients among the others.

    python -m zoo export runs/vit_digits serving/digits/1
    python -m zoo export runs/translate_phrasebook serving/en_es/1
    python benchmarks/serving_soak.py serving/digits serving/en_es --minutes 10

Starts a server. Nine of ten clients send good requests, one after the other, and compare each
answer with that of the SavedModel, computed beforehand in another process. After a warm-up and a
phase without hostile clients, the tenth client sends hostile requests for `--minutes`, drawn at
random; then the rate is measured again. Every half second a further process asks for /healthz and
/readyz, over new connections, and reads the memory of the server (RSS).

A good request is lost if it gets no response or another status than 200. The clients run on the
same machine and use a good part of its CPU time. Prints Markdown and JSON; the exit status is 1 if
one of the criteria failed.
"""

import argparse
import asyncio
import collections
import contextlib
import http.client
import json
import math
import multiprocessing
import pathlib
import signal
import statistics
import sys
import time

import numpy as np
import psutil
import tqdm
from serving import known_answers, percentile, start_server
from soak_clients import Good, Hostile

SETTLE = 10.0  # seconds within which the rate must be back
FLAT = 1.2  # ratio of the largest and the smallest memory
SHARE = 0.8  # of the rate before
HEALTH = 1.0  # seconds
PAUSE = 0.5  # seconds between two looks at the server


def parse():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="exports to serve")
    parser.add_argument("--clients", type=int, default=64, help="of which a tenth is hostile (64)")
    parser.add_argument("--minutes", type=float, default=10.0, help="with hostile clients (10)")
    parser.add_argument(
        "--quiet-seconds",
        type=float,
        default=60.0,
        help="of warm-up, and of measurements before and after (60 each)",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the hostile requests (0)")
    parser.add_argument("--json", type=pathlib.Path, help="file for the measurements")
    parser.add_argument("--image", type=pathlib.Path, help="file for a plot of memory and rate")
    return parser.parse_args()


def watch(url, pid, end):
    """Looks at the server until `end`: [(time, seconds of the slower health answer, RSS in MB)].

    The seconds are infinite if /healthz or /readyz do not answer 200.
    """
    process = psutil.Process(pid)
    looks = []
    now = time.monotonic()
    with contextlib.suppress(psutil.NoSuchProcess):
        while now < end:
            seconds = max(health(url, path) for path in ("/healthz", "/readyz"))
            looks.append((now, seconds, process.memory_info().rss / 1e6))
            time.sleep(max(0.0, now + PAUSE - time.monotonic()))
            now = time.monotonic()
    return looks


def health(url, path):
    started = time.monotonic()
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    with contextlib.closing(connection), contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("GET", path)
        if connection.getresponse().status == 200:
            return time.monotonic() - started
    return math.inf


async def clients(args, good, hostile, times):
    """Runs all clients; `times` are the ends of warm-up, quiet phase, hostile phase and the end."""
    _, begin, stop, end = times
    number = max(1, args.clients // 10)
    work = [asyncio.create_task(progress(good, end))]
    for index in range(args.clients - number):
        work.append(asyncio.create_task(good.client(index, end)))
    await asyncio.sleep(begin - time.monotonic())
    attacks = [asyncio.create_task(hostile.client()) for _ in range(number)]
    done, _ = await asyncio.wait(
        attacks, timeout=stop - time.monotonic(), return_when=asyncio.FIRST_EXCEPTION
    )
    for attack in done:
        attack.result()  # raises the error that ended it
    for attack in attacks:
        attack.cancel()
    await asyncio.gather(*work)


async def progress(good, end):
    start = time.monotonic()
    bar_format = "{l_bar}{bar}| {n:.0f}/{total:.0f} s{postfix}"
    with tqdm.tqdm(total=end - start, bar_format=bar_format) as bar:
        while time.monotonic() < end:
            await asyncio.sleep(1)
            counts = collections.Counter(result for *_, result in good.results)
            bar.set_postfix(counts, refresh=False)
            bar.update(min(time.monotonic(), end) - start - bar.n)


def measured(good, samples, start, end):
    """The figures of the time from `start` to `end`."""
    results = [one for one in good.results if start <= one[0] < end]
    counts = collections.Counter(result for *_, result in results)
    ms = [1000 * seconds for _, seconds, result in results if result != "lost"] or [math.nan]
    looks = [one for one in samples if start <= one[0] < end] or [(start, math.inf, math.nan)]
    return {
        "seconds": end - start,
        "requests": len(results),
        "answered per second": (counts["right"] + counts["wrong"]) / (end - start),
        "wrong": counts["wrong"],
        "lost": counts["lost"],
        "latency p50, ms": statistics.median(ms),
        "latency p99, ms": percentile(ms, 0.99),
        "slowest health answer, ms": 1000 * max(look[1] for look in looks),
        "highest memory, MB": max(look[2] for look in looks),
    }


def judged(phases, samples, hostile, flat_from):
    """[(criterion, whether it held, figures)]."""
    wrong = sum(phase["wrong"] for phase in phases.values())
    lost = sum(phase["lost"] for phase in phases.values())
    slowest = max(seconds for _, seconds, _ in samples)
    memory = [rss for moment, _, rss in samples if moment >= flat_from]
    lowest = min(memory)
    highest = max(memory)
    before = phases["before"]["answered per second"]
    after = phases["after"]["answered per second"]
    failures = sum(counts["500"] for counts in hostile.results.values())
    return [
        ("No answer is wrong.", wrong == 0, f"{wrong} wrong"),
        ("No good request is lost.", lost == 0, f"{lost} lost"),
        (
            f"/healthz and /readyz answer within {HEALTH:g} s.",
            slowest <= HEALTH,
            f"slowest: {slowest:.2f} s",
        ),
        (
            f"Memory is flat within {FLAT - 1:.0%} after a minute of hostile requests.",
            highest <= FLAT * lowest,
            f"{lowest:.0f} to {highest:.0f} MB",
        ),
        (
            f"{SETTLE:g} s after the last hostile request, the rate is at least {SHARE:.0%} "
            "of that before.",
            after >= SHARE * before,
            f"{after:.1f} and {before:.1f} requests/s",
        ),
        ("No hostile request gets status 500.", failures == 0, f"{failures} requests"),
    ]


def markdown(phases, memory, hostile, criteria):
    """The report."""
    names = list(phases)
    lines = [f"| good requests | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for figure in phases[names[0]]:
        cells = [phases[name][figure] for name in names]
        cells = [f"{cell:,.1f}" if "per second" in figure else f"{cell:,.0f}" for cell in cells]
        lines.append(f"| {figure} | {' | '.join(cells)} |")
    lines += ["", f"| {' | '.join(f'memory {name}, MB' for name in memory)} |"]
    lines += ["|---" * len(memory) + "|", f"| {' | '.join(f'{x:,.0f}' for x in memory.values())} |"]
    lines += ["", "| hostile requests | sent | what they got |", "|---|---|---|"]
    for kind, counts in hostile.results.items():
        got = "; ".join(f"{what}: {count}" for what, count in counts.most_common())
        lines.append(f"| {kind} | {counts.total()} | {got} |")
    lines += ["", "| criterion | | |", "|---|---|---|"]
    for criterion, held, figures in criteria:
        lines.append(f"| {criterion} | {'held' if held else '**failed**'} | {figures} |")
    return "\n".join(lines)


def plot(path, good, samples, times):
    from matplotlib.figure import Figure

    start, *_ = samples[0]
    width = 5.0  # seconds
    figure = Figure((8, 5), layout="constrained")
    rate, memory = figure.subplots(2, sharex=True)
    edges = np.arange(start, times[-1] + width, width)
    counts, _ = np.histogram([moment for moment, _, how in good.results if how == "right"], edges)
    rate.plot((edges[:-1] + width / 2 - start) / 60, counts / width)
    rate.set(ylabel="right answers / s", ylim=(0, None))
    memory.plot([(moment - start) / 60 for moment, *_ in samples], [rss for *_, rss in samples])
    memory.set(xlabel="minutes", ylabel="memory of the server, MB", ylim=(0, None))
    for axes in (rate, memory):
        axes.axvspan((times[1] - start) / 60, (times[2] - start) / 60, alpha=0.15, color="red")
    rate.set_title("with hostile clients in the shaded time", fontsize=10)
    figure.savefig(path, dpi=120)


def main():
    args = parse()
    args.folders = [str(pathlib.Path(folder).resolve()) for folder in args.folders]
    # TensorFlow is kept out of this process.
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(1) as other:
        answers = other.apply(known_answers, (args.folders,))
    server, url = start_server(["-m", "zoo", "serve", *args.folders, "--port", "0"])
    good = Good(url, answers)
    hostile = Hostile(url, answers, args.seed)
    settle = min(SETTLE, args.quiet_seconds)
    quiet = args.quiet_seconds
    durations = [quiet, quiet, 60 * args.minutes, settle + quiet]
    start = time.monotonic()
    times = [float(start + past) for past in np.cumsum(durations)]
    try:
        with spawn.Pool(1) as other:
            watching = other.apply_async(watch, (url, server.pid, times[-1]))
            asyncio.run(clients(args, good, hostile, times))
            samples = watching.get()
    finally:
        server.send_signal(signal.SIGTERM)
        status = server.wait(60)
    return report(args, good, hostile, samples, times, settle, status)


def report(args, good, hostile, samples, times, settle, status):
    """Prints the figures and writes the files; returns the exit status of this program."""
    warm, begin, stop, end = times
    phases = {
        "before": measured(good, samples, warm, begin),
        "with hostile clients": measured(good, samples, begin, stop),
        f"the {settle:g} s after": measured(good, samples, stop, stop + settle),
        "after": measured(good, samples, stop + settle, end),
    }
    memory = {
        "at the start": samples[0][2],
        "after the warm-up": next(rss for moment, _, rss in samples if moment >= warm),
        "at its peak": max(rss for *_, rss in samples),
        "at the end": samples[-1][2],
    }
    criteria = judged(phases, samples, hostile, begin + min(60.0, 30 * args.minutes))
    criteria.append(("The server ends after SIGTERM.", status == 0, f"exit status {status}"))
    print(markdown(phases, memory, hostile, criteria))
    for reason, count in collections.Counter(good.reasons).most_common(10):
        print(f"    {count} times: {reason}", file=sys.stderr)
    held = {criterion: held for criterion, held, _ in criteria}
    figures = {"phases": phases, "memory": memory, "hostile": hostile.results, "criteria": held}
    print(json.dumps(figures))
    if args.json:
        args.json.write_text(json.dumps({**figures, "samples": samples, "results": good.results}))
    if args.image:
        plot(args.image, good, samples, times)
    return int(not all(held.values()))


if __name__ == "__main__":
    sys.exit(main())
