"""Strategies: which one is chosen, how batches are dealt out, and that all train to the same.

What trains runs in processes of its own, `replica_runs.py`, as devices cannot be changed later.
"""

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from zoo.errors import UserError
from zoo.training import distribution
from zoo.training.distribution.strategy import _slurm_config, enter_cluster

ROOT = pathlib.Path(__file__).parents[2]
FAST = ("translation", "masks")
SLOW = (
    *("vit_float16", "vit", "vit_muon", "vit_fewer_rows_than_replicas"),
    *("vit_dropout", "vit_dropout_again", "vit_bfloat16", "vit_compiled"),
)


# --- what is chosen ------------------------------------------------------------------------------


@pytest.fixture
def environment(monkeypatch):
    """Function that sets variables; no others speak of a cluster."""
    for name in [n for n in os.environ if n.startswith("SLURM_")] + ["TF_CONFIG"]:
        monkeypatch.delenv(name, raising=False)
    return lambda **variables: [monkeypatch.setenv(*pair) for pair in variables.items()]


def test_alone_it_is_the_default_strategy(environment):
    strategy = distribution.choose()
    assert strategy is tf.distribute.get_strategy() and strategy is distribution.choose("one")
    assert distribution.is_chief(strategy) and distribution.num_workers(strategy) == 1
    assert distribution.from_chief(strategy, 7) == 7
    batches = tf.data.Dataset.from_tensors((np.zeros((3, 2)), np.zeros(3), np.ones(3, "f4")))
    batches = distribution.as_worker_batches(batches)
    assert batches.num_batches == 1 and distribution.as_worker_batches(batches) is batches
    [(inputs, _, share)] = distribution.distribute(batches, strategy)
    assert inputs.shape == (3, 2)
    assert set(share.num_rows.numpy()) == {3} == set(share.total_weight.numpy())


def test_what_contradicts_itself_is_refused(environment):
    with pytest.raises(UserError, match="--strategy one uses one device. Received: --devices 2"):
        distribution.choose("one", 2)
    with pytest.raises(UserError, match="needs TF_CONFIG or SLURM to name the workers. Start the"):
        distribution.choose("multiworker")


CLUSTER = '{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}'


@pytest.mark.parametrize(
    "text, count",
    [
        (CLUSTER, 2),
        (CLUSTER.replace('"worker":', '"chief": ["c:1"], "worker":'), 3),
        (CLUSTER.replace('"a:1", "b:1"', '"a:1"').replace('1}', '0}'), 1),
        ("{}", 0),
        (" ", 0),
    ],
)  # fmt: skip
def test_workers_of_tf_config(environment, text, count):
    environment(TF_CONFIG=text)
    assert enter_cluster() == count


@pytest.mark.parametrize(
    "text, message",
    [
        ("nonsense", "must be JSON such as"),
        ("[]", "must be JSON such as"),
        ('{"cluster": {"worker": ["a:1", "b:1"]}}', "Error: KeyError.'task'"),
        (CLUSTER.replace("1}}", "2}}"), "Error: the task is not in the cluster"),
        (CLUSTER.replace("1}}", "-1}}"), "Error: the task is not in the cluster"),
        (CLUSTER.replace('"worker":', '"ps": ["c:1"], "worker":'), "and at most one chief"),
        (CLUSTER.replace('"worker":', '"chief": ["c", "d"], "worker":'), "and at most one chief"),
        (CLUSTER.replace('"type": "worker"', '"type": "chief"'), "Error: KeyError.'chief'"),
    ],
)
def test_a_tf_config_that_makes_no_sense(environment, text, message):
    environment(TF_CONFIG=text)
    with pytest.raises(UserError, match=message):
        enter_cluster()


SLURM = {
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "2",
    "SLURM_STEP_NODELIST": "n[2,10],m5",
    "SLURM_STEP_TASKS_PER_NODE": "2,1(x2)",
    "SLURM_JOB_ID": "123456",
}


def test_workers_of_a_slurm_step(environment):
    """In the order of SLURM's ranks, which is not that of the names."""
    environment(**SLURM)
    port = 12_000 + 123456 % 10_000
    assert _slurm_config() == {
        "cluster": {"worker": [f"n2:{port}", f"n2:{port + 1}", f"n10:{port}", f"m5:{port}"]},
        "task": {"type": "worker", "index": 2},
    }
    assert enter_cluster() == 4 and '"n10:' in os.environ["TF_CONFIG"]
    os.environ.pop("TF_CONFIG")


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"SLURM_STEP_NODELIST": None}, "SLURM_STEP_NODELIST is not set. Start .* with srun"),
        ({"SLURM_STEP_NODELIST": "n[2,10]"}, "do not match"),
        ({"SLURM_STEP_TASKS_PER_NODE": "many"}, "do not match"),
    ],
)
def test_a_slurm_job_that_is_no_step(environment, changes, message):
    environment(**{k: v for k, v in (SLURM | changes).items() if v is not None})
    with pytest.raises(UserError, match=message):
        enter_cluster()


def test_a_slurm_allocation_of_one_task_is_no_cluster(environment):
    environment(SLURM_NTASKS="1", SLURM_PROCID="0")
    assert enter_cluster() == 0
    environment(SLURM_NTASKS="4")  # a shell in an allocation has a number of tasks, and no rank
    os.environ.pop("SLURM_PROCID")
    assert enter_cluster() == 0


# --- what is trained -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(made_once):
    """Function (number of processes, devices of each, cases): what `replica_runs.py` writes."""

    def results(processes, devices, cases):
        name = "multiworker" if processes > 1 else "mirrored" if devices > 1 else "one"
        names = name
        if processes == 1 and devices <= 2:  # one process does both
            devices, names = 2, "mirrored,one"
        found = made_once(
            f"replicas_{processes}x{devices}_{'_'.join(cases)}",
            lambda folder: train(processes, devices, names, cases, folder.with_suffix(".npz")),
        )[0]
        return {k.partition("/")[2]: v for k, v in found.items() if k.split("/")[0] == name}

    return results


def train(processes, devices, names, cases, path):
    script = str(ROOT / "tests/training/replica_runs.py")
    command = [sys.executable, script, str(path), str(devices), names, *cases]
    if processes > 1:
        launch = [sys.executable, "-m", "zoo", "launch", "--workers", str(processes), "--"]
        command = [*launch, *command]
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    environment = {**os.environ, "PYTHONPATH": paths, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(np.load(path))


def comparable(results, case):
    """The values of a case, without what is no result.

    The bias of keys adds the same to all scores of a query, and softmax takes it out again: its
    gradient is 0 but for rounding, which Adam makes steps of.
    """
    values = {k.partition("/")[2]: v for k, v in results.items() if k.split("/")[0] == case}
    assert len(values) > 10
    for name in values:
        if name.endswith("qkv/bias"):
            query, _, value = np.split(values[name], 3)
            values[name] = np.concatenate([query, value])
        elif name.endswith("key_value/bias"):
            values[name] = np.split(values[name], 2)[1]
    return values


def assert_equal(expected, found, case, tolerance=1e-5):
    expected, found = comparable(expected, case), comparable(found, case)
    assert expected.keys() == found.keys()
    if tolerance > 1e-5:  # an image more or less may then be right
        expected = {name: expected[name] for name in expected if "accuracy" not in name}
    for name, value in expected.items():
        assert np.isfinite(value).all()
        # losses are sums of up to 80, of which float32 has seven digits
        np.testing.assert_allclose(found[name], value, rtol=1e-6, atol=tolerance, err_msg=name)


# Sizes of processes and devices, and cases. Float16 and bfloat16 round to three digits, and one
# replica adds up in 16 bits what several add up in 32.
TOLERANCES = {"vit_float16": 2e-3, "vit_bfloat16": 1e-2}


@pytest.mark.ci
def test_replicas_train_to_the_same(trained):
    """Losses and accuracies of training and validation, and weights after 20 steps.

    Batches of tokens do not divide evenly, and each replica computes its rows in two parts.
    """
    assert_equal(trained(1, 1, FAST), trained(1, 2, FAST), "translation")


@pytest.mark.slow
@pytest.mark.parametrize("processes, devices", [(1, 2), (1, 3), (2, 1), (3, 1), (2, 2)])
def test_replicas_train_to_the_same_in_all_cases(trained, processes, devices):
    """The batch of 31 images does not divide; gradients are clipped; the ViT's weights averaged.

    In float16 a gradient overflows in the last row of one step.
    """
    for cases in (FAST, SLOW):
        expected, found = trained(1, 1, cases), trained(processes, devices, cases)
        for case in cases:
            if "dropout" not in case and case != "masks":
                assert_equal(expected, found, case, TOLERANCES.get(case, 1e-5))
    assert found["vit_float16/iterations"] == expected["vit_float16/iterations"] == 19, "of 20"


@pytest.mark.ci
def test_replicas_drop_different_units(trained):
    one, two = (trained(1, devices, FAST)["masks/values"] for devices in (1, 2))
    np.testing.assert_array_equal(two[0], one[0])
    # 50 draws of 100 units: a share is 0.5, with a standard deviation of 0.007
    assert abs(two.mean(axis=(1, 2)) - 0.5).max() < 0.04
    assert abs((two[0] == two[1]).mean() - 0.5) < 0.04
    assert abs((two[:, 1:] == two[:, :-1]).mean() - 0.5) < 0.04


@pytest.mark.slow
@pytest.mark.parametrize("processes, devices", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_the_same_seed_gives_the_same_to_the_last_bit(trained, processes, devices):
    found = trained(processes, devices, SLOW)
    first, second = (comparable(found, name) for name in ("vit_dropout", "vit_dropout_again"))
    for name, value in first.items():
        np.testing.assert_array_equal(second[name], value, err_msg=name)


@pytest.mark.slow
def test_workers_drop_what_replicas_drop(trained):
    """Two workers are two devices, to the last bits, also where random numbers are drawn."""
    assert_equal(trained(1, 2, SLOW), trained(2, 1, SLOW), "vit_dropout")
    one, two = (trained(1, devices, SLOW)["vit_dropout/loss"] for devices in (1, 2))
    assert abs(one - two).max() > 1e-4, "other masks"
    assert abs(one.mean() - two.mean()) < 0.05, "but no other task"
