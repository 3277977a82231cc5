# SPDX-License-Identifier: Apache-2.0
"""The home of Spark that the driver's JVM gets, with or without an archive of classes."""

import os

import pytest

from ingest.compiled import loading
from ingest.daemon import session
from ingest.daemon.class_archive import make_archive
from ingest.daemon.session import (
    ARCHIVE,
    JAVA_DEFAULTS,
    JAVA_OPTIONS,
    archive_options,
    link_home,
    prepared_home,
)


@pytest.fixture
def cache(monkeypatch, tmp_path):
    """An empty cache; what was found in another one is forgotten."""
    monkeypatch.setattr(loading, "folder", lambda: tmp_path / "cache")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    prepared_home.cache_clear()
    yield tmp_path / "cache"
    prepared_home.cache_clear()


def home_within(properties):
    with session._spark_home(properties):
        return os.environ.get("SPARK_HOME")


def test_without_an_archive_spark_has_a_temporary_home(cache, tmp_path):
    properties = {JAVA_OPTIONS: JAVA_DEFAULTS, "spark.local.dir": f"{tmp_path},/elsewhere"}
    home = home_within(properties)
    assert home.startswith(str(tmp_path))
    assert sorted(os.listdir(home)) == ["bin", "jars"]
    assert properties[JAVA_OPTIONS] == JAVA_DEFAULTS
    assert "SPARK_HOME" not in os.environ


def test_with_an_archive_the_home_is_the_prepared_one_and_java_is_given_the_archive(cache):
    archive = link_home(prepared_home()) / ARCHIVE
    archive.touch()
    properties = {JAVA_OPTIONS: JAVA_DEFAULTS}
    assert home_within(properties) == str(prepared_home())
    assert f"-XX:SharedArchiveFile={archive} -Xshare:auto" in properties[JAVA_OPTIONS]
    assert properties[JAVA_OPTIONS].startswith(JAVA_DEFAULTS)


@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=/x.jsa"])
def test_what_the_user_says_about_archives_stays(cache, option):
    (link_home(prepared_home()) / ARCHIVE).touch()
    assert archive_options(prepared_home(), option) == option


def test_a_home_that_is_set_stays(cache, monkeypatch):
    (link_home(prepared_home()) / ARCHIVE).touch()
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    properties = {JAVA_OPTIONS: JAVA_DEFAULTS}
    assert home_within(properties) == "/opt/spark"
    assert properties == {JAVA_OPTIONS: JAVA_DEFAULTS}


def test_another_java_or_other_jars_have_a_home_of_their_own(cache, monkeypatch, tmp_path):
    homes = {prepared_home()}
    prepared_home.cache_clear()
    monkeypatch.setenv("JAVA_HOME", "/opt/another-java")
    homes.add(prepared_home())
    prepared_home.cache_clear()
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-core.jar").touch()
    monkeypatch.setattr(session, "_INSTALLED", tmp_path)
    homes.add(prepared_home())
    assert len(homes) == 3


def test_an_archive_is_made_once(cache):
    archive = link_home(prepared_home()) / ARCHIVE
    archive.touch()
    assert make_archive() == archive
