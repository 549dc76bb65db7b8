"""`python -m zoo`: flags, help and errors; what the commands do is tested with their tasks."""

import subprocess
import sys
import types

import pytest

import zoo.launch
from tests.deploy.small_models import small_translator
from zoo.__main__ import main
from zoo.commands.shared import read_texts
from zoo.errors import UserError
from zoo.server.limits import Limits

HELP = """
import sys
from zoo.__main__ import main
from zoo.server.limits import Limits

for arguments in (["--help"], *([command, "--help"] for command in sys.argv[1:])):
    try:
        main(arguments)
    except SystemExit as end:
        assert not end.code
assert not {"tensorflow", "keras", "numpy"} & set(sys.modules)
sys.modules["tyro"] = None  # `import` raises ModuleNotFoundError
for name in [name for name in sys.modules if name.startswith("zoo.commands")]:
    del sys.modules[name]
sys.exit(main(["info", "run"]))
"""
COMMANDS = [
    "classify",
    "evaluate",
    "export",
    "generate",
    "info",
    "launch",
    "models",
    "serve",
    "translate",
]


def test_help_names_all_commands_and_imports_neither_tensorflow_nor_keras():
    """Without tyro, an error says what to install."""
    done = subprocess.run([sys.executable, "-c", HELP, *COMMANDS], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == ("error: The package tyro is not installed. Run `pip install tyro`.\n")
    overview, *pages = done.stdout.split("usage: python -m zoo ")[1:]
    assert all(f"• {command} " in overview for command in COMMANDS)
    for command, page in zip(COMMANDS, pages, strict=True):
        assert page.startswith(command) and "default: None" not in page


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "Missing subcommand"),
        (["classify"], "RUN"),
        (["classify", "run", "--top-k", "many"], "invalid literal for int"),
        (["translate", "run", "--too-long", "cut"], "invalid choice 'cut'"),
        (["info", "run", "--beam-size", "3"], "Unrecognized options"),
    ],
)
def test_wrong_arguments_end_with_status_2(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(arguments)
    assert message in capsys.readouterr().err


CLOSED = """
import sys
from zoo.startup import escape_what_cannot_be_printed

escape_what_cannot_be_printed()
sys.stdout.flush()
sys.stderr.flush()
next(sys.stdin.buffer, None)
with open(sys.argv[1]) as file:
    assert file.fileno() > 2
"""


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_streams_may_be_closed(closed):
    """A file that is opened later does not take the place of one."""
    command = [sys.executable, "-c", CLOSED, __file__]
    done = subprocess.run(["sh", "-c", f'"$@" {closed}', "sh", *command], stdin=subprocess.DEVNULL)
    assert done.returncode == 0


def test_a_file_in_the_place_of_a_text():
    with pytest.raises(UserError, match=r"test_commands.py is a file. For .* pass --file"):
        read_texts(["Good morning.", __file__], None)


def test_what_follows_two_dashes_is_launched(monkeypatch):
    monkeypatch.setattr(zoo.launch, "launch", lambda *given: [3, *given])
    given = ["python", "train.py", "--workers", "7", "--help", "--", "a b"]
    assert main(["launch", "--workers", "3", "--", *given]) == [3, tuple(given), 3]


def test_the_server_gets_the_flags_that_are_given(monkeypatch, capsys):
    server = types.SimpleNamespace(serve=lambda **given: given)
    monkeypatch.setitem(sys.modules, "zoo.server.serve", server)
    flags = ["--port", "0", "--allowed-host", "a", "--allowed-host", "b", "--access-log"]
    given = main(["serve", "one", "name=two", *flags, "--batch-wait-ms", "1.5"])
    expected = {
        "folders": ("one", "name=two"),
        "port": 0,
        "access_log": True,
        "allowed_hosts": ("a", "b"),
        "allowed_origins": (),
        "batch_wait_ms": 1.5,
    }
    assert given == {**given, **expected} and len(given) == 8 + len(vars(Limits()))
    assert main(["serve"]) == 2
    assert "error: Pass the folder of an export" in capsys.readouterr().err


def test_a_text_that_begins_with_a_hyphen_gets_a_hint(tmp_path, capsys):
    small_translator().save(tmp_path)
    with pytest.raises(SystemExit):
        main(["translate", str(tmp_path), "-x"])
    assert 'comes after --: RUN -- "-text"' in capsys.readouterr().err
    assert main(["translate", str(tmp_path), "--", "-x"]) == 0
