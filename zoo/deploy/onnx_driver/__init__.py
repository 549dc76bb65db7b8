"""Programs that are copied to ONNX exports; they need only numpy, onnxruntime and tokenizers.

They must not import other modules of the zoo.
"""
