"""How a command comes to the owner of a data directory, or takes its place while there is none."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NoReturn

from service.cli_options import data_lock
from service.terminal import UNREACHABLE, give_up, refuse

if TYPE_CHECKING:
    from collections.abc import Callable

    from service.settings import Settings
    from stores.lock import Owner

POLLS, PAUSE_S = 600, 0.05  # an owner that is still starting is waited for
ANSWER_S = 60.0

Document = dict[str, Any]


class OwnerLeft(Exception):
    """Nobody listens where the owner's card says. The text says so."""


def ask_or_do(settings: Settings, ask: Callable[[Owner], Document], do: Callable[[], Document]) -> Document:
    """What the owner answers to `ask`, or what `do` gives under the lock of the directory when there is
    none. `ask` raises OwnerLeft when the owner has just left; then we look again."""
    lock = data_lock(settings)
    for _ in range(POLLS):
        if lock.acquire():
            try:
                return do()
            finally:
                lock.release()
        owner = lock.owner()
        if owner is not None:
            try:
                return ask(owner)
            except OwnerLeft:
                pass
        time.sleep(PAUSE_S)
    return not_listening(settings)


def not_listening(settings: Settings) -> NoReturn:
    """End: somebody has the lock and can't be called."""
    give_up(f"{settings.data_directory} is in use by a process that does not listen.", UNREACHABLE)


def answer_of(
    owner: Owner,
    as_json: bool,
    method: str,
    path: str,
    body: Document | None,
    *,
    timeout: float = ANSWER_S,
    refused: Callable[[int, Document], None] = lambda status, problem: None,
) -> Document:
    """The answer of one of the owner's internal routes, within `timeout` seconds. `refused` sees a refusal
    first, and may end the command in its own words. Raises OwnerLeft."""
    import httpx

    headers = {"Authorization": f"Bearer {owner.token}"}
    limits = httpx.Timeout(timeout, connect=5.0)
    try:
        with httpx.Client(base_url=owner.url, headers=headers, trust_env=False, timeout=limits) as http:
            response = http.request(method, path, json=body)
            answer: Document = response.json()
    except (httpx.RequestError, ValueError) as error:
        what = f"{owner.url} gave no answer: {type(error).__name__} {error}"
        if isinstance(error, httpx.ConnectError):
            raise OwnerLeft(what) from error
        give_up(what, UNREACHABLE)
    if response.status_code < 400:
        return answer
    refused(response.status_code, answer)
    return refuse(answer, as_json=as_json)
