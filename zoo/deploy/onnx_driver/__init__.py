"""Programs that are copied beside exported models: they run where only numpy and onnxruntime are.

Nothing in here imports anything else of the zoo.
"""
