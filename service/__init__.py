"""The doors (HTTP, MCP, command line) and the use cases behind them."""

import os

# Before NumPy is loaded: products here are small, and a second thread of OpenBLAS would spin on another core
# between them, which doubles what a search costs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
