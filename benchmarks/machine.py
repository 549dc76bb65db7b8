"""The machine that a benchmark runs on, and the versions of what it compares."""

import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys
import time

FOLDER = pathlib.Path(__file__).parent
CORES = len(os.sched_getaffinity(0))


def gpu():
    """The name of the first GPU of NVIDIA, or ""."""
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        names = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
    return names.partition("\n")[0]


GPU = gpu()


def head():
    """Machine, load, versions and commit."""
    names = re.findall(r"^[\w-]+", (FOLDER / "requirements.txt").read_text(), re.MULTILINE)
    cpu = re.search(r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text())
    commit = subprocess.run(
        ["git", "describe", "--always", "--dirty"], cwd=FOLDER, capture_output=True, text=True
    )
    return {
        "command": " ".join(["python", *sys.argv]),
        "machine": f"{cpu[1] if cpu else platform.processor()}, {platform.platform()}",
        "GPU": GPU or "none",
        "cores": CORES,
        "load before": load(),
        "commit": commit.stdout.strip(),
        "time": time.strftime("%Y-%m-%d %H:%M %z"),
        "versions": ", ".join(f"{name} {version(name)}" for name in names),
    }


def load():
    """Average number of processes that ran or waited for a core in the last minute."""
    return round(os.getloadavg()[0], 2)


def version(name):
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(missing)"
