"""README.md of an export: its files and its usage."""

import pathlib
import string

_STORED = {
    "float16": " Its weight matrices are stored in float16.",
    "int8": " Its weight matrices are quantized to 8 bits.",
}
_SEVERAL = "; probabilities are independent sigmoids: compare each with a threshold, such as 0.5"
_TEMPLATES = pathlib.Path(__file__).parent / "readme_templates"


def readme(description, folder):
    """Returns the text of README.md, given export.json and the final path of the folder."""
    name = f"{description['format']}_{description['kind']}.md"
    template = string.Template((_TEMPLATES / name).read_text(encoding="utf-8"))
    values = {
        key: f"{value:g}" if isinstance(value, float) else value
        for key, value in (description | description.get("search", {})).items()
    }
    values["stored_as"] = _STORED.get(description["dtype"], "")
    values["details"] = _details(description)
    if "class_names" in description:
        names = description["class_names"]
        shown = names[:10]
        if len(names) > 10:
            shown = [*shown, "..."]
        values["classes"] = f"{len(names)} ({', '.join(shown)})"
        if description["problem"] == "multi_label":
            values["classes"] += _SEVERAL
    if "preprocessing" in description:
        values |= _image(**description["preprocessing"])
    return template.substitute(values, **_place(folder))


def _image(image_size, channels, resize, interpolation, antialias, crop_size, **others):
    """Values for the instructions to read an image with Pillow."""
    height, width = image_size
    crop_height, crop_width = crop_size or image_size
    if resize is None:
        factor = f"max({crop_width} / image.width, {crop_height} / image.height)"
        resized = f"[round(side * {factor}) for side in image.size]"
    elif isinstance(resize, int):
        resized = f"[int(side * {resize} / min(image.size)) for side in image.size]"
    else:
        resized = f"({resize[1]}, {resize[0]})"
    return {
        "height": height,
        "width": width,
        "channels": channels,
        "corner": f"(image.width - {crop_width}) // 2, (image.height - {crop_height}) // 2",
        "mode": "L" if channels == 1 else "RGB",
        "resized": resized,
        "filter": interpolation.upper(),
        "antialias": "" if antialias else "; training did not antialias, as Pillow does",
    }


def _place(folder):
    """Values for the instructions for TensorFlow Serving: the model's name, version and folder."""
    base = folder
    version = "1"
    if folder.name.isdigit():
        base = folder.parent
        version = folder.name
    return {"name": base.name or "model", "version": version, "base": base}


def _details(description):
    lines = [f"{description['parameters']:,} parameters, {description['bytes'] / 1e6:.1f} MB"]
    if description.get("dynamic_size"):
        lines.append(
            "dynamic_size: `pixels` are not resized; height and width must be multiples of "
            f"{description['patch_size']}"
        )
    source = description["source"]
    if source is not None:
        lines.append(f"run: {source.get('run', 'its folder is not known')}")
        for name, value in source.get("metrics", {}).items():
            if isinstance(value, float):
                lines.append(f"{name}: {value:.4g}")
    difference = description["checked"]["largest_difference"]
    lines.append(f"largest difference from the original model: {difference:.2g}")
    return "\n".join(f"- {line}" for line in lines)
