"""Random models in the formats of the program Marian, and its computation in NumPy."""

import struct

import numpy as np

SETTINGS = {
    "type": "transformer",
    "dim-emb": 16,
    "dim-vocabs": [0, 0],
    "enc-depth": 2,
    "dec-depth": 2,
    "dec-cell": "ssru",
    "transformer-heads": 4,
    "transformer-dim-ffn": 24,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-decoder-autoreg": "rnn",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-postprocess-emb": "d",
    "transformer-train-position-embeddings": "false",
    "transformer-tied-layers": [],
    "tied-embeddings-all": "true",
    "right-left": "false",
    "layer-normalization": "false",
}
PRE = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}
ATTENTION = {"transformer-decoder-autoreg": "self-attention"}
KINDS = {"float32": 0x404, "float16": 0x402, "intgemm8": 0x4101}


def weights(vocabs, seed=0, **changed):
    """Random tensors of a model whose source and target have `vocabs` tokens."""
    settings = SETTINGS | changed
    random = np.random.default_rng(seed)
    tensors = {}
    width = settings["dim-emb"]
    hidden = settings["transformer-dim-ffn"]
    suffix = "_pre" if "n" in settings["transformer-preprocess"] else ""

    def add(name, *shape, mean=0.0, scale=0.3):
        tensors[name] = random.normal(mean, scale, shape).astype("float32")

    def norm(name, suffix=suffix):
        add(f"{name}_ln_scale{suffix}", 1, width, mean=1.0)
        add(f"{name}_ln_bias{suffix}", 1, width)

    def attention(name):
        for letter in "qkvo":
            add(f"{name}_W{letter}", width, width)
            add(f"{name}_b{letter}", 1, width)
        norm(f"{name}_Wo")

    def feed_forward(name):
        add(f"{name}_W1", width, hidden)
        add(f"{name}_b1", 1, hidden)
        add(f"{name}_W2", hidden, width)
        add(f"{name}_b2", 1, width)
        norm(f"{name}_ffn")

    for layer in range(1, settings["enc-depth"] + 1):
        attention(f"encoder_l{layer}_self")
        feed_forward(f"encoder_l{layer}_ffn")
    for layer in sorted(set(settings["transformer-tied-layers"])) or (1, 2):
        if settings["transformer-decoder-autoreg"] == "rnn":
            add(f"decoder_l{layer}_rnn_W", width, width)
            add(f"decoder_l{layer}_rnn_Wf", width, width)
            add(f"decoder_l{layer}_rnn_bf", 1, width)
            norm(f"decoder_l{layer}_rnn_ffn")
        else:
            attention(f"decoder_l{layer}_self")
        attention(f"decoder_l{layer}_context")
        feed_forward(f"decoder_l{layer}_ffn")
    if settings["transformer-postprocess-top"]:
        norm("encoder_top", "")
        norm("decoder_top", "")
    if settings["transformer-train-position-embeddings"] == "true":
        add("Wpos", 40, width)
    if settings["tied-embeddings-all"] == "true":
        add("Wemb", vocabs[0], width)
    else:
        add("encoder_Wemb", vocabs[0], width)
        add("decoder_Wemb", vocabs[1], width)
        if settings.get("tied-embeddings") != "true":
            add("decoder_ff_logit_out_Wt", vocabs[1], width)
    add("decoder_ff_logit_out_b", 1, vocabs[1])
    return tensors


def yml(settings):
    lines = []
    for name, value in settings.items():
        if isinstance(value, list):
            lines += [f"{name}:", *(f"  - {item}" for item in value)] if value else [f"{name}: []"]
        else:
            lines.append(f'{name}: "{value}"' if value == "" else f"{name}: {value}")
    return "\n".join(lines).encode() + b"\n\0"


def rounded(tensors, kind):
    """The tensors with the rounding of a kind of file."""
    if kind == "float32":
        return tensors
    if kind == "float16":
        return {name: x.astype("float16").astype("float32") for name, x in tensors.items()}
    return {n: quantized(x)[0] if _is_matrix(n) else x for n, x in tensors.items()}


def _is_matrix(name):
    return "Wemb" in name or "_W" in name and "_ln_" not in name


def quantized(x):
    """Quantizes a matrix to 8 bits: returns floats, integers and the scale."""
    scale = np.float32(127.0 / np.abs(x).max())
    integers = np.round(x * scale).astype("int8")
    return integers.astype("float32") / scale, integers, scale


def container(tensors, settings, kind="float32"):
    """The bytes of a .bin file."""
    items = [("special:model.yml", 0x101, None, yml(settings))]
    for name, x in tensors.items():
        number = KINDS["float32"]
        data = x.tobytes()
        if kind == "float16":
            number = KINDS[kind]
            data = x.astype("float16").tobytes()
        if kind == "intgemm8" and _is_matrix(name):
            _, integers, scale = quantized(x)
            data = integers if "Wemb" in name else integers.T
            number = KINDS[kind]
            data = np.ascontiguousarray(data).tobytes() + scale.tobytes()
            items.append((f"{name}_QuantMultA", KINDS["float32"], (1, 1), b"\0\0\1\2"))
        items.append((name, number, x.shape, data))
    shapes = [(len(data),) if shape is None else shape for _, _, shape, data in items]
    padded = [-(-len(data) // 256) * 256 for *_, data in items]
    names = [name.encode() + b"\0" for name, *_ in items]
    head = struct.pack("<QQ", 1, len(items))
    for name, (_, number, _, _), shape, length in zip(names, items, shapes, padded):
        head += struct.pack("<4Q", len(name), number, len(shape), length)
    head += b"".join(names) + b"".join(struct.pack(f"<{len(s)}i", *s) for s in shapes)
    offset = -(len(head) + 8) % 256
    body = [data + b"\x7f" * (length - len(data)) for (*_, data), length in zip(items, padded)]
    return head + struct.pack("<Q", offset) + b"\x7f" * offset + b"".join(body)


def write_npz(path, tensors, settings):
    special = np.frombuffer(yml(settings), np.int8)
    others = {"special:model.yml": special, "encoder_l1_self_Wq_QuantMultA": np.ones((1, 1))}
    np.savez(path, **others, **tensors)


# --- what Marian computes, by src/models/transformer.h and src/rnn/cells.h -----------------------


def logits(tensors, source, target, **changed):
    """The logits of the next token after each prefix of `target`, a list of ids: [T + 1, V]."""
    settings = SETTINGS | changed
    model = _Reference(tensors, settings)
    return model.decode(model.encode(source), target)


class _Reference:
    def __init__(self, tensors, settings):
        self.t = {n: x.astype("float64") for n, x in tensors.items()}
        self.settings = settings
        self.pre = "n" in settings["transformer-preprocess"]

    def embed(self, name, ids, before=0):
        """The embedded ids, after `before` start embeddings of zeros."""
        width = self.settings["dim-emb"]
        table = self.t[name] if name in self.t else self.t["Wemb"]
        x = np.concatenate([np.zeros((before, width)), table[ids].reshape(-1, width)])
        if "Wpos" in self.t:
            return x + self.t["Wpos"][: len(x)]
        rates = np.exp(-np.arange(width // 2) * np.log(10000.0) / (width // 2 - 1))
        angles = np.arange(len(x))[:, None] * rates
        return np.sqrt(width) * x + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def norm(self, x, name, suffix=""):
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-6)
        return x * self.t[f"{name}_ln_scale{suffix}"] + self.t[f"{name}_ln_bias{suffix}"]

    def around(self, x, name, layer):
        """A layer with its normalization and residual connection."""
        if self.pre:
            return x + layer(self.norm(x, name, "_pre"))
        return self.norm(x + layer(x), name)

    def attend(self, name, x, memory, causal=False):
        heads = self.settings["transformer-heads"]
        width = x.shape[-1]

        def split(values, letter):
            values = values @ self.t[f"{name}_W{letter}"] + self.t[f"{name}_b{letter}"]
            return values.reshape(len(values), heads, -1).transpose(1, 0, 2)

        query = split(x, "q")
        key = split(memory, "k")
        value = split(memory, "v")
        scores = query @ key.transpose(0, 2, 1) / np.sqrt(width // heads)
        if causal:
            scores = np.where(np.tril(np.ones(scores.shape[1:], bool)), scores, -np.inf)
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        joined = (shares @ value).transpose(1, 0, 2).reshape(len(x), width)
        return joined @ self.t[f"{name}_Wo"] + self.t[f"{name}_bo"]

    def feed_forward(self, name, x):
        x = x @ self.t[f"{name}_W1"] + self.t[f"{name}_b1"]
        kind = self.settings["transformer-ffn-activation"]
        slope = {"swish": 1.0, "gelu": 1.702}.get(kind)
        x = np.maximum(x, 0.0) if kind == "relu" else x / (1.0 + np.exp(-slope * x))
        return x @ self.t[f"{name}_W2"] + self.t[f"{name}_b2"]

    def recurrent(self, name, x):
        cell = 0.0
        cells = []
        for token in x:
            forget = 1.0 / (1.0 + np.exp(-(token @ self.t[f"{name}_Wf"] + self.t[f"{name}_bf"])))
            cell = forget * cell + (1.0 - forget) * (token @ self.t[f"{name}_W"])
            cells.append(np.maximum(cell, 0.0).reshape(-1))
        return np.stack(cells)

    def encode(self, source):
        x = self.embed("encoder_Wemb", source)
        for layer in range(1, self.settings["enc-depth"] + 1):
            own = f"encoder_l{layer}_self"
            ffn = f"encoder_l{layer}_ffn"
            x = self.around(x, f"{own}_Wo", lambda y, n=own: self.attend(n, y, y))
            x = self.around(x, f"{ffn}_ffn", lambda y, n=ffn: self.feed_forward(n, y))
        return self.norm(x, "encoder_top") if self.pre else x

    def decode(self, memory, target):
        x = self.embed("decoder_Wemb", target, before=1)
        depth = self.settings["dec-depth"]
        for layer in self.settings["transformer-tied-layers"] or range(1, depth + 1):
            own, rnn, cross, ffn = (
                f"decoder_l{layer}_{part}" for part in ("self", "rnn", "context", "ffn")
            )
            if self.settings["transformer-decoder-autoreg"] == "rnn":
                x = self.around(x, f"{rnn}_ffn", lambda y, n=rnn: self.recurrent(n, y))
            else:
                x = self.around(x, f"{own}_Wo", lambda y, n=own: self.attend(n, y, y, True))
            x = self.around(x, f"{cross}_Wo", lambda y, n=cross: self.attend(n, y, memory))
            x = self.around(x, f"{ffn}_ffn", lambda y, n=ffn: self.feed_forward(n, y))
        x = self.norm(x, "decoder_top") if self.pre else x
        names = ("decoder_ff_logit_out_Wt", "decoder_Wemb", "Wemb")
        table = next(self.t[name] for name in names if name in self.t)
        return x @ table.T + self.t["decoder_ff_logit_out_b"]


def lexicon(lists, always):
    """A binary shortlist: the target tokens for each source token."""
    offsets = np.cumsum([0, *map(len, lists)])
    header = (0xF11A48D5013417F5, 0, always, 50, len(offsets), offsets[-1])
    tokens = np.concatenate([np.array(each, "<u4") for each in lists])
    return struct.pack("<6Q", *header) + offsets.astype("<u8").tobytes() + tokens.tobytes()
