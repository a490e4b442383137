"""Which module may import what from outside: one door for each foreign package, one reader of JSON."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions

import pytest

from tests.architecture.sources import PACKAGES, ROOT, Module, dotted, imports, sources

#: Each foreign package (and asyncio, trio and sqlite3) with the modules that may import it. A
#: name that ends in a dot stands for everything below. What is not here may not be imported.
DOORS: dict[str, tuple[str, ...]] = {
    "anyio": ("agentloop.", "adapters."),
    "msgspec": ("agentloop.", "adapters.", "graphstate."),
    "apsw": ("graphstate.store.db",),
    "jsonschema": ("agentloop.schemas", "agentloop.tasks.file", "agentloop.verdict"),
    "referencing": ("agentloop.schemas",),
    "rich": ("agentloop.cli.", "graphstate.cli.watch", "graphstate.cli.reembedding"),
    "openai": ("adapters.openai.",),
    "httpx2": ("adapters.openai.",),
    "py_trees": ("adapters.py_trees.",),
    "mcp": ("adapters.mcp.",),
    "pydantic": ("adapters.mcp.stdio",),
    "uvicorn": ("adapters.mcp.http",),
    "aiostream": ("agentloop.streams.operators", "agentloop.streams.bridges"),
    "toktok": ("agentloop.context.tokens",),
    "snowballstemmer": ("agentloop.context.words",),
    "numpy": ("graphstate.store.matrix", "graphstate.store.clusters", "adapters.embed."),
    "safetensors": ("adapters.embed.",),
    "tokenizers": ("adapters.embed.",),
    "pytest": ("agentloop.evals.plugin", "agentloop.evals.collection"),
    "asyncio": ("agentloop.streams.operators",),
    "trio": (),
    "sqlite3": (),
}

#: These are slow to import or optional, so a module names them inside the function that uses
#: them, unless it is itself imported late.
LATE = {
    "apsw",
    "jsonschema",
    "referencing",
    "rich",
    "openai",
    "httpx2",
    "aiostream",
    "numpy",
    "safetensors",
    "tokenizers",
    "asyncio",
    "toktok",
    "snowballstemmer",
    "mcp",
    "pydantic",
    "uvicorn",
}
IMPORTED_LATE = {
    "agentloop.streams.operators",
    "agentloop.cli.live",
    "adapters.mcp.http",
    "adapters.mcp.server",
    "adapters.mcp.stdio",
}

#: Foreign packages that come with another one: the client sits on it and raises its errors; the
#: validators take their references from it; the protocol's messages and its server are made of them.
COMES_WITH = {"httpx2": "openai", "referencing": "jsonschema", "pydantic": "mcp", "uvicorn": "mcp"}


def foreign(module: Module) -> Iterator[tuple[ast.stmt, str]]:
    for node, name in imports(module.tree):
        root = name.partition(".")[0]
        known = root in sys.stdlib_module_names or root in {*PACKAGES, ""}
        if root in DOORS or not known:
            yield node, root


def allowed(module: str, doors: tuple[str, ...]) -> bool:
    return any(module == door or (door[-1] == "." and f"{module}.".startswith(door)) for door in doors)


def test_each_foreign_package_has_its_door() -> None:
    wrong = [
        f"{module.at(node)} imports {name}"
        for module in sources()
        for node, name in foreign(module)
        if not allowed(module.name, DOORS.get(name, ()))
    ]
    assert wrong == []


@pytest.mark.parametrize("name", sorted(LATE))
def test_slow_packages_are_imported_where_they_are_used(name: str) -> None:
    early = [
        module.at(node)
        for module in sources()
        if module.name not in IMPORTED_LATE
        for node, imported in foreign(Module(module.name, module.path, _run_on_import(module.tree)))
        if imported == name
    ]
    assert early == []


def _run_on_import(tree: ast.Module) -> ast.Module:
    """Return the statements that run when the module is imported; not those for type checkers."""
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    return ast.Module(
        [node for node in tree.body if not isinstance(node, later) and not _for_types(node)], []
    )


def _for_types(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def test_every_foreign_package_is_a_declared_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    needed = [
        *project["dependencies"],
        *(x for extra in project["optional-dependencies"].values() for x in extra),
    ]
    declared = {_plain(line) for line in needed}
    used = {COMES_WITH.get(name, name) for m in sources() for _, name in foreign(m)} - {"asyncio"}
    distributions = packages_distributions()
    assert {name for name in used if not {_plain(d) for d in distributions[name]} & declared} == set()


def _plain(requirement: str) -> str:
    name = requirement.split(";")[0].split("[")[0]
    return "".join(
        c for c in name.lower().replace("_", "-").split(">")[0].split("=")[0].split("<")[0] if c != " "
    )


# ------------------------------------------------------------------------------- JSON


def test_json_is_read_in_one_module_only() -> None:
    wrong = [
        module.at(node)
        for module in sources()
        if not module.name.endswith("._canonical")
        for node in decoders(module.tree)
    ]
    assert wrong == []


def decoders(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield what reads JSON, or another format that msgspec reads."""
    readers = {
        "json": {"loads", "load", "JSONDecoder", "decoder", "scanner"},
        "msgspec": {"json", "msgpack", "yaml", "toml"},
    }
    makers = {"msgspec.json.schema", "msgspec.json.schema_components"}  # they read types, not texts
    passed: set[ast.AST] = set()
    for node in ast.walk(tree):
        found: list[str] = []
        if node in passed:
            continue
        if isinstance(node, ast.Attribute) and dotted(node) in makers:
            passed.add(node.value)
        elif isinstance(node, ast.ImportFrom):
            found = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute):
            found = [dotted(node)]
        for root, _, rest in (name.partition(".") for name in found):
            if rest.partition(".")[0] in readers.get(root, ()) or root in {"orjson", "ujson"}:
                yield node


@pytest.mark.parametrize(
    "text",
    [
        "import json\njson.loads(x)",
        "from json import loads",
        "from json.decoder import JSONDecoder",
        "import msgspec\nmsgspec.json.decode(x)",
        "from msgspec import json",
        "from msgspec.json import Decoder",
        "import msgspec.json as j",
    ],
)
def test_another_reader_of_json_would_be_noticed(text: str) -> None:
    assert list(decoders(ast.parse(text)))


def test_both_packages_write_and_read_json_with_the_same_code() -> None:
    ours, theirs = (ROOT / package / "_canonical.py" for package in ("agentloop", "graphstate"))
    assert ours.read_bytes() == theirs.read_bytes()


# ------------------------------------------------------------------------ what an import loads


def loaded_by(statement: str) -> set[str]:
    code = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    return set(done.stdout.split())


def test_importing_agentloop_loads_nothing_heavy() -> None:
    loaded = loaded_by("import agentloop")
    heavy = {
        "openai",
        "httpx2",
        "aiostream",
        "jsonschema",
        "py_trees",
        "apsw",
        "rich",
        "numpy",
        "asyncio",
        "trio",
    }
    assert loaded & (heavy | {"graphstate", "adapters", "sqlite3", "argparse"}) == set()


def test_importing_graphstate_loads_nothing_that_waits_or_draws() -> None:
    loaded = loaded_by("import graphstate")
    assert (
        loaded & {"agentloop", "adapters", "anyio", "asyncio", "trio", "apsw", "sqlite3", "rich", "openai"}
        == set()
    )


@pytest.mark.parametrize("adapter", ["openai", "command", "graph", "tools"])
def test_importing_an_adapter_does_not_load_its_client(adapter: str) -> None:
    assert (
        loaded_by(f"import adapters.{adapter}") & {"openai", "httpx2", "apsw", "sqlite3", "jsonschema"}
        == set()
    )


def test_both_commands_can_explain_themselves_without_anything_foreign() -> None:
    foreign_names = {"openai", "httpx2", "aiostream", "jsonschema", "py_trees", "apsw", "rich", "asyncio"}
    assert loaded_by("import agentloop.cli") & foreign_names == set()
    assert loaded_by("import graphstate.cli") & (foreign_names | {"anyio", "agentloop"}) == set()
