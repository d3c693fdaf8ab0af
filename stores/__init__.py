"""Everything that touches disk or an engine. The ledger is canonical; the graph and the vector store are
derived from it and can be thrown away at any time."""
