"""What may be asked of a rebuild, offline and of a running server alike."""

from typing import Annotated, Literal

from pydantic import Field

from models.errors import invalid
from models.layers import Layer
from models.requests import Request


class RebuildOrder(Request):
    """Embed again and fill Chroma anew (`rebuild`), return to the generation before (`rollback`), or delete
    that one (`prune`)."""

    action: Literal["rebuild", "rollback", "prune"] = "rebuild"
    model: Annotated[
        str | None, Field(min_length=1, description="Name or path of a model; else the configured one.")
    ] = None
    from_vectors: Annotated[bool, Field(description="Fill Chroma from the ledger's vectors only.")] = False
    scope: Annotated[list[str], Field(default_factory=list, description="PRODUCT/AGENT: only these scopes.")]
    layers: Annotated[list[Layer], Field(default_factory=list, description="Only these layers.")]
    only_missing: Annotated[bool, Field(description="Embed only what has no vectors yet.")] = False
    dry_run: Annotated[bool, Field(description="Count and estimate; change nothing.")] = False

    def check(self) -> None:
        """Raises InvalidArgument where two of them contradict each other."""
        narrowed = [name for name in ("scope", "layers") if getattr(self, name)]
        given = [name for name in ("model", "from_vectors", "only_missing") if getattr(self, name)] + narrowed
        if self.action != "rebuild" and given:
            raise invalid(given[0], f"does not go with {self.action}; leave it out")
        if self.action == "prune" and self.dry_run:
            raise invalid("dry_run", "does not go with prune; leave it out")
        if self.from_vectors and self.model is not None:
            raise invalid("model", "does not go with from_vectors; leave one out")
        if self.from_vectors and self.only_missing:
            raise invalid("only_missing", "does not go with from_vectors; leave one out")
