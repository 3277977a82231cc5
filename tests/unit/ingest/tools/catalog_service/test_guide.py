# SPDX-License-Identifier: Apache-2.0
"""The examples of docs/guides/catalog-service.md are carried out as they stand there."""

import hashlib
import pathlib
import re

from ingest.tools.catalog_service.access import Tokens
from ingest.tools.catalog_service.service import CatalogService
from storage.catalog.catalog import Catalog
from tests.catalog_service import running

GUIDE = pathlib.Path(__file__).resolve().parents[5] / "docs/guides/catalog-service.md"
TEXT = GUIDE.read_text(encoding="utf-8")
SECRETS = [f"a-token-of-somebody-{number}" for number in range(3)]


def test_tokens_and_a_client_of_the_guide(tmp_path):
    (block,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    digest = hashlib.sha256(SECRETS[2].encode()).hexdigest()
    (tmp_path / "tokens.yaml").write_text(re.sub('"a6f5.*?"', f'"{digest}"', block))
    (tmp_path / "etl.token").write_text(SECRETS[0])
    tokens = Tokens(tmp_path / "tokens.yaml", lambda: 0.0, {"REPORTS_TOKEN": SECRETS[1]})
    found = [tokens.principal(secret) for secret in SECRETS]
    assert [one.name for one in found] == ["etl", "reports", "notebook"]
    assert [one.may("read", "stock") for one in found] == [True, True, False]
    assert [one.may("write", "shop") for one in found] == [True, False, False]
    catalog = Catalog.open(str(tmp_path / "w"))
    for name in ("shop", "stock", "other"):
        catalog.create_database(name)
    (example,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    with running(CatalogService(catalog, tokens)) as served:
        example = example.replace("http://127.0.0.1:8181", served.root)
        seen = {}
        exec(example.replace('"…"', repr(SECRETS[1])), seen)
        assert seen["catalog"].list_databases() == ["shop", "stock"]
