"""Advice, for error messages, about weights of other programs that cannot be loaded."""

import re

_ADVICE = {  # pattern of names of files or tensors: what they are, and what to do
    r"lora_\w+\.|^adapter_": "an adapter of PEFT: save model.merge_and_unload()",
    r"\bmake_embedding\b": "from OpenNMT-py: train a new model with recipes/translate.py",
    r"^\w+/encoder\.embed_tokens\.": "from fairseq: convert it with a script of transformers 4",
    r"\bencoder_layer_\d+\.": "from torchvision: load timm's model, hf://timm/NAME",
    r"\bvisual\.\w+\.": "from OpenCLIP: load its image encoder in timm, hf://timm/NAME",
    r"\b(\w+_embeddings|self_attn|wte)\.": "from transformers: pass the folder with config.json",
    r"-of-\d+\.(safetensors|bin)$": "one of several files: pass the folder, with its index",
    r"^(pytorch_)?model\.\w+\.(safetensors|bin)$": "a variant: rename it to model.safetensors",
    r"^tf_model\.h5$|^flax_model\.": "from TensorFlow or Flax: convert it with transformers 4",
    r"\.(h5|keras)$": "from Keras: pass the folder of a run, or of a preset of KerasHub",
    r"\.ckpt\.(index|meta|data-.*)$": "from TensorFlow: convert it with a script of transformers 4",
    r"^(_CHECKPOINT)?_METADATA$": "from Orbax: restore it and save it with numpy.savez",
    r"\.distcp$": "from torch.distributed: convert it with its format_utils, dcp_to_torch",
    r"^global_step\d+$": "from DeepSpeed: run python zero_to_fp32.py . pytorch_model.bin",
    r"^export\.json$": "part of an export by zoo.export: load the run, or run python -m zoo serve",
    r"^params\.(best|\d+)$": "from Sockeye: train a new model with recipes/translate.py",
    r"\.(onnx|gguf|tflite|pt2|ot|xml|msgpack)$": "an export: load the model that was exported",
    r"\.(part|incomplete|crdownload)$": "not downloaded completely: download it again",
    r"\.(zip|t?gz|tar|7z|rar|xz)$": "an archive: unpack it",
}
_STARTS = {  # first bytes of files that are not what their name says
    b"version https://git-lfs": "it is a pointer of Git LFS: run `git lfs pull`",
    b"<": "it is a web page: download the file itself",
}


def advice(names):
    """Returns a sentence about the names of files in a folder or of tensors in a file, or ""."""
    for pattern, text in _ADVICE.items():
        for name in names:
            if re.search(pattern, name):
                return f" {name} is {text}."
    return ""


def disguised(path):
    """Returns what a file is whose content does not match its name, or ""."""
    with open(path, "rb") as file:
        head = file.read(300)
    if head[257:262] == b"ustar":
        return "it is an archive: unpack it"
    for start, text in _STARTS.items():
        if head.startswith(start):
            return text
    return ""
