"""Settings of recipes: limits, help, what resuming allows, and what a command line says of them."""

import contextlib
import dataclasses
import math
import pathlib
import signal
from typing import Literal, get_args, get_origin

from zoo.training.recipe import parse, run_recipe

import pytest

from tests.test_recipes import recipe
from zoo.errors import UserError
from zoo.text import sentencepiece
from zoo.training import settings
from zoo.training.settings import COUNT, Settings

RECIPES = [path.stem for path in (pathlib.Path(__file__).parents[2] / "recipes").glob("*.py")]


@dataclasses.dataclass
class Some(Settings):
    clip_norm: float | None = 1.0
    ema_momentum: float = 0.5
    max_length: int = 9
    parts: int | None = None
    out: str | None = None

    LIMITS = Settings.LIMITS | {"max_length": (3, math.inf), "parts": COUNT}
    MAY_CHANGE = Settings.MAY_CHANGE | {"parts"}
    NO_EFFECT = frozenset({"out"})


@pytest.mark.parametrize(
    "values, message",
    [
        ({"clip_norm": None, "ema_momentum": 1.0}, None),
        ({"clip_norm": 1e9, "ema_momentum": 0, "parts": 1}, None),
        ({"clip_norm": -1.0}, "--clip-norm must be at least 0. Received: -1.0"),
        ({"clip_norm": math.nan}, "--clip-norm must be at least 0. Received: nan"),
        ({"ema_momentum": 1.1}, "--ema-momentum must be from 0 to 1. Received: 1.1"),
        ({"max_length": 2}, "--max-length must be at least 3"),  # of the recipe, before the shared
        ({"parts": 0}, "--parts must be at least 1"),
    ],
)
def test_limits(values, message):
    with pytest.raises(UserError, match=message) if message else contextlib.nullcontext():
        Some(**values)


@pytest.mark.parametrize("name, flag", [("vit_cifar10", "teacher"), ("vit_finetune", "weights")])
def test_a_model_that_a_run_reads_is_not_deleted(name, flag, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "model")
    config = recipe(name).Config(**{flag: str(tmp_path / "link")}, overwrite=True)
    with pytest.raises(UserError, match=f"delete .*model, which contains .*link of --{flag}. Ch"):
        config.check_not_read(tmp_path / "model")
    with pytest.raises(UserError, match="would delete"):  # the model is within the folder
        config.check_not_read(tmp_path)
    config.check_not_read(tmp_path / "other")
    published = recipe(name).Config(**{flag: "hf://owner/name"}, overwrite=True)
    published.check_not_read(pathlib.Path.cwd())


def test_a_flag_with_several_names_is_passed_once():
    def config_of(arguments):
        return parse(arguments.split(), recipe("translate").Config, {}, "")

    assert config_of("--tsv x --teacher a b").teacher == ("a", "b")
    assert config_of("--tsv x --epochs 1 --epochs 2").epochs == 2  # as of other programs
    numbers = "--patch-dropout 0.5 0.2 --patch-dropout 0".split()
    several = parse(numbers, recipe("vit_cifar10").Config, {}, "")
    assert several.patch_dropout == (0.0,)
    with pytest.raises(UserError, match="--reverse-teacher is given twice. Pass it once, with"):
        config_of("--tsv x --reverse-teacher a --reverse-teacher=b")


def test_links_that_a_run_reads_are_not_deleted(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path / "model")
    link = str(tmp_path / "run" / "link")
    for paths in ((link,), [link]):  # a list, as in a script
        config = recipe("translate").Config(tsv="x", teacher=paths)
        with pytest.raises(UserError, match="would delete .*run, which contains .*of --teacher"):
            config.check_not_read(tmp_path / "run")


def test_data_that_a_run_reads_are_not_deleted(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "pairs.tsv").write_text("a\tb\n")
    pairs = str(tmp_path / "run" / "pairs.tsv")
    config = recipe("translate").Config(tsv=pairs, out=str(tmp_path / "run"), overwrite=True)
    with pytest.raises(UserError, match="would delete .*run, which contains .*tsv of --tsv. Cho"):
        config.check_not_read(tmp_path / "run")
    config.check_not_read(tmp_path / "other")


def test_the_home_folder_in_paths(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    config = recipe("text_classifier").Config(tsv="~/texts.tsv", label_separator="~")
    assert config.tsv == "/home/someone/texts.tsv"
    assert config.label_separator == "~"


def test_the_kinds_of_tokenizers_are_those_that_can_be_trained():
    assert get_args(settings.TokenizerKind) == tuple(sentencepiece.KINDS)
    assert get_args(settings.Normalization) == sentencepiece.NORMALIZATIONS


def test_what_resuming_allows():
    """Those without an effect are not stored, so they are never compared."""
    assert list(Some().stored()) == ["clip_norm", "ema_momentum", "max_length", "parts"]
    assert {"parts", "patience"} == Some.MAY_CHANGE
    config = recipe("translate").Config(out="a")
    assert set(config.stored()) >= config.MAY_CHANGE >= {"tsv", "weights", "epochs", "patience"}
    assert not set(config.stored()) & {"out", "resume", "devices", "cache_dir", "checkpoint_steps"}


@pytest.mark.parametrize(
    "name, values, message",
    [
        ("vit_cifar10", {"validation_freq": 3}, "--validation-freq must divide --epochs. Rec.*100"),
        ("vit_cifar10", {"patch_dropout": (0.5, 1.0)}, "--patch-dropout must be .* less than 1"),
        ("vit_cifar10", {"patch_dropout": ()}, "--patch-dropout must be one or more numbers"),
        ("vit_cifar10", {"positions": "rotary"}, "--positions rotary needs --patch-dropout 0"),
        ("vit_cifar10", {"mixup_alpha": math.inf}, "--mixup-alpha must be from 0 to 1000. Rec"),
        ("vit_imagenet", {"eval_resize": 200}, "--eval-resize must be at least 224"),
        ("vit_imagenet", {"accumulation": 0}, "--accumulation must be auto or from 1 to 1024. Rec"),
        (
            "vit_imagenet",
            {"accumulation": 10**6},
            "--accumulation must be auto or from 1 to 1024. Rec",
        ),
        ("translate", {"accumulation": "none"}, "--accumulation must be auto or .*: 'none'"),
        ("vit_finetune", {"freeze": True, "lora_rank": 8}, "either --freeze or --lora-rank"),
        ("vit_finetune", {"freeze": True, "from_scratch": True}, "--from-scratch trains all"),
        ("vit_finetune", {"weight_decay": 0.1}, "--weight-decay needs --optimizer adamw"),
        ("vit_finetune", {"steps": 7}, "--eval-steps must divide --steps. Received: 100 and 7"),
        ("translate", {"test_source": "b", "target": "c"}, "--target, --test-source: --source"),
        ("translate", {"tsv": "a", "data_dir": "b"}, "--data-dir .* --dataset NAME"),
        ("translate", {"src_lang": "en"}, "--src-lang: languages are for --weights, --teacher"),
        ("vit_cifar10", {"teacher": ""}, "--teacher is empty. Pass a value"),
        ("translate", {"reverse_teacher": ("a", "")}, "--reverse-teacher is empty"),
        ("translate", {"monolingual": ""}, "--monolingual is empty"),
        ("translate", {"num_heads": 3}, "--num-heads must divide --embed-dim. Received: 3 and"),
        ("translate", {"teacher": "runs/a"}, "--teacher must be a list. Received: 'runs/a'"),
        ("translate", {"seed": 2**32}, "--seed must be from 0 to 4294967295"),
        ("text_classifier", {"tsv": "a", "data_dir": "b"}, "--data-dir .* --dataset NAME"),
        ("text_classifier", {"tokens_per_batch": 99}, "--tokens-per-batch must be at least 256"),
    ],
)
def test_a_recipe_checks_its_config(name, values, message):
    with pytest.raises(UserError, match=message):
        recipe(name).Config(**values)


@pytest.mark.parametrize("name", RECIPES)
def test_limits_and_what_may_change_are_of_settings(name):
    config = recipe(name).Config
    names = {field.name for field in dataclasses.fields(config)}
    assert names | Settings.LIMITS.keys() >= config.LIMITS.keys()
    assert names | Settings.MAY_CHANGE >= config.MAY_CHANGE | config.NO_EFFECT


@pytest.mark.parametrize("name", RECIPES)
def test_every_setting_has_a_help_text(name, capsys):
    config = recipe(name).Config
    with pytest.raises(SystemExit, match="0"):
        parse(["--help"], config, {}, "")
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for field in dataclasses.fields(config):
        flag = "--" + field.name.replace("_", "-")
        place = max(text.rfind(f" {flag} "), text.rfind(f" {flag}, "))
        described = text[place:].partition(" (default")[0]
        assert described.endswith("."), described


@pytest.mark.parametrize(
    "arguments, status, texts",
    [
        (["--data-set", "digits"], 2, ["--data-set"]),
        (["--epochs", "many"], 2, ["many"]),
        (["--dataset", "digits", "--epochs", "0"], 2, ["--epochs must be at least 1"]),
        (["--dataset", "digits", "--help"], 0, ["(default: 2)", "RandAugment", "Trains well."]),
    ],
)
def test_a_command_line(arguments, status, texts, monkeypatch, capsys):
    """Help teaches the defaults of the data set."""
    module = recipe("vit_cifar10")
    monkeypatch.setattr("sys.argv", ["vit_cifar10.py", *arguments])
    before = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit, match=str(status)):
            run_recipe(pytest.fail, module.Config, {"digits": module.DIGITS}, "Trains well.")
    finally:
        signal.signal(signal.SIGTERM, before)
    output = "".join(capsys.readouterr())
    assert all(text in output for text in texts), output


@pytest.mark.parametrize(
    "name, flags, message",
    [
        (
            "vit_cifar10",
            "--dataset digits --data-dir prepared",
            "--data-dir has no effect with --d",
        ),
        (
            "vit_cifar10",
            "--dataset cifar10 --data-dir {images}",
            "--dataset has no effect with --da",
        ),
        (
            "vit_cifar10",
            "--randaugment-num-ops 0 --randaugment-magnitude 0.9",
            "--randaugment-m.* no",
        ),
        (
            "vit_cifar10",
            "--mixup-alpha 0 --cutmix-alpha=0 --mix-probability 1",
            "--mix-probability h",
        ),
        (
            "vit_cifar10",
            "--mix-probability 0 --cutmix-alpha 1",
            "--cutmix-alpha has no effect with",
        ),
        (
            "vit_imagenet",
            "--randaugment-num-ops 0 --randaugment-probability 1",
            "--randaugment-pro",
        ),
        (
            "vit_imagenet",
            "--randaugment-num-ops 3 --randaugment-probability 0",
            "--randaugment-num",
        ),
        ("vit_imagenet", "--dataset imagenet2012 --data-dir {images}", "--dataset has no effect"),
        (
            "vit_finetune",
            "--randaugment_magnitude 0.9",
            "--randaugment-magnitude has no effect wit",
        ),
        ("vit_finetune", "--freeze --layer-decay 0.5", "--layer-decay has no effect with --freeze"),
        (
            "translate",
            "--beam-size 1 --length-penalty 1",
            "--length-penalty has no effect with --be",
        ),
        ("translate", "--teacher --keep-references", "--teacher needs one or more models"),
        ("causal_lm", "--dataset zoo --text a.txt", "--dataset has no effect with --text"),
    ],
)
def test_a_flag_without_an_effect_is_refused(name, flags, message, tmp_path):
    (tmp_path / "train" / "a").mkdir(parents=True)
    (tmp_path / "train" / "a" / "0.jpg").touch()
    with pytest.raises(UserError, match=message):
        parse(flags.format(images=tmp_path).split(), recipe(name).Config, {}, "")


@pytest.mark.parametrize("name", RECIPES)
def test_a_default_without_an_effect_is_not_refused(name):
    config = recipe(name).Config
    config().check_flags(set())
    for flag in ("randaugment_num_ops=0", "mix_probability=0", "freeze", "beam_size=1"):
        if hasattr(config, flag.partition("=")[0]):
            parse([f"--{flag}"], config, {}, "")


def test_all_that_is_switched_off_may_be_given():
    flags = "--randaugment-num-ops 0 --randaugment-magnitude 0 --mixup-alpha 0 --cutmix-alpha 0"
    parse([*flags.split(), "--mix-probability", "0"], recipe("vit_cifar10").Config, {}, "")


@pytest.mark.parametrize("name", RECIPES)
def test_choices_of_a_script_are_those_of_the_flags(name):
    """`Config(optimizer="lion")` would train with another optimizer, without a word."""
    config = recipe(name).Config
    for field in dataclasses.fields(config):
        kinds = (field.type, *get_args(field.type))
        if bool in kinds or any(get_origin(kind) is Literal for kind in kinds):
            with pytest.raises(
                UserError, match=f"{settings.flags(field.name)} must be (one of|auto or)"
            ):
                config(**{field.name: "no"})


def test_a_reader_that_stops_is_one_error(monkeypatch, capsys):
    """As `head`: what comes after it is printed nowhere, and the run can be resumed."""
    module = recipe("vit_cifar10")
    monkeypatch.setattr("sys.argv", ["vit_cifar10.py", "--dataset", "digits"])
    discarded = []
    monkeypatch.setattr("zoo.training.recipe.discard_output", lambda: discarded.append(True))
    before = signal.getsignal(signal.SIGTERM)

    def main(config):
        raise BrokenPipeError

    try:
        with pytest.raises(SystemExit, match="2"):
            run_recipe(main, module.Config, {}, "Trains well.")
    finally:
        signal.signal(signal.SIGTERM, before)
    assert discarded and capsys.readouterr().err.startswith("error: Standard output was closed.")


def test_a_flag_selects_the_defaults():
    module = recipe("translate")
    presets = {"phrasebook": module.PHRASEBOOK, "--weights": module.FINE_TUNING}
    flags = ["--dataset", "phrasebook", "--weights", "folder", "--epochs", "3"]
    config = parse(flags, module.Config, presets, "")
    assert (config.dataset, config.weights, config.epochs) == ("phrasebook", "folder", 3)
    assert config.embed_dim is None and config.warmup_steps == module.FINE_TUNING.warmup_steps
    assert parse(flags[:2], module.Config, presets, "") == module.PHRASEBOOK
    module = recipe("vit_finetune")
    config = parse(["--preset", "vtab"], module.Config, module.PRESETS, "", "preset")
    assert config == module.VTAB
