"""The shape of the code: who imports whom, what happens at import, and how long things are."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("models", "stores", "service")  # each imports only from those before it
FILES = sorted(path for layer in LAYERS for path in (ROOT / layer).rglob("*.py"))
each_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))

# Who may import an engine: the layer, or the one file.
ENGINES = {
    "chromadb": "stores/",
    "networkx": "stores/",
    "sqlalchemy": "stores/",
    "alembic": "stores/",
    "sentence_transformers": "models/embedding.py",
    "transformers": "models/e5_weights.py",
    "torch": "models/",
    "onnxruntime": "models/",
    "onnx": "models/exporting.py",
}
HEAVY = ("chromadb", "torch", "onnxruntime", "onnx", "sentence_transformers", "transformers")

# Where any exception at all may be caught and not raised again: at the top of a thread, a process, a task or
# a call, so that it can go on.
CATCHES_ALL = {
    "models/embedder.py",
    "service/checkup.py",
    "service/dispatch.py",
    "service/expiry.py",
    "service/gate.py",
    "service/http_api.py",
    "service/rescan.py",
    "stores/applier.py",
    "stores/chroma_worker.py",
    "stores/embedding_run.py",
    "stores/publisher.py",
    "stores/residents.py",
    "stores/writer.py",
}


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imported(path: Path) -> Iterator[str]:
    """The first part of every module that the file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield (node.module or "").split(".")[0]


@each_file
def test_imports_run_one_way(path: Path) -> None:
    layer = path.relative_to(ROOT).parts[0]
    above = set(LAYERS[LAYERS.index(layer) + 1 :]) | {"tests"}
    assert not above & set(imported(path))


@each_file
def test_an_engine_is_imported_only_where_it_is_at_home(path: Path) -> None:
    for module in set(imported(path)) & set(ENGINES):
        assert name(path).startswith(ENGINES[module]), f"{name(path)} imports {module}"


@each_file
def test_every_module_says_what_it_is_for(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree) or not tree.body


@each_file
def test_no_file_and_no_function_is_too_long_to_be_read_in_one_sitting(path: Path) -> None:
    # Migrations aside: one is a list of tables, written once.
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 300
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and path.parent.name != "versions":
            assert node.end_lineno is not None
            assert node.end_lineno - node.lineno < 60, f"{node.name} in {name(path)}"


def test_importing_the_service_loads_no_engine_and_no_model() -> None:
    script = f"import sys, service.app; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


def test_importing_the_models_loads_no_store() -> None:
    modules = [f"models.{path.stem}" for path in (ROOT / "models").glob("*.py") if path.stem != "__init__"]
    ours = ("stores", "service", "sqlalchemy", "networkx", "starlette", *HEAVY)
    script = f"import sys, {', '.join(modules)}; print([m for m in {ours} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux shows them")
def test_linear_algebra_keeps_no_second_core_busy() -> None:
    script = "import os, service.app; print(len(os.listdir('/proc/self/task')))"
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "1"


def catching_all(tree: ast.Module) -> Iterator[ast.ExceptHandler]:
    """Handlers that take any exception and don't raise it again."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ExceptHandler):
            caught = (
                {n.id for n in ast.walk(node.type) if isinstance(n, ast.Name)} if node.type else {"Exception"}
            )
            again = any(isinstance(n, ast.Raise) and n.exc is None for n in ast.walk(node))
            if caught & {"Exception", "BaseException"} and not again:
                yield node


def test_any_exception_is_caught_only_in_the_files_that_are_listed() -> None:
    found = {name(path) for path in FILES if any(catching_all(ast.parse(path.read_text(encoding="utf-8"))))}
    assert found == CATCHES_ALL


@each_file
def test_who_catches_any_exception_logs_it_or_says_why_not(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for handler in catching_all(ast.parse(text)):
        logged = any(isinstance(n, ast.Attribute) and n.attr == "exception" for n in ast.walk(handler))
        around = "".join(text.splitlines()[handler.lineno - 2 : handler.lineno])
        assert logged or ("noqa: BLE001" in around and re.search(r"# \w{2}.{20,}", around)), handler.lineno


@each_file
def test_nothing_is_printed(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            assert node.func.id != "print", f"line {node.lineno}"


def test_names_of_files_say_what_is_in_them() -> None:
    vague = re.compile(r"util|helper|manager|base|common|misc")
    assert [name(path) for path in FILES if vague.search(path.stem)] == []
