# SPDX-License-Identifier: Apache-2.0
"""What `lakeward verify` says when it cannot compare, and what it never says."""

import importlib
import re
from pathlib import Path

import pytest

import ingest
from ingest.cli import main as cli
from ingest.errors import ExitCode
from ingest.tools.verify.source_url import SourceUrl
from storage.errors import InvalidOptionError
from tests.unit.ingest.tools.verify.kit import Pair


@pytest.fixture
def pair(tmp_path):
    made = Pair(tmp_path)
    made.lake((("id", "INT"), ("v", "INT")), [(1, 1)])
    made.source("CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)", rows=[(1, 1)])
    return made


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--source", "no url"], ExitCode.CONFIG, "not a database URL"),
        (["--source", "oracle+nothing://u:pw@h/d"], ExitCode.CONFIG, "not a database URL"),
        (["--source", "mysql+mysqldb://u:pw@h/d"], ExitCode.CONFIG, "lakeward[verify]"),
        (
            ["--source", "postgresql+psycopg://u:geheim@127.0.0.1:1/d"],
            ExitCode.UNAVAILABLE,
            "does not answer",
        ),
        (
            ["--source", "mysql+pymysql://u:geheim@127.0.0.1:1/d"],
            ExitCode.UNAVAILABLE,
            "does not answer",
        ),
        (["--source", "sqlite:///nowhere.db"], ExitCode.CONFIG, "no such database file"),
        (["--source-table", "nowhere"], ExitCode.CONFIG, "no such table"),
        (["--where", "nonsense ("], ExitCode.CONFIG, "refused a query"),
        (["--where-lake", "nonsense ("], ExitCode.CONFIG, "cannot be parsed"),
        (["--key", "nothing"], ExitCode.CONFIG, "no such column"),
        (["--exclude", "nothing"], ExitCode.CONFIG, "no such column"),
        (["--exclude", "id"], ExitCode.CONFIG, "key"),
        (["--wait-for", "lag"], ExitCode.CONFIG, "--status-url"),
        (["--source", "${NOT_SET_ANYWHERE}"], ExitCode.CONFIG, "not set"),
    ],
)
def test_mistakes_have_a_message_and_an_exit_code(pair, capsys, arguments, code, said):
    assert cli.main(pair.arguments(*arguments)) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert "geheim" not in captured.out + captured.err


def test_a_missing_package_says_what_to_install(pair, capsys, monkeypatch):
    real = importlib.import_module

    def without(name, package=None):
        if name == "ingest.tools.verify.database":
            raise ModuleNotFoundError("No module named 'sqlalchemy'", name="sqlalchemy")
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", without)
    assert cli.main(pair.arguments()) == ExitCode.CONFIG
    assert "pip install 'lakeward[verify]'" in capsys.readouterr().err


def test_nothing_but_the_database_needs_an_optional_package():
    """`runs` imports the module by name when a database is asked for."""
    root = Path(ingest.__file__).parent
    needs = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*.py")
        if re.search(r"^(import|from) sqlalchemy", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert needs == {"tools/verify/database.py"}
    importing = [
        path.name
        for path in root.rglob("*.py")
        if re.search(
            r"^from ingest\.tools\.verify\.database", path.read_text("utf-8"), re.MULTILINE
        )
    ]
    assert importing == []


def test_wrong_arguments_are_usage_errors(pair, capsys):
    for wrong in (["--key-range", "5"], ["--page-rows", "0"], ["--rechecks", "x"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(pair.arguments(*wrong))
        assert caught.value.code == ExitCode.USAGE
    capsys.readouterr()


def test_tables_of_a_glob_without_a_source_are_skipped(pair, capsys):
    pair.lake(
        (("id", "INT"), ("v", "INT")),
        [(1, 1)],
        name="shop.known",
        options={"lakeward.source-table": "server.main.t"},
    )
    arguments = ["verify", "--warehouse", str(pair.warehouse), "shop.*", "--source", pair.url]
    assert cli.main(arguments) == ExitCode.OK
    out = capsys.readouterr().out
    assert "shop.known: equal (main.t of sqlite" in out
    assert "shop.t: skipped: the table does not say which source table fills it" in out


def test_a_template_names_the_source_tables(pair, capsys):
    code, found = pair.run(capsys, "--source-table", "main.{table}")
    assert (code, found["source"].partition(" ")[0]) == (0, "main.t")


def test_secrets_of_addresses(tmp_path):
    (tmp_path / "pw").write_text("p@ss:/w rd\n")
    text = f"postgresql+psycopg://${{USER_NAME}}:${{file:{tmp_path}/pw}}@db:5432/shop?sslmode=no"
    url = SourceUrl.of(text, {"USER_NAME": "reader"})
    assert url.text == "postgresql+psycopg://reader:p%40ss%3A%2Fw%20rd@db:5432/shop?sslmode=no"
    assert url.label == "postgresql+psycopg://reader@db:5432/shop"
    assert "p@ss" not in repr(url)
    assert url.cleared("login p@ss:/w rd\n failed") == "login *** failed"
    whole = SourceUrl.of("${URL}", {"URL": "mysql+pymysql://u:x%40y@h/d?password=zzz"})
    assert whole.label == "mysql+pymysql://u@h/d"
    assert set(whole.secrets) == {"x%40y", "x@y", "zzz"}
    with pytest.raises(InvalidOptionError, match="not set"):
        SourceUrl.of("${NONE}", {})
