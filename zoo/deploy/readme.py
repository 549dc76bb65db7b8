"""README.md of an export: its files, usage and signatures."""

import json
import pathlib
import string

_STORED = {
    "float16": " Its weight matrices are stored in float16.",
    "int8": " Its weight matrices are quantized to 8 bits.",
}
_TEMPLATES = pathlib.Path(__file__).parent / "readme_templates"


def readme(description, folder):
    """Returns the text of README.md.

    Args:
        description: content of export.json.
        folder: final path of the export.
    """
    name = f"{description['format']}_{description['kind']}.md"
    template = string.Template((_TEMPLATES / name).read_text(encoding="utf-8"))
    values = description | description.get("search", {})
    values = {key: f"{v:g}" if isinstance(v, float) else v for key, v in values.items()}
    values["stored_as"] = _STORED.get(description["dtype"], "")
    values["files"] = _files(description["files"])
    values["signatures"] = _signatures(description["signatures"])
    values["details"] = _details(description)
    if "class_names" in description:
        names = description["class_names"]
        shown = ", ".join(names[:10]) + (", ..." if len(names) > 10 else "")
        values["classes"] = f"{len(names)} ({shown})"
    if "preprocessing" in description:
        values |= _preprocessing(description["preprocessing"])
    return template.substitute(values, **_place(folder))


def _place(folder):
    """How TensorFlow Serving finds the export."""
    if folder.name.isdigit():
        name, version, base = folder.parent.name or "model", folder.name, folder.parent
        place = f"`{folder}` is version {version} of the model `{name}`: serve its parent folder."
    else:
        name, version, base = folder.name, "1", folder
        place = (
            "TensorFlow Serving requires a version number: move these files to "
            f"`{folder / version}`."
        )
    return {"name": name, "version": version, "base": base, "place": place}


def _files(files):
    lines = [f"- `{name}`: {what}" for name, what in files.items()]
    return "\n".join([*lines, "- `export.json`: the information in this file as JSON"])


def _signatures(signatures):
    lines = ["A dynamic dimension is null or a letter.", ""]
    lines += ["| signature | inputs | outputs |", "|---|---|---|"]
    for name, signature in signatures.items():
        sides = (_tensors(signature[side]) for side in ("inputs", "outputs"))
        what = f": {signature['what']}" if "what" in signature else ""
        lines.append(f"| `{name}`{what} | {' | '.join(sides)} |")
    return "\n".join(lines)


def _tensors(tensors):
    return "<br>".join(
        f"`{name}` {spec['dtype']} {json.dumps(spec['shape'])}" for name, spec in tensors.items()
    )


def _preprocessing(settings):
    resize = settings["resize"]
    if resize is None:
        target = "so that the shorter side fits"
    elif isinstance(resize, int):
        target = f"so that the shorter side has {resize} pixels"
    else:
        target = f"to {resize[0]} x {resize[1]} pixels"
    how = settings["interpolation"] + (", antialiased" if settings["antialias"] else "")
    height, width = settings["image_size"]
    return {"resizing": f"{target} ({how})", "size": f"{height} x {width}"}


def _details(description):
    """The details that every export has."""
    lines = [f"- parameters: {description['parameters']:,}"]
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
