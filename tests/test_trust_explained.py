"""Why a policy stands where it stands: the explain of a search, over HTTP."""

from tests.serving import Api

pytest_plugins = ["tests.serving_fixtures"]

QUERY = "customer invoices are kept years"


def test_the_explanation_says_why_a_policy_is_above_a_nearer_text_and_that_an_irrelevant_one_is_not(
    api: Api,
) -> None:
    near = api.add("Customer invoices are kept three years, said Tom.")["memory"]["memory_id"]
    policy = api.add(
        "Customer invoices are kept ten years, as the law demands it.", source_authority="policy"
    )
    rule = policy["memory"]["memory_id"]
    beside = api.add("The canteen closes at three on Fridays.", source_authority="policy")
    irrelevant = beside["memory"]["memory_id"]
    for number in range(8):
        api.add(f"The bicycle shed has {number} free places.")
    hits = api.search(QUERY, explain=True, limit=100)["results"]
    found = {hit["memory_id"]: hit["explain"] for hit in hits}
    assert [hit["memory_id"] for hit in hits[:2]] == [rule, near]
    why, other = found[rule], found[near]
    assert other["dense"] > why["dense"] and other["relevance"] > why["relevance"], "the other is nearer"
    gained = {name: why["terms"][name] - other["terms"][name] for name in why["terms"]}
    assert gained["authority"] == max(gained.values()) > 0, "and this is what outweighs it"
    for told in (why, other):
        assert abs(sum(told["terms"].values()) - told["fused"]) < 1e-3
    beneath = found[irrelevant]
    assert beneath["relevance"] < beneath["floor"] and beneath["terms"]["authority"] == 0
