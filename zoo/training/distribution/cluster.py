"""Reads the workers of a multi-worker run from the environment."""

import json
import os

from zoo.errors import UserError

_HELP = (
    "Start the workers with `python -m zoo launch --workers 2 -- python recipes/...` or srun, or "
    "set TF_CONFIG; see docs/distribution.md."
)


def enter_cluster(strategy="auto"):
    """Finds the workers; sets TF_CONFIG, which TensorFlow reads, if SLURM started them.

    Args:
        strategy: the requested strategy: "multiworker" requires workers, "auto" uses them if there
            are any, and other strategies ignore the environment.

    Returns:
        The number of workers; 1 if the environment defines none.

    Raises:
        UserError: if the environment variables are invalid, or if `strategy` is "multiworker" and
            they define no workers.
    """
    if strategy not in ("auto", "multiworker"):
        return 1
    text = os.environ.get("TF_CONFIG", "").strip()
    if text not in ("", "{}"):
        return _check(text)
    if int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ:
        config = json.dumps(_slurm_config())
        count = _check(config)
        os.environ["TF_CONFIG"] = config
        return count
    if strategy == "multiworker":
        raise UserError(
            f"--strategy multiworker needs TF_CONFIG or SLURM to name the workers. {_HELP}"
        )
    return 1


def _check(text):
    """Validates TF_CONFIG and returns its number of workers."""
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        jobs = {name: len(addresses) for name, addresses in cluster.items() if addresses}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            'TF_CONFIG must be JSON such as {"cluster": {"worker": ["host1:12345", '
            f'"host2:12345"]}}, "task": {{"type": "worker", "index": 0}}}}. Error: {error!r}. '
            f"Received: {text}"
        ) from None
    if not set(jobs) <= {"chief", "worker"} or jobs.get("chief", 0) > 1:
        raise UserError(
            f"TF_CONFIG may contain workers and one chief, and no other jobs. Received: {text}"
        )
    if not 0 <= index < jobs.get(kind, 0):
        raise UserError(
            f"The task of TF_CONFIG, {kind} {index}, is not in its cluster. Received: {text}"
        )
    return sum(jobs.values())


def _slurm_config():
    """Builds TF_CONFIG from a SLURM step with SLURM's default (block) distribution of tasks.

    TensorFlow's `SlurmClusterResolver` sorts nodes by name, so that n10 comes before n2 and ranks
    are wrong, and does not work without GPUs.
    """
    from tensorflow.python.distribute.cluster_resolver import slurm_cluster_resolver as slurm

    names = ("SLURM_PROCID", "SLURM_STEP_NODELIST", "SLURM_STEP_TASKS_PER_NODE")
    missing = [name for name in names if name not in os.environ]
    if missing:
        raise UserError(
            f"This is a SLURM job of {os.environ['SLURM_NTASKS']} tasks, but {', '.join(missing)} "
            "is not set. Start the recipe with srun, or pass --strategy one or --strategy mirrored."
        )
    rank, nodes, tasks = (os.environ[name] for name in names)
    # Jobs that share a node must not share a port.
    port = 12_000 + int(os.environ.get("SLURM_JOB_ID", 0)) % 10_000
    try:
        hosts = zip(slurm.expand_hostlist(nodes), slurm.expand_tasks_per_node(tasks), strict=True)
        workers = [f"{host}:{port + local}" for host, count in hosts for local in range(count)]
    except ValueError as error:
        raise UserError(
            f"SLURM's nodes {nodes} and tasks per node {tasks} do not match: {error}."
        ) from None
    return {"cluster": {"worker": workers}, "task": {"type": "worker", "index": int(rank)}}
