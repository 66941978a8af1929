from __future__ import annotations

from datetime import timedelta

import pytest

from checkdam.runtime.monitor.masking import masked, without_credentials


@pytest.mark.parametrize(
    "key",
    [
        "rest.auth.token",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "spark.hadoop.fs.azure.account.key.store.dfs.core.windows.net",
        "spark.hadoop.fs.azure.sas.box.store",
        "spark.ssl.keyPassword",
        "spark.kafka.sasl.jaas.config",
    ],
)
def test_what_sounds_like_a_secret_is_masked(key: str) -> None:
    assert masked({key: "xyzzy"}) == {key: "******"}


def test_other_settings_are_told_as_text() -> None:
    assert masked({"b": True, "a": timedelta(seconds=3), "c": 5}) == {"a": "3000 ms", "b": "true", "c": "5"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("s3://key:secret@bucket/ck", "s3://******@bucket/ck"),
        ("s3://key:sec@ret@bucket/ck", "s3://******@bucket/ck"),
        ("abfss://:secret@store.dfs.core.windows.net/box", "abfss://******@store.dfs.core.windows.net/box"),
        ('no "s3://a:b@c/d" and s3://e:f@g/h', 'no "s3://******@c/d" and s3://******@g/h'),
        (
            "s3://bucket/ck?region=x&session_token=abc&scheme=http",
            "s3://bucket/ck?region=x&session_token=******&scheme=http",
        ),
        ("abfs://container@store.dfs.core.windows.net/x", "abfs://container@store.dfs.core.windows.net/x"),
        ("hdfs://name:8020/user@home:1/ck", "hdfs://name:8020/user@home:1/ck"),
        ("http://localhost:8081", "http://localhost:8081"),
        ("file:///data/a:b@c", "file:///data/a:b@c"),
        ("a:b@c", "a:b@c"),
    ],
)
def test_credentials_in_an_address_are_masked_and_nothing_else(text: str, shown: str) -> None:
    assert without_credentials(text) == shown
