"""The doors (HTTP, MCP, command line) and the use cases behind them."""
