"""What counts as lost in Chroma's index, which can lose live rows (chroma-core/chroma 7758)."""

import asyncio
from collections.abc import Collection

from stores.ledger import Ledger


async def without_copies(ledger: Ledger, lost: Collection[str], looked: int) -> list[str]:
    """The `lost` of so many memories that were looked for by their own vectors, without texts that stand
    there many times: copies are linked to each other only, and an index may never reach them, however whole
    it is. One that reaches nothing at all is broken, whatever it holds."""
    if not 0 < len(lost) < looked:
        return list(lost)
    repeated = await asyncio.to_thread(ledger.repeated, lost)
    return [id for id in lost if id not in repeated]
