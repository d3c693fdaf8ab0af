"""`metadata` comes back as `custom`, verbatim: tested on the bytes of the answers."""

import json

import pytest

from tests.serving import Api, Server

pytest_plugins = ["tests.serving_fixtures"]

VERBATIM = [
    "{}",
    '{"a":null}',
    '{"t":[]}',
    '{"t":["x",1]}',
    '{"n":{"k":[{"z":1}]}}',
    '{"price":2.50,"small":1e-7,"big":1E+22,"zero":-0.0,"one":1.0,"int":1}',
    '{"z":1,"a":2,"m":{"z":1,"a":2}}',
    '{"max":9223372036854775807,"min":-9223372036854775808}',
    '{"digits":0.1000000000000000055511151231257827,"long":123456789012345678901234567890.5}',
    '{"text":"é 你好 🦊 \\" \\\\ \\n","":"empty key","a.b":{"$x":true},"ключ":false}',
    '{"chroma:document":"x","#":"y","record":"z","scope":"w"}',
    '{"empty":{"list":[[],[[]],{}]}}',
    '{"n":-0}',
]


@pytest.mark.parametrize("text", VERBATIM)
def test_metadata_comes_back_byte_for_byte_from_every_door_and_store(
    shared_server: Server, api: Api, text: str
) -> None:
    written = api.post("/brain/memory", b'{"content":"Meta.","metadata":' + text.encode() + b"}")
    expected = b'"custom":' + text.encode() + b","
    id = written.json()["memory"]["memory_id"]
    search = api.post("/brain/memory/search", {"query": "meta"})
    warm = api.get(f"/brain/memory/{id}")
    listed = api.get("/brain/memory")
    shared_server.settle()
    shared_server.evict(api)
    cold = api.get(f"/brain/memory/{id}")
    assert (warm.json()["source"], cold.json()["source"]) == ("graph", "vdb")
    for answer in (written, search, warm, listed, cold):
        assert expected in answer.content


def test_white_space_between_the_tokens_is_all_that_is_not_kept(api: Api) -> None:
    body = b'{"content": "Loose.", "metadata": { "a" : [ 1 , 2.50 ] ,\n "b" : "\\u00e9 \\/" } }'
    assert '"custom":{"a":[1,2.50],"b":"é /"}'.encode() in api.post("/brain/memory", body).content


def test_case_1_a_batch_of_metadata_that_vector_stores_refuse(shared_server: Server, api: Api) -> None:
    metadata = VERBATIM[1:5] + VERBATIM[:1]
    items = ",".join(
        f'{{"content":"Item {place}.","metadata":{text}}}' for place, text in enumerate(metadata)
    )
    answer = api.post("/brain/memory/batch", f'{{"items":[{items}]}}'.encode())
    assert answer.status_code == 207
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [201] * 5
    shared_server.settle()
    for result, text in zip(results, metadata, strict=True):
        read = api.get(f"/brain/memory/{result['memory_ids'][0]}")
        assert f'"custom":{text},'.encode() in read.content
        assert read.json()["custom"] == json.loads(text) == result["memory"]["custom"]
