"""The commands of ``python -m zoo``: each is a function, its arguments are the flags.

tyro reads the flags from the signature and their help from the docstring. Imports are inside the
functions: TensorFlow takes seconds to import, and ``--help`` should not.
"""

from zoo.commands import inference, serving, training  # they add their commands to `app`
from zoo.commands.shared import app
