# SPDX-License-Identifier: Apache-2.0
"""The Python of the guide on catalogs runs as it stands there."""

import pathlib
import re

import yaml

from ingest.config.settings_sources import read_catalog_file

GUIDE = pathlib.Path(__file__).parents[4] / "docs" / "guides" / "catalogs.md"


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", GUIDE.read_text(), re.DOTALL)


def test_the_first_example(tmp_path, capsys):
    exec(blocks("python")[0].replace("/data/", f"{tmp_path}/"), {})
    assert capsys.readouterr().out == "['sales'] orders and customers\n"


def test_the_files_can_be_read(tmp_path):
    secret = tmp_path / "catalog"
    secret.write_text("hidden\n")
    (file,), (pipeline,) = blocks("yml"), blocks("yaml")
    path = tmp_path / "catalog.yaml"
    path.write_text(file.replace("/secrets", str(tmp_path)))
    options = read_catalog_file(str(path))
    assert options["jdbc.password"] == "hidden"
    assert options["warehouse"] == "s3://lake/warehouse"
    assert yaml.safe_load(pipeline)["sink"]["catalog"]["metastore"] == "jdbc"
