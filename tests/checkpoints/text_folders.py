"""Small folders of GPT-2, RoBERTa and BERT in the published layout, with drawn weights."""

import json

import tokenizers
from safetensors.numpy import save_file
from tokenizers import models, normalizers, pre_tokenizers, trainers

from tests.checkpoints import drawn
from tests.text.library import spm
from tests.text.samples import LINES as FEW

LINES = [
    *FEW,
    "The teacher opened an old window because her students wanted fresh air before lunch.",
    "We walked slowly through green forests, crossed three rivers and slept under bright stars.",
    "My grandmother keeps every letter that was written during the long winter of her childhood.",
    "Nobody knows why these yellow birds always return to our garden when summer begins.",
    "Please bring bread, milk, eleven apples and some cheese from the market near your house!",
    "Scientists measured how quickly glass, iron and copper become warm; results were surprising.",
    "Yesterday's train arrived late, so they couldn't meet their friends at the quiet harbor.",
    "La profesora abrió una ventana vieja porque sus alumnos querían respirar aire fresco.",
    "Caminamos despacio entre bosques verdes, cruzamos tres ríos y dormimos bajo las estrellas.",
    "Mi abuela guarda todas las cartas que escribió durante el largo invierno de su niñez.",
    "Nadie sabe por qué estos pájaros amarillos vuelven siempre a nuestro jardín en verano.",
    "¿Puedes traer pan, leche, once manzanas y queso del mercado que está cerca de tu casa?",
]
BERT_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def write(folder, config, shapes, tokenizer, without=(), **changed):
    """Writes config.json, model.safetensors and the files of a tokenizer, {name: text}."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**config, **changed}))
    tensors = drawn.tensors(shapes)
    save_file({k: v for k, v in tensors.items() if k not in without}, folder / "model.safetensors")
    write_files(folder, tokenizer)
    return folder


def write_files(folder, files):
    """Writes {name: text or bytes}."""
    for name, content in files.items():
        content = content if isinstance(content, bytes) else content.encode()
        (folder / name).write_bytes(content)


def gpt2_tokenizer(size=400, first=("<|endoftext|>",), last=()):
    """vocab.json and merges.txt, with special tokens that have the first and the last ids."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[*first],
        show_progress=False,
    )
    tokenizer.train_from_iterator(LINES, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = "\n".join(["#version: 0.2", *(f"{left} {right}" for left, right in model["merges"])])
    vocab = model["vocab"] | {token: size + index for index, token in enumerate(last)}
    return {"vocab.json": json.dumps(vocab), "merges.txt": merges + "\n"}


def roberta_tokenizer(size=400):
    """The same for RoBERTa and BART: `size` + 2 tokens, of which the last is "<mask>"."""
    first = ("<s>", "<pad>", "</s>", "<unk>")
    return gpt2_tokenizer(size, first, ("madeupword0000", "<mask>"))


def xlm_roberta_tokenizer(lines=LINES * 9, **options):
    """sentencepiece.bpe.model of 300 pieces, "<unk>", "<s>" and "</s>" first: 302 tokens."""
    options = {"rules": "nmt_nfkc", "size": 300, "character_coverage": 0.99, **options}
    return {"sentencepiece.bpe.model": spm(lines, **options)}


def bert_tokenizer(lowercase=True, **settings):
    """vocab.txt of 300 tokens and tokenizer_config.json."""
    normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    words = [
        word
        for line in LINES
        for word, _ in pre_tokenizers.BertPreTokenizer().pre_tokenize_str(
            normalizer.normalize_str(line)
        )
    ]
    letters = sorted({letter for word in words for letter in word})
    tokens = [*BERT_TOKENS, *letters[:-3], *(f"##{letter}" for letter in letters[:-3])]
    tokens += [*dict.fromkeys(words), *(f"##{word[1:3]}" for word in words if len(word) > 2)]
    tokens = [*dict.fromkeys(tokens)][:300]
    settings = {"do_lower_case": lowercase, **settings}
    return {"vocab.txt": "\n".join(tokens) + "\n", "tokenizer_config.json": json.dumps(settings)}


ODD_TEXTS = [
    "",
    "  two   spaces ",
    "I'm here, they'Re don't's",
    "a  b\n\nc \n d\t\t e   ",
    "na\u00efve cafe\u0301 a\u0323\u0301 \u0300x \u00c5ngstr\u00f6m",
    "\U0001f600 \U0001f600\U0001f603 x \U0001f468\u200d\U0001f469",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002 \u041f\u0440\u0438\u0432\u0435\u0442",
    "\u039f\u0394\u039f\u03a3 \u0130stanbul \u01c5 \u1e9e \u00bd \uac01",
    "tab\tnew\nline\u3000wide\u2028x\u0085y\x00z\ufffd",
    "<|endoftext|> [CLS] a [SEP][MASK] ##s",
    "e\u0301\u0323x \U0001e944\U0001e94a",
    "x" * 101,
]
