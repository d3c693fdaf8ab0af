"""`brain keys` as real processes, on a data directory that somebody serves and on one that nobody does."""

import subprocess
from pathlib import Path

import httpx
import pytest

from tests.processes import BRAIN, environment, serving_process
from tests.serving import eventually
from tests.test_cli import Shell

pytest_plugins = ["tests.embedding_fixtures"]


def status(url: str, credential: str | None = None) -> int:
    headers = {} if credential is None else {"authorization": f"Bearer {credential}"}
    return httpx.get(f"{url}/brain/stats", headers=headers, trust_env=False, timeout=60).status_code


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def test_keys_made_without_a_server_hold_when_one_starts(alone: Shell) -> None:
    assert "No key yet" in alone.out("keys", "list")
    order = ("--product", "acme", "--agent", "smith", "--rights", "read,write,admin", "--authority", "team")
    made = alone.json("keys", "create", *order, "--acts-for", "user", "--expires", "90d")
    credential = made.pop("credential")
    assert credential.startswith(f"brain_{made['key_id']}_")
    assert made["expires_at"] - made["created_at"] == 90 * 86_400_000
    assert alone.json("keys", "list") == {"keys": [made]}
    table = alone.out("keys", "list")
    assert made["key_id"] in table and "for user" in table and credential not in table
    assert alone.free
    with serving_process(alone.data) as owner:
        assert (status(owner.url), status(owner.url, credential)) == (401, 200)
        remote = {"BRAIN_URL": owner.url, "BRAIN_API_KEY": credential}
        added = alone.json("add", "From afar.", **remote)
        assert added["memory"]["agent_id"] == "smith" and added["memory"]["user_id"] == "acme"
        alone.fails(1, "(forbidden)", "stats", "--agent", "jones", **remote)
        alone.fails(1, "(authority_not_allowed)", "add", "Big.", "--authority", "policy", **remote)
        alone.fails(1, "(unauthenticated)", "stats", BRAIN_URL=owner.url)
        # Through the owner, by its token: any product, and `default` when none is named.
        assert alone.json("stats", "--product", "acme", "--agent", "smith")["total"] == 1
        assert alone.json("stats")["total"] == 0
        assert alone.json("stats", BRAIN_API_KEY=credential)["total"] == 1
        assert "is revoked" in alone.out("keys", "revoke", made["key_id"])
        assert status(owner.url, credential) == status(owner.url) == 401  # at once, and the door stays shut
    assert "revoked" in alone.out("keys", "list")
    assert alone.json("keys", "revoke", made["key_id"])["revoked_at"] is not None
    assert alone.json("stats", "--product", "acme", "--agent", "smith")["total"] == 1  # its own owner now


def test_a_credential_stands_in_no_log_even_of_the_most_talkative_server(alone: Shell) -> None:
    command = [*BRAIN, "serve", "--data", str(alone.data), "--port", "0"]
    talkative = environment(BRAIN_LOG__LEVEL="debug")
    with subprocess.Popen(command, env=talkative, stderr=subprocess.PIPE, text=True) as process:
        try:
            card = alone.data / "owner.json"
            eventually(lambda: process.poll() is not None or card.exists(), within=60)
            done = alone.run("keys", "create", "--product", "acme", BRAIN_LOG__LEVEL="debug")
            credential = done.stdout.split()[-1]
            assert done.returncode == 0 and credential.startswith("brain_"), done.stderr
            assert alone.json("stats", BRAIN_API_KEY=credential)["total"] == 0
            alone.fails(1, "(unauthenticated)", "stats", BRAIN_API_KEY=credential + "x")
        finally:
            process.terminate()
            _, logs = process.communicate(timeout=60)
    secret = credential.split("_", 2)[2]
    assert process.returncode == 0 and "serving" in logs
    assert secret not in logs and secret not in done.stderr
