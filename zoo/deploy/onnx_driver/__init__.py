"""Programs that are copied to ONNX exports; they need only numpy and onnxruntime.

They must not import other modules of the zoo.
"""
