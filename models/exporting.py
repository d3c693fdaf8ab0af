"""An embedding model as a file of ONNX, checked against the model itself. Slow: it imports torch."""

import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from models.e5_weights import BLOCK, WORDS, E5File, find_weights, tokenizer, transformer
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
MIN_CODED_COSINE = 0.999

TRACED_WORDS = 2  # the trace looks up no others; the whole table in it would take 384 MB, many times over


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


def export_vectors(target: Path, weights: Path, least_cosine: float = MIN_CODED_COSINE) -> dict[str, Any]:
    """Export multilingual-e5-small to `target`, its weights as they come, and check it against the same in
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
        _recode(file, scratch / "float32.onnx", scratch / ONNX_FILE)
        exported = MultilingualVectors(scratch)  # not centred yet
        cosines = [
            exported.of(text, PASSAGE) @ _pooled(model, file, exported.pieces(PASSAGE + text))
            for text in PROBES
        ]
        facts["min_pooled_cosine"] = least = float(min(cosines))
        if not least >= least_cosine:  # also refuses NaN
            raise ExportRefused(f"{MULTILINGUAL}: the export differs, cosine {least:.6f}")
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


def _recode(file: E5File, traced: Path, target: Path) -> None:
    """The trace with its weights in the 4 bits that they come in, and all words in the place of those few
    that were traced. What they are multiplied with is rounded to 8 bits, block by block (level 4)."""
    import onnx

    model = onnx.load(traced)
    held = {one.name: one for one in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "MatMul" and node.input[1] in held:
            weights = held[node.input[1]]
            width, height = weights.dims
            name = node.name.removeprefix("/transformer/").removesuffix("MatMul").replace("/", ".") + "weight"
            codes, scales = file.coded(name)
            codes = codes.reshape(height, -1, codes.shape[1])
            kind, facts = "MatMulNBits", {"K": width, "N": height, "accuracy_level": 4}
        elif node.op_type == "Gather" and node.input[0] == f"transformer.{WORDS}":
            weights, height = held[node.input[0]], file.config["vocab_size"]
            codes, scales = file.coded(WORDS)
            codes = codes.reshape(height, -1)
            kind, facts = "GatherBlockQuantized", {"gather_axis": 0, "quantize_axis": 1}
        else:
            continue
        arrays = {weights.name + "_codes": codes, weights.name + "_scales": scales.reshape(height, -1)}
        model.graph.initializer.extend(onnx.numpy_helper.from_array(a, name) for name, a in arrays.items())
        model.graph.initializer.remove(weights)
        coded, scale = arrays
        inputs = [coded if name == weights.name else name for name in node.input] + [scale]
        facts |= {"bits": 4, "block_size": BLOCK}
        made = onnx.helper.make_node(kind, inputs, node.output, node.name, domain="com.microsoft", **facts)
        node.CopyFrom(made)
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.save(model, target)


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
