"""Programs that are copied to exports; they need only the packages that the export names.

They must not import other modules of the zoo.
"""

import pathlib
import shutil

_FOLDER = pathlib.Path(__file__).parent


def write_programs(folder, names, engine):
    """Copies programs to an export, and the module `engine` as engine.py."""
    for name in names:
        shutil.copy(_FOLDER / (engine if name == "engine.py" else name), folder / name)
