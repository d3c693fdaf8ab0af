"""The one registry. HTTP routes, MCP tools, the OpenAPI document and the contract tests are all derived
from `OPERATIONS`, so that they can't drift apart."""

from typing import Any

from service import (
    operations_change,
    operations_context,
    operations_history,
    operations_history_context,
    operations_memory,
    operations_observations,
    operations_raw,
    operations_trust,
    operations_views,
)
from service.operation import KIB, LONG_BODY, Operation

__all__ = ["BY_NAME", "KIB", "LONG_BODY", "OPERATIONS", "Operation"]

OPERATIONS: tuple[Operation[Any], ...] = (
    *operations_memory.OPERATIONS,  # the hot read by id first
    *operations_change.OPERATIONS,
    *operations_views.OPERATIONS,
    *operations_context.OPERATIONS,
    *operations_trust.OPERATIONS,
    *operations_observations.OPERATIONS,
    *operations_raw.OPERATIONS,
    *operations_history.OPERATIONS,
    *operations_history_context.OPERATIONS,
)

BY_NAME = {operation.name: operation for operation in OPERATIONS}
