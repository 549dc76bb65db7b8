"""The command line: ``python -m zoo classify RUN IMAGE...`` and ``python -m zoo info RUN``."""

import argparse
import json
import pathlib
import sys

from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly


def main(arguments=None):
    """Runs a command; returns the exit status: 1 if some images failed, 2 if nothing worked."""
    args = _parser().parse_args(arguments)
    import_tensorflow_quietly()
    try:
        return args.run(args)
    except (UserError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def classify(args):
    """Prints the likeliest classes of each image; an image that cannot be read is reported."""
    import zoo
    from zoo.data.images import SUFFIXES

    if args.top_k < 1:
        raise UserError(f"--top-k must be at least 1. Received: {args.top_k}.")
    classifier = zoo.load(args.run_folder)
    paths, failed = list(_image_files(args.images, SUFFIXES)), 0
    for start in range(0, len(paths), 64):
        read = []
        for path in paths[start : start + 64]:
            try:
                read.append((path, classifier.preprocessing.read(path)))
            except (UserError, OSError) as error:
                failed += 1
                print(f"error: {error}", file=sys.stderr)
        answers = classifier([pixels for _, pixels in read], top_k=args.top_k)
        for (path, _), answer in zip(read, answers):
            print(f"{path}\t" + "\t".join(f"{name} {share:.1%}" for name, share in answer))
    if failed:
        print(f"{failed} of {len(paths)} images could not be classified.", file=sys.stderr)
    return 0 if not failed else 1 if failed < len(paths) else 2


def info(args):
    """Prints what a run folder holds: model, preprocessing, classes and figures."""
    import zoo

    classifier = zoo.load(args.run_folder)
    model, folder = classifier.model, pathlib.Path(args.run_folder)
    report = {
        "model": {"type": type(model).__name__, "parameters": model.count_params()},
        "preprocessing": classifier.preprocessing.to_dict(),
        "classes": classifier.class_names,
    }
    for name in ("metrics", "config"):
        if (folder / f"{name}.json").is_file():
            report[name] = json.loads((folder / f"{name}.json").read_text())
    print(json.dumps(report, indent=2))
    return 0


def _image_files(given, suffixes):
    """The files given, and the images in the folders given."""
    for path in map(pathlib.Path, given):
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix.lower() in suffixes)
            if not found:
                raise UserError(f"The folder {path} has no images ({', '.join(sorted(suffixes))}).")
            yield from found
        else:
            yield path


def _parser():
    parser = argparse.ArgumentParser(prog="python -m zoo", description="Use what a recipe trained.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("classify", help="name what images show")
    command.add_argument("run_folder", metavar="RUN", help="run folder of a recipe")
    command.add_argument("images", metavar="IMAGE", nargs="+", help="image file or folder of them")
    command.add_argument("--top-k", type=int, default=1, help="classes to print for each (1)")
    command.set_defaults(run=classify)
    command = commands.add_parser("info", help="print what a run folder holds, as JSON")
    command.add_argument("run_folder", metavar="RUN", help="run folder of a recipe")
    command.set_defaults(run=info)
    return parser


if __name__ == "__main__":
    sys.exit(main())
