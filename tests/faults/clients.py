"""Clients that do mixed work on a server which may die at any moment, and know what must be there then."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

MEMORY = "/brain/memory"
ENOUGH = 150  # memories of a client: with more, most of what it does is purge, so that rounds stay short
WORDS = "amber birch cobalt delta ember fjord grove harbor iris juniper kelp lagoon".split()


@dataclass
class Known:
    """A memory as its client knows it."""

    memory_id: str
    text: str
    status: str = "active"
    tags: list[str] = field(default_factory=list)
    said: bool = False  # in a talk: its text never changes


@dataclass(frozen=True)
class Sent:
    """A request, and what it does to what is known once it has succeeded."""

    method: str
    path: str
    arguments: dict[str, Any]
    learn: Callable[[Any], None]


class Client:
    """One user's client. Its requests follow each other, so that it always knows what must be there."""

    def __init__(self, number: int, dice: random.Random) -> None:
        self.user = f"user{number}"
        self.memories: dict[str, Known] = {}
        self.links: list[tuple[str, str]] = []
        self.doubt: Sent | None = None
        self.acknowledged = 0
        self.fresh: list[str] = []
        self._dice = dice
        self._count = 0

    async def work(self, http: httpx.AsyncClient, acknowledge: Callable[[], None]) -> None:
        """Send until the server dies."""
        while True:
            self.doubt = self._next()
            try:
                await self.settle(http)
            except httpx.TransportError:
                return
            acknowledge()

    async def settle(self, http: httpx.AsyncClient) -> None:
        """Send what has no answer yet. Raises httpx.TransportError when there is none again."""
        sent = self.doubt
        if sent is None:
            return
        given = {"params" if sent.method == "DELETE" else "json": sent.arguments}
        answer = await http.request(sent.method, sent.path, headers={"X-Brain-User": self.user}, **given)
        gone_already = sent.path == "/brain/purge" and answer.status_code == 404
        assert answer.status_code < 300 or gone_already, (sent, answer.text)
        self.doubt = None
        self.acknowledged += 1
        sent.learn(answer.json())

    def of(self, status: str) -> list[Known]:
        return [memory for memory in self.memories.values() if memory.status == status]

    def _next(self) -> Sent:
        self._count += 1
        if len(self._plain()) < 6:
            return self._add()
        makers = (
            [self._add] * 5 + [self._batch, self._talk] * 2 + [self._update, self._label, self._supersede] * 3
        )
        makers += [self._delete, self._purge, self._link] * 2
        if sum(memory.status != "purged" for memory in self.memories.values()) > ENOUGH:
            makers += [self._purge] * 20
        if self.of("forgotten") or self.of("archived"):
            makers += [self._restore] * 2
        return self._dice.choice(makers)()

    def _name(self) -> str:
        return f"{self.user}n{self._count}"

    def _text(self, part: int = 0) -> str:
        words = self._dice.choices(WORDS, k=6)
        return f"{self._name()}p{part} {' '.join(words)}"

    def _write(self, method: str, path: str, learn: Callable[[Any], None], **arguments: Any) -> Sent:
        return Sent(method, path, arguments | {"idempotency_key": self._name()}, learn)

    def _new(self, ids: list[str], texts: list[str], *, said: bool = False) -> None:
        for memory_id, text in zip(ids, texts, strict=True):
            self.memories[memory_id] = Known(memory_id, text, said=said)
        self.fresh += ids

    def _add(self) -> Sent:
        text = self._text()
        return self._write("POST", MEMORY, lambda body: self._new(body["memory_ids"], [text]), content=text)

    def _talk(self) -> Sent:
        texts = [self._text(part) for part in range(3)]
        turns = [{"role": "user", "content": text} for text in texts]
        return self._write(
            "POST",
            MEMORY,
            lambda body: self._new(body["memory_ids"], texts, said=True),
            messages=turns,
            session_id=f"s{self._count % 5}",
        )

    def _batch(self) -> Sent:
        texts = [self._text(part) for part in range(self._dice.randint(2, 6))]

        def learn(body: Any) -> None:
            self._new([result["memory_ids"][0] for result in body["results"]], texts)

        items = [{"content": text} for text in texts]
        return self._write("POST", f"{MEMORY}/batch", learn, items=items, atomic=self._count % 2 == 0)

    def _update(self) -> Sent:
        old, text = self._dice.choice(self._plain()), self._text()
        return self._write("PATCH", f"{MEMORY}/{old.memory_id}", self._replacing([old], text), content=text)

    def _supersede(self) -> Sent:
        plain = self._plain()
        old, text = self._dice.sample(plain, min(2, len(plain))), self._text()
        ids = [memory.memory_id for memory in old]
        path = f"{MEMORY}/supersede"
        return self._write("POST", path, self._replacing(old, text), content=text, supersedes=ids)

    def _plain(self) -> list[Known]:
        return [memory for memory in self.of("active") if not memory.said]

    def _replacing(self, old: list[Known], text: str) -> Callable[[Any], None]:
        def learn(body: Any) -> None:
            memory = body["memory"]
            self._new([memory["memory_id"]], [text])
            self.memories[memory["memory_id"]].tags = memory["tags"]
            for one in old:
                one.status = "superseded"

        return learn

    def _label(self) -> Sent:
        memory, tags = self._dice.choice(self.of("active")), [f"tag{self._count}"]

        def learn(_: Any) -> None:
            memory.tags = tags

        return self._write("PATCH", f"{MEMORY}/{memory.memory_id}", learn, tags=tags)

    def _delete(self) -> Sent:
        memory, mode = self._dice.choice(self.of("active")), self._dice.choice(["forget", "archive"])

        def learn(_: Any) -> None:
            memory.status = "forgotten" if mode == "forget" else "archived"

        return self._write("DELETE", f"{MEMORY}/{memory.memory_id}", learn, mode=mode)

    def _restore(self) -> Sent:
        memory = self._dice.choice(self.of("forgotten") + self.of("archived"))

        def learn(_: Any) -> None:
            memory.status = "active"

        return self._write("POST", f"{MEMORY}/{memory.memory_id}/restore", learn)

    def _purge(self) -> Sent:
        memory = self._dice.choice(self.of("active") + self.of("superseded") + self.of("forgotten"))

        def learn(_: Any) -> None:
            memory.status = "purged"

        return Sent("POST", "/brain/purge", {"memory_id": memory.memory_id}, learn)

    def _link(self) -> Sent:
        one, other = self._dice.sample(self.of("active"), 2)

        def learn(_: Any) -> None:
            self.links.append((one.memory_id, other.memory_id))

        return self._write("PUT", f"/brain/links/{one.memory_id}/related/{other.memory_id}", learn)
