"""What is taken out of topics and labels, and what is not."""

import pytest

from models.redaction import MARK, redact

SECRETS = [
    "ada@example.com",
    "o'neil+tag@mail.example.co.uk",
    "ghp_16C7e42F292c6912E7710c838347Ae178B4a",
    "github_pat_11ABCDEFG0aBcDeFgHiJkL_mnop",
    "AKIAIOSFODNN7EXAMPLE",
    "sk-proj-abcdefghijklmnop1234",
    "xoxb-123456789012-abcdefghijkl",
    "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0T",
    "brain_0123456789ab_0123456789abcdef0123456789abcdef",
    "glpat-abcdefghij0123456789",
    "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",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_is_taken_out_and_nothing_else(secret: str) -> None:
    assert redact(f"fix: {secret} leaks") == f"fix: {MARK} leaks"
    assert redact(f"{secret}, {secret}") == f"{MARK}, {MARK}"


def test_a_named_secret_goes_without_its_name() -> None:
    assert redact("password: hunter22, then") == f"password: {MARK}, then"
    assert redact("the token is tr0ub4dor.") == f"the token is {MARK}"


@pytest.mark.parametrize(
    "text",
    [
        "Batch text display",
        "fix the token refresh of ERR-4711",
        "018f3e5a-0000-7000-8000-000000000000 is an id",
        "brain@home and @mentions",
        "日本語のトピック",
        "",
    ],
)
def test_plain_words_stay(text: str) -> None:
    assert redact(text) == text
