"""Programs that are copied to exports; they need only the packages that the export names.

They must not import other modules of the zoo.
"""
