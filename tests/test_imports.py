"""The order of the rooms, from the bottom to the top, and one rule of style.

A module imports modules of its own room and of rooms below, also within functions; no two modules
import each other, not even by way of others.
"""

import ast
import functools
import graphlib
import itertools
import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
ROOMS = (
    "errors files startup hardware model_index compat dtypes kernels layers models decoding text "
    "data tasks checkpoints deploy engines loading training evaluation server launch commands "
    "__main__"
).split()
LAZY = {"zoo", "zoo.registration"}  # they name modules in strings, and import them on demand
SERVER = {"errors", "files", "server"}  # it serves any SavedModel
MATHEMATICS = {"layers", "models", "decoding"}  # plain `keras.ops`


def module_name(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted((ROOT / "zoo").rglob("*.py"))}
PROGRAMS = [*(ROOT / "recipes").glob("*.py"), *(ROOT / "benchmarks").glob("*.py")]
FILES = [*MODULES.values(), *sorted(PROGRAMS)]


@functools.cache
def tree(path):
    return ast.parse(path.read_text())


def imported(path):
    """The modules that a file imports, also within functions."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name for name in names if name != "zoo.__version__"]
            yield from (name if name in MODULES else node.module for name in names)


def room(module):
    return (module.split(".") + ["zoo"])[1]


def place(path):
    return str(path.relative_to(ROOT))


def test_every_room_has_its_place_in_the_order():
    assert {room(name) for name in set(MODULES) - LAZY} == set(ROOMS)


def test_the_table_of_the_docs_has_this_order():
    lines = (ROOT / "docs" / "architecture.md").read_text().splitlines()
    cells = [line.split("|")[1] for line in lines if line.startswith("| `")]
    names = [[name.removesuffix(".py") for name in re.findall("`(.*?)`", cell)] for cell in cells]
    assert {*itertools.chain(*names)} == {*ROOMS} - {"__main__"}
    places = [sorted(map(ROOMS.index, row)) for row in names]
    assert all(above[0] < below[-1] for above, below in itertools.pairwise(places))


def test_no_import_runs_up():
    wrong = []
    for name in set(MODULES) - LAZY:
        below = ROOMS[: ROOMS.index(room(name)) + 1]
        allowed = SERVER if room(name) == "server" else set(below)
        ours = (target for target in imported(MODULES[name]) if target.split(".")[0] == "zoo")
        wrong += [f"{name} imports {target}" for target in ours if room(target) not in allowed]
    assert not wrong, "\n".join(wrong)


def test_the_package_does_not_import_its_programs():
    programs = {path.stem for path in PROGRAMS} | {"recipes", "benchmarks", "tests"}
    for path in MODULES.values():
        assert not programs & {name.split(".")[0] for name in imported(path)}, place(path)


def test_no_module_imports_itself_by_way_of_others():
    files = {**MODULES, **{path.stem: path for path in PROGRAMS}}
    targets = {name: set(imported(path)) - {name} for name, path in files.items() if name != "zoo"}
    graphlib.TopologicalSorter(targets).prepare()  # raises a CycleError that names the circle


def test_the_mathematics_ask_no_backend():
    wrong = []
    for name in set(MODULES) - LAZY:
        if room(name) in MATHEMATICS:
            wrong += [f"{name} imports {target}" for target in backends(MODULES[name])]
            wrong += [f"{name}:{node.lineno} {node.attr}" for node in questions(MODULES[name])]
    assert not wrong, "\n".join(wrong)


def backends(path):
    return {name for name in imported(path) if name.split(".")[0] in ("tensorflow", "jax", "torch")}


def questions(path):
    """Calls of ``keras.backend.backend()`` or ``tf.executing_eagerly()``."""
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and (
            node.attr == "executing_eagerly"
            or (node.attr == "backend" and ast.unparse(node.value) == "keras.backend")
        ):
            yield node


def test_private_names_of_keras_and_tensorflow_are_in_compat():
    wrong = []
    for path in FILES:
        if path != ROOT / "zoo" / "compat.py":
            names = (n for n in imported(path) if n.startswith(("keras.src", "tensorflow.python")))
            wrong += [f"{place(path)} imports {name}" for name in names]
            wrong += [f"{place(path)}:{line} {name}" for line, name in foreign_names(path)]
    assert not wrong, "\n".join(wrong)


def foreign_names(path):
    """Attributes with a leading underscore that no file of ours defines, or another one."""
    ours = set().union(*map(own_names, FILES))
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            is_own = ast.unparse(node.value) in ("self", "cls", "super()")
            if node.attr not in (ours if is_own else own_names(path)):
                yield node.lineno, ast.unparse(node)


@functools.cache
def own_names(path):
    """Names that a file defines: functions, classes, variables, attributes, also by a string."""
    names = set()
    for node in ast.walk(tree(path)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            names |= {node.attr} if ast.unparse(node.value) == "self" else set()
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names.add(node.value)
    return names


def is_private(name):
    public = {"_replace", "_asdict", "_fields", "_make", "_exit", "_meta"}  # `os._exit` and others
    return name.startswith("_") and not name.startswith("__") and name not in public


def test_one_statement_is_one_thing():
    """No tuple of computed values is assigned to a tuple, to save a line."""
    wrong = []
    for path in FILES:
        for node in ast.walk(tree(path)):
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.targets[0], ast.Tuple)
                and isinstance(node.value, ast.Tuple)
                and any(isinstance(part, ast.Call) for part in ast.walk(node.value))
            ):
                wrong.append(f"{place(path)}:{node.lineno} {ast.unparse(node)}")
    assert not wrong, "\n".join(wrong)
