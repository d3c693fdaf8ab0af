"""An embedding model as a file of ONNX, checked against the model itself. Slow: it imports torch."""

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from models.e5_weights import E5File, find_weights, tokenizer, transformer
from models.embedding import (
    EXPORT_FILE,
    ONNX_FILE,
    ExportRefused,
    Floats,
    OnnxEncoder,
    ReferenceEncoder,
    normalise,
)
from models.multilingual import (
    CODING,
    MULTILINGUAL,
    PASSAGE,
    PREFIXES,
    TOKENIZER_FILE,
    VECTORS,
    WEIGHTS_SHA256,
    MultilingualVectors,
    split_name,
)
from models.probes import CENTRE, PROBES

MIN_POOLED_COSINE, MIN_TOKEN_COSINE = 0.9999, 0.999
MIN_QUANTISED_COSINE = 0.985

TRACED_WORDS = 2  # the trace looks up no others; the whole table in it would take 384 MB, many times over
ROWS = 10_000  # of that table, at once


def export_model(model: str, target: Path) -> dict[str, Any]:
    """Export what `open_encoder` opens by the same name. Returns what was measured. Raises EmbeddingError."""
    pieces, twin = split_name(model)
    weights = find_weights() if twin else None  # before the other, so that nothing is done for nothing
    facts = export_onnx(pieces, target)
    return facts | {MULTILINGUAL: export_vectors(target / VECTORS, weights)} if weights else facts


def export_onnx(model: str | Path, target: Path) -> dict[str, Any]:
    """Export a model's transformer to `target`, check it against the reference, and only then give it its
    name. Returns what `export.json` says. Raises ExportRefused when the two differ."""
    reference = ReferenceEncoder(model)
    facts: dict[str, Any] = {"weights_sha256": reference.weights_sha256, "dimensions": reference.dimensions}
    with _published(target, facts) as scratch:
        _trace(reference.transformer[0].auto_model, scratch / ONNX_FILE)
        facts |= _compare(reference, OnnxEncoder(model, scratch))
    return facts


def export_vectors(target: Path, weights: Path, least_cosine: float = MIN_QUANTISED_COSINE) -> dict[str, Any]:
    """Export multilingual-e5-small to `target`, with 8 bits a weight, and check it against its own weights as
    float32. Returns what was measured. Raises ExportRefused when the two differ."""
    file = E5File(weights)
    model = transformer(file, TRACED_WORDS)
    facts: dict[str, Any] = {
        "weights_sha256": WEIGHTS_SHA256,
        "coding": CODING,
        "centres": dict.fromkeys(PREFIXES, 0),
    }
    with _published(target, facts, TOKENIZER_FILE) as scratch:
        tokenizer(file).save(str(scratch / TOKENIZER_FILE))
        _trace(model, scratch / "float32.onnx")
        _quantise(file, scratch / "float32.onnx", scratch / ONNX_FILE)
        exported = MultilingualVectors(scratch)  # not centred yet
        cosines = [
            exported.of(text, PASSAGE) @ _pooled(model, file, exported.pieces(PASSAGE + text))
            for text in PROBES
        ]
        facts["min_pooled_cosine"] = float(min(cosines))
        if not facts["min_pooled_cosine"] >= least_cosine:  # also refuses NaN
            raise ExportRefused(f"{MULTILINGUAL}: 8 bits differ, cosine {facts['min_pooled_cosine']:.4f}")
        facts["centres"] = {
            prefix: np.mean([exported.of(text, prefix) for text in CENTRE], axis=0).tolist()
            for prefix in PREFIXES
        }
    return {name: value for name, value in facts.items() if name != "centres"}


@contextmanager
def _published(target: Path, facts: Mapping[str, Any], *more: str) -> Iterator[Path]:
    """A folder to export into; in the end its files get their names in `target`, with `facts` as they are
    then."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".export-", dir=target) as scratch:
        report = Path(scratch, EXPORT_FILE)
        report.write_text(json.dumps(facts))
        yield Path(scratch)
        report.write_text(json.dumps(facts, indent=2) + "\n")
        # In this order a crash leaves a model without its report, never with the report of another.
        (target / EXPORT_FILE).unlink(missing_ok=True)
        for file in (ONNX_FILE, *more, EXPORT_FILE):
            with Path(scratch, file).open("rb") as stream:
                os.fsync(stream.fileno())
            Path(scratch, file).replace(target / file)


def _quantise(file: E5File, traced: Path, target: Path) -> None:
    """8 bits a weight, with all words in the place of those few that were traced."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    kinds = ["MatMul", "Gather"]
    logging.disable(logging.WARNING)  # it tells of each tensor that stays as it is
    try:
        quantize_dynamic(
            traced, target, op_types_to_quantize=kinds, per_channel=True, weight_type=QuantType.QInt8
        )
    finally:
        logging.disable(logging.NOTSET)
    model = onnx.load(target)
    held = {held.name: held for held in model.graph.initializer}
    name = "transformer.embeddings.word_embeddings.weight_"
    for part, value in zip(("zero_point", "scale", "quantized"), _quantised_words(file), strict=True):
        held[name + part].CopyFrom(onnx.numpy_helper.from_array(value, name + part))
    onnx.save(model, target)


def _quantised_words(file: E5File) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.uint8]]:
    """Zero point, scale and codes of the table of words, as ONNX Runtime has them for a whole table. Slice by
    slice: at once it needs three gigabytes."""
    from onnxruntime.quantization.quant_utils import TensorProto, quantize_data

    words, width = file.config["vocab_size"], file.config["hidden_size"]
    runs = [(start, min(ROWS, words - start)) for start in range(0, words, ROWS)]
    ranges = [(rows.min(), rows.max()) for rows in (file.words(*run) for run in runs)]
    low, high = min(low for low, _ in ranges), max(high for _, high in ranges)
    codes = np.empty((words, width), np.uint8)
    for start, count in runs:
        zero, scale, codes[start : start + count] = quantize_data(
            file.words(start, count), TensorProto.UINT8, False, rmin_override=low, rmax_override=high
        )
    return zero, scale, codes


def _pooled(model: Any, file: E5File, pieces: Sequence[int]) -> Floats:
    """The vector of some pieces by the model itself, not centred."""
    import torch

    words = np.concatenate([file.words(piece, 1) for piece in pieces])
    with torch.inference_mode():
        hidden = model(inputs_embeds=torch.tensor(words)[None]).last_hidden_state[0]
    return normalise(hidden.mean(dim=0).numpy())


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
