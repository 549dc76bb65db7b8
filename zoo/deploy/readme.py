"""README.md of an export: its files, signatures and usage."""

import json


def readme(description, folder):
    """Returns the text of README.md.

    Args:
        description: content of export.json.
        folder: final path of the export.
    """
    parts = [_head(description), _USAGE[description["format"]](description, folder)]
    parts += [_signatures(description), _details(description)]
    return "\n\n".join(parts) + "\n"


def _head(description):
    kind, format = description["kind"], _NAMES[description["format"]]
    does = {
        "classifier": "It classifies images.",
        "text_classifier": "It classifies texts.",
        "translator": "It translates texts.",
        "generator": "It continues texts.",
    }
    quantized = " Its weight matrices are quantized to 8 bits." if description["int8"] else ""
    lines = [f"- `{name}`: {what}" for name, what in description["files"].items()]
    return (
        f"# A {kind.replace('_', ' ')}, as {format}\n\n{does[kind]}{quantized} It needs only "
        f"{' and '.join(description['needs'])}.\n\n"
        + "\n".join([*lines, "- `export.json`: the information in this file as JSON"])
    )


def _saved_model_usage(description, folder):
    kind, name = description["kind"], folder.parent.name or "model"
    version, base = "1", name
    place = f"TensorFlow Serving requires a version number: move this folder to `{name}/1`."
    if folder.name.isdigit():
        version, base = folder.name, folder.parent
        place = f"`{folder}` is version {version} of the model `{name}`: serve its parent folder."
    server, search = f"--model_name={name} --model_base_path={base}", ""
    if kind in ("translator", "generator"):
        server += " \\\n    --xla_cpu_compilation_enabled=true"
        search = _SEARCH
    python, notes = _PYTHON[kind], _NOTES[kind]
    run, request = _requests(
        kind, f"http://localhost:8501/v1/models/{name}/versions/{version}:predict"
    )
    return f"""## Python

```python
import tensorflow as tf

model = tf.saved_model.load(".")  # keep a reference: its functions need it
{python}```

## saved_model_cli

```bash
saved_model_cli show --dir . --all
{run}
```

## REST

{place}

```bash
tensorflow_model_server --rest_api_port=8501 {server}
{request}
```

{search}`python -m zoo serve` answers the same requests without TensorFlow Serving.

{notes}"""


_SEARCH = """\
The search is compiled by XLA for each padded length and batch size at its first request, which
takes seconds. On a server without XLA, such as TensorFlow Serving without the flag above or on a
GPU, use `"signature_name": "uncompiled"`, which is slower.
"""

_PYTHON = {
    "classifier": """\
classify = model.signatures["serving_default"]
found = classify(image_bytes=tf.constant([open("image.jpg", "rb").read()]))
print(found["labels"].numpy(), found["probabilities"].numpy(), found["error"].numpy())
""",
    "text_classifier": """\
classify = model.signatures["serving_default"]
found = classify(texts=tf.constant(["hello world"]))
print(found["labels"].numpy(), found["probabilities"].numpy(), found["error"].numpy())
""",
    "translator": """\
translate = model.signatures["serving_default"]
found = translate(texts=tf.constant(["hello world"]))
print(found["translations"].numpy()[0, 0].decode(), found["scores"].numpy(), found["error"].numpy())
""",
    "generator": """\
generate = model.signatures["serving_default"]
found = generate(texts=tf.constant(["The"]))
print(found["generated_texts"].numpy(), found["scores"].numpy(), found["error"].numpy())

found = model.signatures["sample"](
    texts=tf.constant(["The", "The"]),
    temperature=tf.constant([0.8, 0.8]),
    top_p=tf.constant([0.9, 0.9]),
    seed=tf.constant([1, 2], tf.int64),
)
print(found["generated_texts"].numpy())
""",
}

_IMAGE_FILES = """\
JPEG, PNG, GIF (first frame), BMP (24 or 32 bits, uncompressed) and WebP (not animated) files of up
to 50,000,000 pixels are read. Transparency and the orientation in EXIF metadata are ignored. Other
formats, and files that take too long to decode, are refused."""

_NOTES = {
    "classifier": f"""## Image files and invalid input

{_IMAGE_FILES}

An image that is refused or cannot be read does not affect the others of its batch: its `error`
says why, its labels are empty strings and its numbers are 0. Float pixels must be in 0..255, not in
0..1.""",
    "text_classifier": """## Invalid input

A text that is too long does not affect the others of its batch: its `error` says so, its labels are
empty strings and its numbers are 0. Invalid UTF-8 is replaced by U+FFFD.""",
    "translator": """## Invalid input

A text that is too long does not affect the others of its batch: its `error` says so, its
translations are empty strings and its numbers are 0. Invalid UTF-8 is replaced by U+FFFD. The
translation of a blank text is empty.""",
    "generator": """## Sampling

`sample` does not need XLA. It draws each token by its probability, after division of the logits by
the temperature, from the most likely tokens with the total probability `top_p`; 1 takes all. The
draws of a text depend on its own seed alone. They are other draws than those of
`TextGenerator.sample` for the same seed.

## Invalid input

A text that is too long does not affect the others of its batch: its `error` says so, its
continuations are empty strings and its scores are 0. The same holds for a temperature below 0.001
and a `top_p` outside of 0.000001 to 1. Invalid UTF-8 is replaced by U+FFFD. An empty text begins a
new one.""",
}


def _requests(kind, url):
    """The commands that send an example to saved_model_cli, and to a server."""
    run = "saved_model_cli run --dir . --tag_set serve --signature_def serving_default \\\n    "
    if kind == "classifier":
        save = 'numpy.save("images.npy", numpy.array([open("image.jpg", "rb").read()]))'
        run = f"python -c 'import numpy; {save}'\n{run}--inputs image_bytes=images.npy"
        image = r'"{\"instances\": [{\"b64\": \"$(base64 -w0 image.jpg)\"}]}"'
        return run, f"echo {image} |\n    curl --data @- {url}"
    text = "The" if kind == "generator" else "hello world"
    run += f"""--input_exprs 'texts=["{text}"]'"""
    request = f"""curl --data '{{"instances": ["{text}"]}}' \\\n    {url}"""
    if kind == "generator":
        settings = '{"texts": "The", "temperature": 0.8, "top_p": 0.9, "seed": 1}'
        sample = f"""'{{"signature_name": "sample", "instances": [\n    {settings}]}}'"""
        request += f"\ncurl --data {sample} \\\n    {url}"
    return run, request


def _onnx_usage(description, folder):
    return {
        "classifier": """## Python

```bash
python classify.py image.jpg --top-k 3      # needs Pillow; .npy files do not
```

```python
import onnxruntime

model = onnxruntime.InferenceSession("model.onnx")
[probabilities] = model.run(None, {"pixels": pixels})  # uint8 [B, H, W, C]
```

"""
        + _IMAGE_FILES,
        "translator": """## Python

```bash
python translate.py "hello world"
```

```python
from translate import Translator

translator = Translator(".")
translator(["hello world"])
```

`translate.py`, `search.py` and `tokenizer.py` need only numpy and onnxruntime. They are short, so
that they can be ported to other languages.""",
    }[description["kind"]]


def _litert_usage(description, folder):
    tensors = description["signatures"]
    name, signature = next(iter(tensors.items()))
    inputs = ", ".join(f"{given}=..." for given in signature["inputs"])
    return f"""## Python

```python
from ai_edge_litert.interpreter import Interpreter

model = Interpreter("model.tflite")
run = model.get_signature_runner("{name}")
found = run({inputs})  # a dict of arrays; the signatures are below
```"""


_NAMES = {"saved_model": "SavedModel", "onnx": "ONNX", "litert": "LiteRT"}
_USAGE = {"saved_model": _saved_model_usage, "onnx": _onnx_usage, "litert": _litert_usage}


def _signatures(description):
    lines = ["## Signatures", "", "A dynamic dimension is null or a letter.", ""]
    lines += ["| signature | inputs | outputs |", "|---|---|---|"]
    for name, signature in description["signatures"].items():
        sides = (_tensors(signature[side]) for side in ("inputs", "outputs"))
        what = f": {signature['what']}" if "what" in signature else ""
        lines.append(f"| `{name}`{what} | {' | '.join(sides)} |")
    return "\n".join(lines)


def _tensors(tensors):
    return "<br>".join(
        f"`{name}` {spec['dtype']} {json.dumps(spec['shape'])}" for name, spec in tensors.items()
    )


def _preprocessing(settings):
    resize, size = settings["resize"], settings["image_size"]
    if resize is None:
        target = "so that the shorter side fits"
    elif isinstance(resize, int):
        target = f"so that the shorter side has {resize} pixels"
    else:
        target = f"to {resize[0]} x {resize[1]} pixels"
    how = settings["interpolation"] + (", antialiased" if settings["antialias"] else "")
    return (
        f"- images are resized {target} ({how}), cropped at the centre to {size[0]} x {size[1]} "
        "pixels, and normalised by the mean and std of each channel in export.json"
    )


def _details(description):
    lines = ["## Details", ""]
    if description["kind"] == "classifier":
        lines += [_classes(description), _preprocessing(description["preprocessing"])]
    elif description["kind"] == "text_classifier":
        lines += [
            _classes(description),
            f"- maximum text length: {description['max_length']} tokens, with start and end token",
        ]
    elif description["kind"] == "generator":
        search = description["search"]
        lines += [
            f"- search: beam size {search['beam_size']}, length penalty "
            f"{search['length_penalty']:g}, {search['n_best']} continuations per text",
            f"- new tokens: at most {search['max_new_tokens']}, or as many as fit: the model reads "
            f"{search['max_length']} tokens",
            f"- maximum text length: {search['max_prompt_length']} tokens, with the start token",
        ]
    else:
        search = description["search"]
        lines += [
            f"- search: beam size {search['beam_size']}, length penalty "
            f"{search['length_penalty']:g}, {search['n_best']} translations per text",
            f"- maximum text length: {search['max_length']} tokens, end token included",
        ]
    lines.append(f"- parameters: {description['parameters']:,}")
    lines.append(f"- size: {description['bytes'] / 1e6:.1f} MB")
    source = description["source"]
    if source:
        lines.append(f"- run: {source['run']}")
        metrics = {k: v for k, v in source.get("metrics", {}).items() if isinstance(v, float)}
        lines += [f"- {name}: {value:.4g}" for name, value in metrics.items()]
    checked = [f"{name} {value}" for name, value in description["checked"].items()]
    lines.append(f"- compared with the original model: {', '.join(checked)}")
    versions = [f"{name} {version}" for name, version in description["versions"].items()]
    return "\n".join([*lines, f"- exported with {', '.join(versions)}"])


def _classes(description):
    names = description["class_names"]
    shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
    return f"- classes: {len(names)} ({shown})"
