"""The rules of the house that a machine can check."""

from __future__ import annotations

import argparse
import ast
import importlib
import itertools
import re
import subprocess
from pathlib import Path

import asyncpg
import pytest

from worker.assets import Assets
from worker.commands import COMMANDS
from worker.commands.preview import preview_message
from worker.errors import QuotaWorkerError
from worker.postgres.queries import load_queries
from worker.rendering import LANGUAGES, Renderer
from worker.samples import DIGEST, KINDS, SAMPLES, sample_facts

ROOT = Path(__file__).resolve().parent.parent
LINES_MAX = 400
SOURCE_SUFFIXES = {".py", ".sql", ".sh", ".j2", ".toml"}
ADAPTERS = sorted(path.stem for path in (ROOT / "sql" / "queries").glob("*.sql"))


def tracked(*suffixes: str) -> list[Path]:
    """The project's own files: of git where there is one, else all but hidden folders."""
    try:
        listed = subprocess.run(
            [
                "git",
                "-c",
                "safe.directory=*",
                "ls-files",
                "--cached",
                "--others",
                "--exclude-standard",
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
        ).stdout.splitlines()
        paths = [ROOT / name for name in listed]
    except (OSError, subprocess.CalledProcessError):
        paths = [
            p
            for p in ROOT.rglob("*")
            if not any(x.startswith(".") for x in p.relative_to(ROOT).parts)
        ]
    return [path for path in paths if path.is_file() and path.suffix in suffixes]


def test_there_are_files_to_check() -> None:
    assert len(tracked(".py")) > 40
    assert len(tracked(".sql")) > 10


def test_no_file_is_longer_than_400_lines() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for path in tracked(".py", ".sql")
        if (count := len(path.read_text(encoding="utf-8").splitlines())) > LINES_MAX
    }
    assert long == {}


SQL_START = re.compile(
    r"^\s*(?:--[^\n]*\n\s*)*(SELECT\s.+|INSERT\s+INTO\s|UPDATE\s+\w+\s+SET\s|DELETE\s+FROM\s|WITH\s+\w+\s+AS\s*\(|"
    r"CREATE\s+(?:TABLE|INDEX|FUNCTION|VIEW|ROLE|DATABASE|OR\s+REPLACE)|ALTER\s+(?:TABLE|ROLE)|DROP\s+(?:TABLE|ROLE|DATABASE)|"
    r"GRANT\s|REVOKE\s|LOCK\s+TABLE|TRUNCATE\s|SET\s+(?:LOCAL|ROLE|SESSION|search_path)\b|BEGIN;|COMMIT;?$|NOTIFY\s|LISTEN\s)",
    re.DOTALL,
)


def sql_strings(source: str) -> list[str]:
    """String constants, f-strings included, that begin like a statement of SQL."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        and node.body
        and isinstance(node.body[0], ast.Expr)
        and isinstance(node.body[0].value, ast.Constant)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in docstrings
        and SQL_START.match(node.value)
    ]


def test_the_sql_finder_finds_sql() -> None:
    found = sql_strings(
        'x = "SELECT 1 FROM t"; y = f"UPDATE {t} SET a = 1"; z = """-- c\n  CREATE TABLE x"""'
    )
    assert len(found) == 2  # the f-string's first piece is "UPDATE ", too little to judge
    assert sql_strings('a = "Select a tenant"; b = "update the limits"; c = "with care"') == []


def test_no_sql_text_in_python() -> None:
    found = {
        str(path.relative_to(ROOT)): strings
        for path in tracked(".py")
        if path.is_relative_to(ROOT / "worker")
        and (strings := sql_strings(path.read_text(encoding="utf-8")))
    }
    # An administrator's psql session needs its search_path before sql/roles.sql.
    found.pop("worker/postgres/migrate.py", None)
    assert found == {}


def test_the_clock_is_read_in_one_place() -> None:
    reading = re.compile(
        r"\b(datetime\.now|datetime\.utcnow|date\.today|time\.time|time\.monotonic)\("
    )
    found = {
        str(path.relative_to(ROOT))
        for path in tracked(".py")
        if path.is_relative_to(ROOT / "worker") and reading.search(path.read_text(encoding="utf-8"))
    }
    # The server's starter waits for a lock before anything else exists.
    assert found - {"worker/clock.py", "worker/postgres/embedded.py"} == set()


def test_a_broad_except_says_why() -> None:
    faults = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked(".py")
        if path.is_relative_to(ROOT / "worker")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if re.match(r"\s*except( BaseException| Exception)?( as \w+)?:\s*(#|$)", line)
        and "noqa: BLE001  " not in line
        and not _reraises(path, number)
    ]
    assert faults == []


def _reraises(path: Path, number: int) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ExceptHandler) and node.lineno == number:
            return any(isinstance(inner, ast.Raise) for inner in ast.walk(node))
    return False


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_exists_and_is_documented(name: str) -> None:
    module = importlib.import_module(f"worker.commands.{name.replace('-', '_')}")
    assert callable(module.run)
    parser = argparse.ArgumentParser(prog=name, add_help=False)
    module.add_arguments(parser)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    documented = readme + "".join(
        p.read_text(encoding="utf-8") for p in (ROOT / "docs").rglob("*.md")
    )
    assert re.search(rf"^\| `quota-worker {name}\b", readme, re.MULTILINE), (
        "no row in README's table"
    )
    missing = [
        option
        for action in _all_actions(parser)
        for option in action.option_strings
        if option.startswith("--") and action.help != argparse.SUPPRESS and option not in documented
    ]
    assert missing == []


def _all_actions(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    actions = list(parser._actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                actions += [a for a in _all_actions(inner) if "--help" not in a.option_strings]
    return actions


def test_every_command_file_is_in_the_table() -> None:
    files = {
        p.stem.replace("_", "-")
        for p in (ROOT / "worker/commands").glob("*.py")
        if p.stem != "__init__"
    }
    assert files == set(COMMANDS)


def test_every_error_has_a_message_and_an_exit_code() -> None:
    def tree(kind: type[QuotaWorkerError]) -> list[type[QuotaWorkerError]]:
        return [kind, *(sub for child in kind.__subclasses__() for sub in tree(child))]

    for kind in tree(QuotaWorkerError):
        if not kind.__module__.startswith("worker."):
            continue  # made by a test
        assert kind.__doc__, kind
        assert kind.exit_code in {1, 2}, kind
        assert isinstance(kind.retryable, bool), kind
        assert "\n" not in kind.default_message(), kind
        if kind.__init__ is QuotaWorkerError.__init__:  # others want their facts
            assert str(kind()) == kind.default_message()


@pytest.mark.parametrize("adapter", ADAPTERS)
async def test_every_named_query_prepares(adapter: str, conn: asyncpg.Connection) -> None:
    queries = load_queries(Assets(), adapter)
    assert len(queries) > 0
    for name in queries:
        try:
            await conn.prepare(queries[name])
        except asyncpg.PostgresError as error:
            pytest.fail(f"sql/queries/{adapter}.sql, {name}: {error}")


def test_every_named_query_is_used() -> None:
    sources = "".join(
        p.read_text(encoding="utf-8") for p in tracked(".py") if p.is_relative_to(ROOT / "worker")
    )
    unused = [
        f"{adapter}.{name}"
        for adapter in ADAPTERS
        for name in load_queries(Assets(), adapter)
        if f'"{name}"' not in sources and not re.match(r"set_(zone|currency|locale)$", name)
    ]
    assert unused == []


TEMPLATES = sorted(
    str(path.relative_to(ROOT / "templates")) for path in (ROOT / "templates").glob("*/*.j2")
)


@pytest.fixture(scope="module")
def renderer() -> Renderer:
    """One for all: compiling the templates takes longer than rendering them."""
    return Renderer(Assets())


FRAMES = sorted(name for name in TEMPLATES if name.startswith("frame/"))


def test_every_template_is_there_in_both_languages() -> None:
    swapped = {"en": "zh-CN", "zh-CN": "en"}
    found = {
        re.sub(r"\.(en|zh-CN)\.", lambda m: f".{swapped[m[1]]}.", name, count=1)
        for name in TEMPLATES
    }
    assert found ^ set(TEMPLATES) == set()


@pytest.mark.parametrize("samples", SAMPLES)
@pytest.mark.parametrize("language", LANGUAGES)
def test_every_kind_renders_in_every_frame_from_sample_facts(
    samples: str, language: str, renderer: Renderer
) -> None:
    for kind, frame in itertools.product(KINDS, FRAMES):
        family, part, _ = frame.removeprefix("frame/").split(".")
        if kind == DIGEST and family in {"console", "webhook"}:
            continue  # they collect nothing
        messages = [
            preview_message(facts, kind, family, language, number)
            for number, facts in enumerate(sample_facts(kind, samples), start=1)
        ]
        if kind == DIGEST:
            text = renderer.render_digest(messages, family, part)
            assert "could not be rendered" not in text, frame
            assert "无法生成" not in text, frame
        else:
            text = renderer.render(messages[0], family, part)
        assert text, (kind, frame)
        assert "{{" not in text or samples == "hostile-names", (kind, frame)


def test_every_kind_has_samples() -> None:
    kinds = {name.partition("/")[0] for name in TEMPLATES} - {"frame"}
    assert kinds == set(KINDS)


FUNCTION = re.compile(r"CREATE (?:OR REPLACE )?FUNCTION\s+(\w+)", re.IGNORECASE)


def test_function_files_are_schema_free_and_fixed_to_one() -> None:
    faults = []
    for path in (ROOT / "sql/functions").glob("*.sql"):
        text = path.read_text(encoding="utf-8")
        if not FUNCTION.search(text):
            faults.append(f"{path.name}: no CREATE FUNCTION")
        if re.search(r"\bpublic\.", text):
            faults.append(f"{path.name}: names a schema")
        if not text.lstrip().startswith("--"):
            faults.append(f"{path.name}: no head comment")
        if re.search(r"\bCURRENT_DATE\b", re.sub(r"--[^\n]*", "", text)):
            faults.append(f"{path.name}: CURRENT_DATE follows the session's zone")
    assert faults == []


def test_migrations_are_numbered_without_gaps() -> None:
    numbers = [int(p.name[:4]) for p in Assets().sql_files("migrations")]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_privileged_functions_have_a_fixed_search_path(conn: asyncpg.Connection) -> None:
    loose = await conn.fetch(
        "SELECT p.proname FROM pg_proc p WHERE p.pronamespace = 'public'::regnamespace AND p.prosecdef "
        "AND NOT EXISTS (SELECT FROM unnest(p.proconfig) c WHERE c = 'search_path=public, pg_temp')"
    )
    assert [row["proname"] for row in loose] == []


async def test_no_triggers_and_no_unlogged_tables(conn: asyncpg.Connection) -> None:
    # quota_settings is one row of ours that nobody spreads over machines.
    triggers = "SELECT count(*) FROM pg_trigger WHERE NOT tgisinternal AND tgrelid <> 'quota_settings'::regclass"
    assert await conn.fetchval(triggers) == 0
    unlogged = "SELECT count(*) FROM pg_class WHERE relpersistence <> 'p' AND relkind IN ('r', 'p') AND relnamespace = 'public'::regnamespace"
    assert await conn.fetchval(unlogged) == 0
    unnamed = (
        "SELECT array_agg(conname::text) FROM pg_constraint WHERE contype = 'c' "
        "AND connamespace = 'public'::regnamespace AND conname ~ '_check[0-9]*$'"
    )
    assert await conn.fetchval(unnamed) is None
    naive = (
        "SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid "
        "WHERE c.relnamespace = 'public'::regnamespace AND a.atttypid = 'timestamp'::regtype"
    )
    assert await conn.fetchval(naive) == 0


def test_nothing_private_is_committed() -> None:
    """No absolute path of a developer's machine, no package registry's address."""
    # taken apart, so that this file doesn't hold what it looks for
    folders = "|".join(f"/{name}/" for name in ("work", "root/.pyenv", "home/[a-z]+/[a-z]"))
    options = "|".join(f"--{name}-url" for name in ("index", "extra-index"))
    private = re.compile(f"{folders}|{options}|https?://[^ ]+/simple(/| |$)")
    me = Path(__file__).resolve()
    faults = [
        str(path.relative_to(ROOT))
        for path in tracked(".py", ".sql", ".md", ".txt", ".toml", ".yaml", ".yml", ".sh", "")
        if path != me and private.search(path.read_text(encoding="utf-8", errors="replace"))
    ]
    assert faults == []


def test_requirements_are_hashed_and_without_addresses() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in text
        pins = re.findall(r"^[A-Za-z0-9][\w.\-]*==", text, re.MULTILINE)
        assert len(pins) > 10
        for block in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE):
            if "==" in block:
                assert "--hash=sha256:" in block, block.splitlines()[0]
