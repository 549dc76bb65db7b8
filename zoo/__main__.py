"""The command line: ``python -m zoo classify|translate|generate|info|export|serve|launch``."""

import argparse
import itertools
import json
import pathlib
import sys

from zoo.errors import UserError
from zoo.startup import import_tensorflow_quietly

FEW_TEXTS = 8  # are translated sooner without XLA, which compiles a search for seconds


def main(arguments=None):
    """Runs a command; returns the exit status: 1 if some images failed, 2 if all, or on errors."""
    args = _parser().parse_args(arguments)
    if args.run is not launch:  # launch does not use TensorFlow
        import_tensorflow_quietly()
    try:
        return args.run(args)
    except (UserError, FileNotFoundError) as error:
        print(f"error: {error}", file=sys.stderr)
    except ModuleNotFoundError as error:
        print(
            f"error: The module {error.name} is not installed. Run "
            "`pip install -r requirements.txt`.",
            file=sys.stderr,
        )
    return 2


def classify(args):
    """Prints the most likely classes of each image or text."""
    from zoo.tasks.classifier import TextClassifier

    if args.top_k < 1:
        raise UserError(f"--top-k must be at least 1. Received: {args.top_k}.")
    classifier = _load(args.run_folder, "classify", dtype=args.dtype, engine=args.engine)
    if isinstance(classifier, TextClassifier):
        return _classify_texts(classifier, args)
    if args.file or not args.items:
        raise UserError(f"{args.run_folder} classifies images. Pass image files or folders.")
    return _classify_images(classifier, args)


def _classify_texts(classifier, args):
    texts = _texts(args.items, args.file)
    for text, answer in zip(texts, classifier(texts, args.top_k, args.too_long)):
        print(f"{text}\t" + "\t".join(f"{name} {share:.1%}" for name, share in answer))
    return 0


def _classify_images(classifier, args):
    """Prints the classes of each image; reports images that cannot be read."""
    from zoo.data.image_folder import SUFFIXES

    paths, failed = list(_image_files(args.items, SUFFIXES)), 0
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


def translate(args):
    """Prints the translation of each text, or of each line of a file or of standard input."""
    options = {"dtype": args.dtype, "engine": args.engine, **_languages(args)}
    translator = _load(args.run_folder, "translate", **options)
    lines = _texts(args.texts, args.file)
    translator.jit_compile = len(lines) > FEW_TEXTS
    if args.attention and len(lines) != 1:
        raise UserError(f"--attention takes one text. Received: {len(lines)}.")
    options = {
        "n": args.n_best,
        "beam_size": args.beam_size,
        "too_long": args.too_long,
    }
    for translations in translator.n_best(lines, **options):
        for text, score in translations:
            print(f"{score:.4f}\t{text}" if args.n_best > 1 else text)
    if args.attention:
        from zoo.training.pictures import cross_attention

        found = translator.alignment(lines[0])
        cross_attention(found.weights, found.source, found.target, args.attention)
    return 0


def generate(args):
    """Prints a text and its continuation, piece by piece."""
    generator = _load(args.run_folder, "generate", dtype=args.dtype)
    generator.jit_compile = False  # one text is continued sooner than XLA compiles a search
    names = ("temperature", "top_k", "top_p", "seed")
    drawing = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    if args.beam_size is not None:
        if drawing:
            flags = ", ".join("--" + name.replace("_", "-") for name in drawing)
            raise UserError(f"--beam-size searches and does not sample. Remove {flags}.")
        options = {"beam_size": args.beam_size, "max_new_tokens": args.max_new_tokens}
        print(generator([args.prompt], **options)[0])
        return 0
    pieces = generator.stream(args.prompt, max_new_tokens=args.max_new_tokens, **drawing)
    first = next(pieces, "")  # an error comes before any output
    for piece in itertools.chain([args.prompt, first], pieces, ["\n"]):
        print(piece, end="", flush=True)
    return 0


def export(args):
    """Exports the model of a run and prints a summary."""
    import zoo
    from zoo.deploy.export import DESCRIPTION_FILE

    names = ("format", "top_k", "n_best", "beam_size", "length_penalty", "max_new_tokens")
    options = {name: getattr(args, name) for name in (*names, "overwrite")}
    in_memory = {"dtype": args.dtype} if args.format == "saved_model" else {}
    options["dtype"] = None if in_memory else args.dtype
    model = zoo.load(args.run_folder, **in_memory, **_languages(args))
    print("Exporting the model and checking the export ...", file=sys.stderr)
    folder = zoo.export(model, args.folder, **options)
    description = json.loads((folder / DESCRIPTION_FILE).read_text("utf-8"))
    print(f"{description['kind']}, {description['format']}, {description['bytes'] / 1e6:.1f} MB")
    print(f"compared with the original model: {json.dumps(description['checked'])}")
    print(f"usage: {folder / 'README.md'}")
    print(folder)
    return 0


def serve(args):
    """Serves exported models until SIGTERM or Ctrl+C."""
    from zoo.server import serve

    options = {name: value for name, value in vars(args).items() if value is not None}
    del options["run"]
    return serve(options.pop("folders"), **options)


def launch(args):
    """Runs a command in several processes that train together."""
    from zoo.launch import launch

    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    return launch(command, args.workers)


def info(args):
    """Prints the contents of a run directory: model, preprocessing or tokenizers, and metrics."""
    import zoo

    folder = pathlib.Path(args.run_folder)
    loaded = zoo.load(folder, **_languages(args))
    model = loaded.model
    report = {
        "model": {"type": type(model).__name__, "parameters": model.count_params()},
        **loaded.description(),
    }
    for name in ("metrics", "config"):
        if (folder / f"{name}.json").is_file():
            report[name] = json.loads((folder / f"{name}.json").read_text())
    print(json.dumps(report, indent=2))
    return 0


def _load(folder, verb, **options):
    """Loads the model of a run; raises `UserError` if it cannot do `verb`."""
    import zoo
    from zoo.tasks.classifier import ImageClassifier, TextClassifier
    from zoo.tasks.generator import TextGenerator

    loaded = zoo.load(folder, **options)
    verbs = {ImageClassifier: "classify", TextClassifier: "classify", TextGenerator: "generate"}
    does = verbs.get(type(loaded), "translate")
    if does != verb:
        raise UserError(f"The model in {folder} cannot {verb}: use `python -m zoo {does}`.")
    return loaded


def _languages(args):
    """The options of `zoo.load` that are given."""
    given = {"src_lang": args.src_lang, "tgt_lang": args.tgt_lang}
    return {name: code for name, code in given.items() if code is not None}


def _texts(texts, path):
    """The texts of the command line, or else the lines of a file or of standard input."""
    if texts and path:
        raise UserError("Pass texts or --file, not both.")
    return texts or _lines(path)


def _lines(path):
    """Reads the lines of a file, or of standard input if the path is None or "-"."""
    try:
        is_file = path not in (None, "-")
        data = pathlib.Path(path).read_bytes() if is_file else sys.stdin.buffer.read()
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
    except OSError as error:
        raise UserError(f"The file {path} cannot be read: {error.strerror}.") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path or 'Standard input'} is not UTF-8: {error}.") from None
    return text.removesuffix("\n").split("\n") if text else []


def _image_files(given, suffixes):
    """Yields the given files, and the images in the given folders."""
    for path in map(pathlib.Path, given):
        if path.is_dir():
            found = sorted(p for p in path.rglob("*") if p.suffix.lower() in suffixes)
            if not found:
                raise UserError(f"The folder {path} has no images ({', '.join(sorted(suffixes))}).")
            yield from found
        else:
            yield path


def _add_engine(command, engines, dtypes, own):
    help = "computes in place of TensorFlow, often faster on CPUs"
    command.add_argument("--engine", metavar=engines, help=help)
    help = f"of the model, such as {own} (the run's); with --engine {dtypes} (float32)"
    command.add_argument("--dtype", help=help)


def _add_languages(command):
    text = "language, for published weights of several languages"
    command.add_argument("--src-lang", metavar="CODE", help=f"source {text}")
    command.add_argument("--tgt-lang", metavar="CODE", help=f"target {text}")


def _parser():
    parser = argparse.ArgumentParser(prog="python -m zoo", description="Use trained models.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("classify", help="classify images or texts")
    command.add_argument("run_folder", metavar="RUN", help="run directory, or published weights")
    command.add_argument(
        "items",
        metavar="ITEM",
        nargs="*",
        help="image file, folder of images, or text; texts by default from standard input",
    )
    command.add_argument("--file", help="text file with one text per line")
    command.add_argument("--top-k", type=int, default=1, help="classes to print per item (1)")
    command.add_argument(
        "--too-long",
        choices=("error", "truncate"),
        default="truncate",
        help="how to handle a text that is too long for the model (truncate)",
    )
    _add_engine(command, "onnxruntime|openvino", "float32, bfloat16 or int8", "bfloat16")
    command.set_defaults(run=classify)
    command = commands.add_parser("translate", help="translate texts")
    command.add_argument("run_folder", metavar="RUN", help="run directory, or published weights")
    command.add_argument("texts", metavar="TEXT", nargs="*", help="default: standard input")
    command.add_argument("--file", help="text file with one text per line")
    command.add_argument("--beam-size", type=int, help="beam size; 1 is greedy search (the run's)")
    command.add_argument(
        "--n-best", type=int, default=1, help="translations per text; with scores if above 1 (1)"
    )
    command.add_argument(
        "--too-long",
        choices=("error", "split"),
        default="split",
        help="how to handle a text that is too long for the model (split)",
    )
    command.add_argument("--attention", metavar="PNG", help="plot the attention weights")
    _add_engine(command, "ctranslate2", "float32 or int8", "bfloat16 or int8")
    _add_languages(command)
    command.set_defaults(run=translate)
    command = commands.add_parser("generate", help="continue a text")
    command.add_argument("run_folder", metavar="RUN", help="run directory, or published weights")
    command.add_argument("prompt", metavar="PROMPT", help="beginning of the text; may be empty")
    command.add_argument(
        "--max-new-tokens", type=int, help="maximum number of new tokens (64, or as many as fit)"
    )
    command.add_argument("--temperature", type=float, help="below 1 favors likely tokens (1)")
    command.add_argument("--top-k", type=int, help="draw from the k most likely tokens")
    command.add_argument(
        "--top-p", type=float, help="draw from the likeliest tokens with this total probability"
    )
    command.add_argument("--seed", type=int, help="seed of the draws (0)")
    command.add_argument("--beam-size", type=int, help="beam search instead; 1 is greedy search")
    command.add_argument("--dtype", help="of the model, such as bfloat16 or int8 (the run's)")
    command.set_defaults(run=generate)
    command = commands.add_parser("export", help="export a trained model for serving")
    command.add_argument("run_folder", metavar="RUN", help="run directory, or published weights")
    command.add_argument(
        "folder", metavar="FOLDER", help="new folder, such as serving/vit/1: name and version"
    )
    command.add_argument(
        "--format",
        choices=("saved_model", "onnx", "litert", "ctranslate2"),
        default="saved_model",
        help="only saved_model takes encoded images and strings (saved_model)",
    )
    command.add_argument(
        "--dtype",
        help="of the model in a saved_model, such as bfloat16, or int8 for translators and "
        "generators (the run's); of weight matrices in other formats: float32, float16 or int8 "
        "(float32)",
    )
    command.add_argument("--top-k", type=int, help="classes that a classifier returns (5)")
    command.add_argument("--n-best", type=int, help="translations or continuations per text (1)")
    command.add_argument(
        "--beam-size", type=int, help="of beam search (the run's; of a generator: N_BEST)"
    )
    command.add_argument(
        "--length-penalty", type=float, help="of beam search (the run's; of a generator: 0)"
    )
    command.add_argument(
        "--max-new-tokens", type=int, help="length limit of a generator (64, or as many as fit)"
    )
    command.add_argument("--overwrite", action="store_true", help="replace an export in FOLDER")
    _add_languages(command)
    command.set_defaults(run=export)
    command = commands.add_parser(
        "serve", help="serve exported models: TensorFlow Serving's REST API and a web page"
    )
    command.add_argument(
        "folders",
        metavar="FOLDER",
        nargs="+",
        help=".../NAME/1; .../NAME, which serves its highest version; or NAME=path",
    )
    command.add_argument(
        "--host", default="127.0.0.1", help="0.0.0.0 listens on all networks (127.0.0.1)"
    )
    command.add_argument("--port", type=int, default=8501, help="0 selects a free port (8501)")
    command.add_argument("--grpc-port", type=int, help="port for gRPC requests (none)")
    command.add_argument(
        "--poll-seconds",
        type=float,
        help="seconds between checks for other versions on disk; 0 for no checks (2)",
    )
    command.add_argument("--access-log", action="store_true", help="log every request")
    command.add_argument(
        "--allowed-host",
        dest="allowed_hosts",
        metavar="NAME",
        action="append",
        help="host name of the server in requests; by default localhost, or any name with "
        "another --host",
    )
    command.add_argument(
        "--allowed-origin",
        dest="allowed_origins",
        metavar="SITE",
        action="append",
        help="web site whose pages may send requests, such as https://example.com (none)",
    )
    for flag, kind, text in (
        ("--max-batch", int, "maximum number of rows per model call (32)"),
        ("--max-rows", int, "maximum number of rows per request, else 400 (1024)"),
        ("--batch-wait-ms", float, "milliseconds a request waits for others to join its batch (2)"),
        ("--max-queue", int, "maximum number of queued requests per model, else 503 (256)"),
        ("--max-body", int, "maximum bytes of a request, else 413 (33554432)"),
        ("--request-timeout", float, "maximum seconds per request, else 504 (60)"),
        ("--shutdown-grace", float, "seconds to finish running requests on shutdown (30)"),
    ):
        command.add_argument(flag, type=kind, help=text)
    command.set_defaults(run=serve)
    command = commands.add_parser("info", help="print the contents of a run directory as JSON")
    command.add_argument("run_folder", metavar="RUN", help="run directory, or published weights")
    _add_languages(command)
    command.set_defaults(run=info)
    command = commands.add_parser(
        "launch", help="run a recipe with several workers on this machine"
    )
    command.add_argument("--workers", type=int, default=2, help="number of processes (2)")
    command.add_argument(
        "command", metavar="...", nargs=argparse.REMAINDER, help="-- python recipes/NAME.py FLAGS"
    )
    command.set_defaults(run=launch)
    return parser


if __name__ == "__main__":
    sys.exit(main())
