"""The commands of ``python -m zoo``: a file for each, with a function of the same name.

tyro makes a function's arguments the flags and its docstring their help. Functions import what they
need themselves: TensorFlow takes seconds to import, and ``--help`` should not.
"""
