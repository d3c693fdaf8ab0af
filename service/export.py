"""`python -m service.export MODEL TARGET`: export a model to ONNX, checked against the reference. A process
of its own, because it imports torch."""

import sys
from pathlib import Path

from models.exporting import export_model

if __name__ == "__main__":
    model, target = sys.argv[1:]
    facts = export_model(model, Path(target))
    sys.stderr.write(f"exported {model} to {target}: {facts}\n")
