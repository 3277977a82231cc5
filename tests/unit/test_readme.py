# SPDX-License-Identifier: Apache-2.0
"""What the README and the guides show runs as it stands there."""

import functools
import pathlib
import re
import runpy

from ingest.cli import main as cli
from ingest.daemon.configuration import load_settings
from storage.catalog.catalog import FileSystemCatalog
from storage.io.local import LocalFileIO
from storage.sql.session import SqlSession

ROOT = pathlib.Path(__file__).parents[2]
README = ROOT / "README.md"
GUIDES = ROOT / "docs" / "guides"
PAGES = [README, *sorted(GUIDES.glob("*.md"))]
COMMAND = re.compile(r"lakeward ([a-z][a-z-]+(?: [^`\n|]*)?)")
GROUPS = ("quarantine", "stream", "table")
COMMAND_NAME = re.compile(r"^  ([a-z-]+) ", re.MULTILINE)


def example(directory, monkeypatch, page, number=0):
    """What a Python example of a guide leaves behind.

    Its paths are made absolute: other processes may have been started elsewhere.
    """
    script = directory / "example.py"
    path = README if page == "README.md" else GUIDES / page
    block = re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)[number]
    text = re.sub(r'"(lake(?:/[\w./]*)?)"', rf'"{directory}/\1"', block)
    script.write_text(text, encoding="utf-8")
    monkeypatch.chdir(directory)
    return runpy.run_path(str(script))


def test_every_example_is_run():
    """Elsewhere: the second of changelog.md by test_readme_spark, those of hive.md by tests of
    stores."""
    found = {page.name: page.read_text(encoding="utf-8").count("```python\n") for page in PAGES}
    found.pop("spark-source.md", None)
    found.pop("catalogs.md", None)  # by tests/unit/storage/catalog/test_guide.py
    found.pop("iceberg-readers.md", None)  # by tests/interop/test_iceberg_guide.py
    found.pop(
        "catalog-service.md", None
    )  # by tests/unit/ingest/tools/catalog_service/test_guide.py
    assert {name: count for name, count in found.items() if count} == {
        "README.md": 1,
        "tables-from-python.md": 3,
        "changelog.md": 2,
        "hive.md": 3,
        "iceberg.md": 1,
        "sql-changes.md": 1,
        "sql.md": 1,
        "table-types.md": 2,
    }


def test_a_table_for_iceberg_readers(tmp_path, monkeypatch):
    example(tmp_path, monkeypatch, "iceberg.md")
    assert list(tmp_path.rglob("shop.db/items/schema/schema-0"))


def test_statements_of_the_sql_guide(tmp_path):
    text = (GUIDES / "sql.md").read_text(encoding="utf-8")
    session = SqlSession(FileSystemCatalog(str(tmp_path)))
    blocks = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    results = [result for block in blocks for result in session.execute(block)]
    assert len(results) == 25
    assert sum(result.rows is not None for result in results) == 12


def test_sql_from_python(tmp_path, monkeypatch, capsys):
    example(tmp_path, monkeypatch, "sql.md")
    assert capsys.readouterr().out == "[{'c': 0}]\n"


def test_tables_from_python(tmp_path, monkeypatch):
    page = "tables-from-python.md"
    rows = example(tmp_path, monkeypatch, page)["orders"].to_arrow().to_pylist()
    assert [row["item"] for row in sorted(rows, key=lambda row: row["id"])] == ["tea", "cup"]


def test_table_types(tmp_path, monkeypatch):
    people = example(tmp_path, monkeypatch, "table-types.md")["people"]
    assert people.to_arrow(columns=["name"]).to_pylist() == [{"name": "Ann"}]
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "a.png").touch()
    pictures = example(tmp_path, monkeypatch, "table-types.md", 1)["pictures"]
    assert pictures.to_arrow(columns=["name"]).to_pylist() == [{"name": "a.png"}]


def test_a_table_of_the_readmes_pipeline_is_read(tmp_path, monkeypatch):
    catalog = FileSystemCatalog(str(tmp_path / "lake"), file_io=LocalFileIO(durable=False))
    catalog.create_database("shop")
    session = SqlSession(catalog)
    made = "(id BIGINT, sku STRING, amount DECIMAL(14, 2), PRIMARY KEY (id) NOT ENFORCED)"
    fill = "INSERT INTO shop.orders VALUES (1, 'a', 4), (2, 'b', 8)"
    list(session.execute(f"CREATE TABLE shop.orders {made}; {fill}"))
    orders = example(tmp_path, monkeypatch, "README.md")["orders"]
    assert orders.scan("amount > 5", ["id"]).to_arrow().to_pylist() == [{"id": 2}]
    query = re.search(r'lakeward sql .* -e "(.*?)"', README.read_text(encoding="utf-8"))[1]
    [result] = session.execute(query)
    assert result.rows.num_rows == 2


def test_tables_for_others_over_arrow(tmp_path, monkeypatch, capsys):
    example(tmp_path, monkeypatch, "tables-from-python.md")
    capsys.readouterr()
    frame = example(tmp_path, monkeypatch, "tables-from-python.md", 1)["frame"]
    assert frame.item() == 11.5
    assert "cup" in capsys.readouterr().out


def test_operations_on_a_table(tmp_path, monkeypatch):
    example(tmp_path, monkeypatch, "tables-from-python.md")
    orders = example(tmp_path, monkeypatch, "tables-from-python.md", 2)["orders"]
    assert orders.to_arrow().num_rows == 0


def test_rows_are_changed_from_python(tmp_path, monkeypatch):
    example(tmp_path, monkeypatch, "tables-from-python.md")
    orders = example(tmp_path, monkeypatch, "sql-changes.md")["orders"]
    rows = {row["id"]: (row["item"], row["price"]) for row in orders.to_arrow().to_pylist()}
    assert rows == {1: ("tea", 4.0), 2: ("cup", 8.0), 9: ("jug", 7.5), 10: ("pan", 20.0)}


def test_each_statement_that_changes_rows_runs(tmp_path):
    catalog = FileSystemCatalog(str(tmp_path), file_io=LocalFileIO(durable=False))
    catalog.create_database("default")
    session = SqlSession(catalog)
    orders = "(id INT, item STRING, price DECIMAL(8, 2), PRIMARY KEY (id) NOT ENFORCED)"
    visits = "(id INT, page STRING, dt STRING) PARTITIONED BY (dt)"
    made = {"orders": orders, "changes": orders, "cancelled": orders, "imported": orders}
    made |= {"visits": visits, "cleaned": visits, "incoming": visits}
    for name, columns in made.items():
        list(session.execute(f"CREATE TABLE {name} {columns}"))
    fill = "INSERT INTO {} VALUES (1, 'x', '2024-01-31'), (2, 'y', '2024-02-01')"
    list(session.execute(f"{fill.format('cleaned')}; {fill.format('visits')}"))
    text = (GUIDES / "sql-changes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 4
    affected = [[r.affected for r in session.execute(block)] for block in blocks[:3]]
    assert affected == [[2, 0, 1, 0, 2, 2, 2], [0, 1], [0]]
    drop = blocks[3].partition("\n")[2].splitlines()
    assert [r.affected for r in session.execute(drop[0])] == [2]
    assert [r.affected for r in session.execute(drop[1])] == [0]
    assert [r.affected for r in session.execute("TRUNCATE TABLE visits")] == [0]


def test_changes_as_a_stream(tmp_path, monkeypatch, capsys):
    found = example(tmp_path, monkeypatch, "changelog.md")
    assert found["position"] == found["accounts"].latest_snapshot().id + 1
    assert [line.count("total") for line in capsys.readouterr().out.splitlines()] == [1, 2]


def test_every_configuration_is_one(tmp_path):
    blocks = [
        block
        for page in PAGES
        if page.name != "catalog-service.md"  # a tokens file: see its test_guide.py
        for block in re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    ]
    assert len(blocks) >= 6
    (tmp_path / "registry").write_text("user:password", encoding="utf-8")
    (tmp_path / "s3").write_text("secret", encoding="utf-8")
    (tmp_path / "catalog").write_text("secret", encoding="utf-8")
    base, more = tmp_path / "base.yaml", tmp_path / "more.yaml"
    base.write_text(blocks[0], encoding="utf-8")
    for block in blocks:
        more.write_text(block.replace("/secrets/", f"{tmp_path}/"), encoding="utf-8")
        load_settings([base, more])


def test_links_between_pages_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]:
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text(encoding="utf-8")):
            if not re.match(r"[a-z]+:", target):
                assert (page.parent / target).exists(), (page.name, target)


def anchors(page):
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_links_to_sections_lead_somewhere():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/README.md")]:
        links = re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", page.read_text(encoding="utf-8"))
        for target, anchor in links:
            aim = page.parent / target if target else page
            if not re.match(r"[a-z]+:", target) and aim.suffix == ".md":
                assert anchor in anchors(aim), (page.name, target, anchor)


def test_the_readme_is_short():
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_commands_in_the_documentation_exist_with_their_options(capsys):
    @functools.cache
    def helped(*words):
        capsys.readouterr()
        assert cli.main([*words, "--help"]) == 0, words
        return capsys.readouterr().out

    names = set(COMMAND_NAME.findall(helped())) - {"lakeward"}
    groups = {name: set(COMMAND_NAME.findall(helped(name))) for name in GROUPS}
    pages = [
        README,
        *ROOT.glob("docs/*/*.md"),
        *ROOT.glob("*/README.md"),
        *ROOT.glob("deploy/*.yaml"),
    ]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    texts += [helped(name) for name in names]
    checked, unknown = 0, set()
    for line in (line for text in texts for line in COMMAND.findall(text)):
        words = re.split(r"#| && |;", line)[0].split()
        if words[0] not in names:
            continue
        path = words[:1] + [word for word in words[1:2] if word in groups.get(words[0], ())]
        if path[1:] in (["tag"], ["branch"], ["consumer"]) and words[2:3]:
            path += [word for word in words[2:3] if word.isalpha()]
        known = helped(*path)
        options = re.findall(r"(?<![\w-])--?[a-zA-Z][\w-]*", " ".join(words[len(path) :]))
        unknown |= {(" ".join(path), option) for option in options if option not in known}
        checked += 1
    assert unknown == set()
    assert checked > 100
