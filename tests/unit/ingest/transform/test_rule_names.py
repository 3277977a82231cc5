# SPDX-License-Identifier: Apache-2.0
"""Rules that say former names of columns."""

import json

from ingest.transform.rules import TransformRule, present_rule
from tests.unit.ingest.debezium_events import schema


def table(typed=None, **former):
    option = {"lakeward.former-names": json.dumps(former)}
    option["lakeward.typed-columns"] = json.dumps(typed or {})
    return schema(("id", "INT"), ("mail", "STRING"), ("n a", "INT"), ('q"', "INT"), **option)


def test_former_names_are_replaced_wherever_they_stand():
    rule = TransformRule(
        filter="email <> 'email' AND `n` > n + id",
        computed=("x = upper(e_mail)", "`y z` = n * q"),
        exclude=("e_mail", "secret"),
        mask={"email": "sha256", "id": "md5"},
        partition_by=("p = substr(email, 1)", "id"),
        soft_delete=True,
    )
    renamed = present_rule(rule, table(**{"mail": ["email", "e_mail"], "n a": ["n"], 'q"': ["q"]}))
    assert renamed == TransformRule(
        filter='"mail" <> \'email\' AND "n a" > "n a" + id',
        computed=('"x" = upper("mail")', '"y z" = "n a" * `q"`'),
        exclude=("mail", "secret"),
        mask={"mail": "sha256", "id": "md5"},
        partition_by=('"p" = substr("mail", 1)', "id"),
        soft_delete=True,
    )


def test_names_that_are_taken_mean_what_has_them_now():
    rule = TransformRule(filter="id > 0", computed=("old = upper(mail)",), mask={"mail": "md5"})
    assert present_rule(rule, table()) is rule
    assert present_rule(rule, table(mail=["id", "old"])) is rule
    assert present_rule(rule, table(gone=["mail"])) is rule


def test_the_present_name_wins():
    rule = TransformRule(mask={"mail": "sha256", "email": "md5"})
    assert present_rule(rule, table(mail=["email"])).mask == {"mail": "sha256"}


def test_further_columns_of_a_masked_one_are_masked():
    rule = TransformRule(mask={"email": "null"})
    found = present_rule(rule, table({"mail": ["n a"], "id": ["mail"]}, mail=["email"]))
    assert found.mask == {"mail": "null", "n a": "null"}
