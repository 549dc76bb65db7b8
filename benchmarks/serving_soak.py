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
import base64
import collections
import contextlib
import http.client
import io
import json
import math
import multiprocessing
import pathlib
import random
import signal
import statistics
import sys
import time
import zlib

import httpx
import numpy as np
import psutil
import tqdm
from PIL import Image
from serving import agrees, known_answers, percentile, start_server

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


# --- good clients --------------------------------------------------------------------------------


class Good:
    """Clients whose every answer is known.

    Attributes:
        results: [(time of the answer, seconds it took, "right", "wrong" or "lost")].
        reasons: what the wrong and lost requests got instead.
    """

    def __init__(self, url, answers):
        self._url = url
        self._answers = collections.defaultdict(list)
        for name, instance, prediction in answers:
            self._answers[name].append((instance, prediction))
        self.results, self.reasons = [], []

    async def client(self, seed, end):
        """Sends requests of one to three instances until `end`."""
        choice = random.Random(seed)
        async with httpx.AsyncClient(timeout=120) as client:
            while time.monotonic() < end:
                name = choice.choice(sorted(self._answers))
                asked = choice.choices(self._answers[name], k=choice.randint(1, 3))
                started = time.monotonic()
                result = await self._ask(client, name, asked)
                now = time.monotonic()
                self.results.append((now, now - started, result))
                if result == "lost":
                    await asyncio.sleep(0.1)

    async def _ask(self, client, name, asked):
        body = json.dumps({"instances": [instance for instance, _ in asked]})
        try:
            answer = await client.post(f"{self._url}/v1/models/{name}:predict", content=body)
        except httpx.HTTPError as error:
            self.reasons.append(repr(error))
            return "lost"
        if answer.status_code == 200 and agrees(
            answer.json()["predictions"], [prediction for _, prediction in asked]
        ):
            return "right"
        self.reasons.append(f"{answer.status_code}: {answer.text[:200]}")
        return "wrong" if answer.status_code == 200 else "lost"


# --- hostile clients -----------------------------------------------------------------------------


class Hostile:
    """Clients that try to make the server fail, or to keep it busy.

    Attributes:
        results: {kind of request: counts of what it got: a status or what happened instead}.
    """

    def __init__(self, url, answers, seed):
        self._url = httpx.URL(url)
        self._choice = random.Random(seed)
        self._instances = collections.defaultdict(list)
        for name, instance, _ in answers:
            self._instances[name].append(json.dumps(instance))
        self._bodies = bodies()
        self._kinds = {
            **dict.fromkeys(self._bodies, self._post),
            "1,025 rows": self._too_many_rows,
            "1,024 rows": self._many_rows,
            "1,024 rows, and leaves": self._leaves,
            "1,024 rows, read slowly": self._reads_slowly,
            "200 pipelined requests, read slowly": self._reads_pages_slowly,
            "name with a lone surrogate": self._odd_name,
            "foreign host": self._foreign_host,
            "foreign origin": self._foreign_origin,
            "50 half-sent headers": self._half_sent_headers,
            "half-sent body": self._half_sent_body,
            "body in single bytes": self._slow_body,
            "noise": self._noise,
        }
        self.results = {kind: collections.Counter() for kind in self._kinds}
        self._next = self._shuffled()

    def _shuffled(self):
        """Yields all kinds in a random order, then in another, and so on."""
        while True:
            yield from self._choice.sample(list(self._kinds), len(self._kinds))

    async def client(self):
        """Sends requests until it is cancelled."""
        async with httpx.AsyncClient(timeout=120) as client:
            while True:
                kind, name = next(self._next), self._choice.choice(sorted(self._instances))
                try:
                    got = await self._kinds[kind](client, name, kind)
                except asyncio.CancelledError:
                    self.results[kind]["not finished"] += 1
                    raise
                except (httpx.HTTPError, OSError, asyncio.IncompleteReadError) as error:
                    got = type(error).__name__
                self.results[kind][str(got)] += 1

    async def _post(self, client, name, kind):
        body, headers = self._bodies[kind]
        return await self._posted(client, name, body, headers)

    async def _posted(self, client, name, body, headers=None):
        url = self._url.join(f"/v1/models/{name}:predict")
        return (await client.post(url, content=body, headers=headers)).status_code

    def _rows(self, name, count, **settings):
        """A request of as many of the longest instance that fits into a body."""
        fits = [one for one in self._instances[name] if len(one) * count < 2**24]
        start = json.dumps({**settings, "instances": []})[:-2]
        longest = max(fits, key=len)
        return f"{start}{', '.join([longest] * count)}]}}".encode()

    async def _too_many_rows(self, client, name, kind):
        return await self._posted(client, name, self._rows(name, 1025))

    async def _many_rows(self, client, name, kind):
        return await self._posted(client, name, self._rows(name, 1024))

    async def _leaves(self, client, name, kind):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._choice.uniform(0.05, 2.0)):
                return await self._posted(client, name, self._rows(name, 1024))
        return "left"

    async def _odd_name(self, client, name, kind):
        return await self._posted(client, "%ED%A0%80", self._rows(name, 1))

    async def _foreign_host(self, client, name, kind):
        return await self._posted(client, name, self._rows(name, 1), {"host": "evil.example"})

    async def _foreign_origin(self, client, name, kind):
        headers = {"origin": "https://evil.example"}
        return await self._posted(client, name, self._rows(name, 1), headers)

    # --- connections of their own -----------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _connection(self):
        reader, writer = await asyncio.open_connection(self._url.host, self._url.port, limit=2**12)
        try:
            yield reader, writer
        finally:
            writer.transport.abort()

    def _head(self, name, body=b""):
        return (
            f"POST /v1/models/{name}:predict HTTP/1.1\r\nHost: localhost\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode()

    async def _answer(self, *parts, pause=0.0):
        """Sends parts with pauses; returns the status of the answer, "closed" if none comes."""
        async with self._connection() as (reader, writer):
            for part in parts:
                writer.write(part)
                await writer.drain()
                await asyncio.sleep(pause)
            line = await reader.readline()
            return line.split()[1].decode() if line else "closed"

    async def _half_sent_headers(self, client, name, kind):
        head = self._head(name)[: self._choice.randint(0, 40)]
        got = await asyncio.gather(*(self._answer(head) for _ in range(50)), return_exceptions=True)
        return ", ".join(sorted({str(one) for one in got}))

    async def _half_sent_body(self, client, name, kind):
        body = self._rows(name, 100)
        return await self._answer(self._head(name, body) + body[: len(body) // 2])

    async def _slow_body(self, client, name, kind):
        body = self._rows(name, 1)[:100]  # cut off, so that it gets 400
        parts = [body[index : index + 1] for index in range(len(body))]
        return await self._answer(self._head(name, body), *parts, pause=0.2)

    async def _noise(self, client, name, kind):
        noise = self._choice.randbytes(self._choice.randint(20, 200_000))
        return await self._answer(noise + b"\r\n\r\n")

    async def _reads_slowly(self, client, name, kind):
        # the signatures of exports with the largest outputs
        is_image = self._instances[name][0].startswith("{")
        signature = "attention" if is_image else "encode"
        body = self._rows(name, 1024, signature_name=signature)
        return await self._read_slowly(self._head(name, body) + body)

    async def _reads_pages_slowly(self, client, name, kind):
        return await self._read_slowly(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200)

    async def _read_slowly(self, request):
        async with self._connection() as (reader, writer):
            writer.write(request)
            await writer.drain()
            start = await reader.read(12)
            for _ in range(100):
                if not await reader.read(2**10):
                    break
                await asyncio.sleep(0.2)
            return start[9:].decode() or "closed"


def bodies():
    """{kind of hostile request: (its body, its headers)}."""
    wide, empty = Image.new("L", (7000, 7000)), {}
    jpeg = encoded(wide, "JPEG", progressive=True)
    scan = jpeg[jpeg.rindex(b"\xff\xda") : -2]
    frames = [Image.new("L", (64, 64), shade) for shade in (0, 255)] * 2500
    gif = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:], loop=0)
    png = encoded(Image.new("L", (8, 8)), "PNG")
    claim = png[:16] + (50_000).to_bytes(4, "big") * 2 + png[24:]
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(256)) + packer.flush()
    gzipped = {"content-encoding": "gzip"}
    return {
        "JPEG of 1,000 scans": (images(jpeg[:-2] + 1000 * scan + b"\xff\xd9"), empty),
        "JPEG of 90 scans": (images(jpeg[:-2] + 80 * scan + b"\xff\xd9" + bytes(10**5)), empty),
        "GIF of 5,000 frames": (images(gif), empty),
        "PNG of 49 million pixels": (images(encoded(wide, "PNG")), empty),
        "PNG that claims 2,500 million": (images(claim), empty),
        "gzip of 256 MiB": (bomb, gzipped),
        "no gzip": (b"{}", gzipped),
        "8 million lists": (b'{"instances": [' + b"[]," * 8_000_000 + b"[]]}", empty),
        "2 million lists": (b'{"instances": [' + b"[]," * 2_000_000 + b"[]]}", empty),
        "100,000 lists in each other": (b'{"instances": ' + b"[" * 100_000, empty),
        "40 MB": (bytes(40_000_000), empty),
        "malformed b64": (b'{"instances": [{"b64": "?"}]}', empty),
        "20 MB of malformed b64": (
            b'{"instances": [{"b64": "' + b"A" * 20_000_000 + b'?"}]}',
            empty,
        ),
        "text with a lone surrogate": (b'{"instances": ["\\ud800"]}', empty),
        "signature with a lone surrogate": (
            b'{"signature_name": "\\ud800", "instances": ["a"]}',
            empty,
        ),
    }


def images(*files):
    coded = [{"b64": base64.b64encode(file).decode()} for file in files]
    return json.dumps({"instances": coded}).encode()


def encoded(image, kind, **options):
    file = io.BytesIO()
    image.save(file, kind, **options)
    return file.getvalue()


# --- measurements --------------------------------------------------------------------------------


def watch(url, pid, end):
    """Looks at the server until `end`: [(time, seconds of the slower health answer, RSS in MB)].

    The seconds are infinite if /healthz or /readyz do not answer 200.
    """
    process, found = psutil.Process(pid), []
    with contextlib.suppress(psutil.NoSuchProcess):
        while (now := time.monotonic()) < end:
            seconds = max(health(url, path) for path in ("/healthz", "/readyz"))
            found.append((now, seconds, process.memory_info().rss / 1e6))
            time.sleep(max(0.0, now + PAUSE - time.monotonic()))
    return found


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
    wrong, lost = (sum(phase[name] for phase in phases.values()) for name in ("wrong", "lost"))
    slowest = max(seconds for _, seconds, _ in samples)
    memory = [rss for moment, _, rss in samples if moment >= flat_from]
    low, high = min(memory), max(memory)
    before, after = (phases[name]["answered per second"] for name in ("before", "after"))
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
            high <= FLAT * low,
            f"{low:.0f} to {high:.0f} MB",
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

    start, width = samples[0][0], 5.0
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
    good, hostile = Good(url, answers), Hostile(url, answers, args.seed)
    settle = min(SETTLE, args.quiet_seconds)
    durations = [args.quiet_seconds] * 2 + [60 * args.minutes, settle + args.quiet_seconds]
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
    found = {
        "phases": phases,
        "memory": memory,
        "hostile": hostile.results,
        "criteria": {criterion: held for criterion, held, _ in criteria},
    }
    print(json.dumps(found))
    if args.json:
        args.json.write_text(json.dumps({**found, "samples": samples, "results": good.results}))
    if args.image:
        plot(args.image, good, samples, times)
    return int(not all(held for _, held, _ in criteria))


if __name__ == "__main__":
    sys.exit(main())
