from __future__ import annotations

import pytest

from checkdam.runtime.spark.session import complete_settings

_SOCKETS = "spark.python.unix.domain.socket.enabled"


def test_workers_on_this_machine_talk_over_unix_sockets_in_the_private_directory() -> None:
    settings = complete_settings({}, "local[2]", "/tmp/checkdam-x/spark")

    assert settings[_SOCKETS] == "true"
    assert settings["spark.python.unix.domain.socket.dir"] == "/tmp/checkdam-x/spark"
    assert complete_settings({}, "local[2]", "/tmp/" + 54 * "x")[_SOCKETS] == "true"


@pytest.mark.parametrize(
    ("master", "directory"),
    [("spark://host:7077", "/tmp/x"), ("local[2]", "/tmp/" + 56 * "x"), ("local[2]", "/tmp/" + 30 * "ü")],
)
def test_other_workers_and_those_with_a_long_directory_talk_over_tcp(master: str, directory: str) -> None:
    assert _SOCKETS not in complete_settings({}, master, directory)


def test_the_users_settings_win_but_for_those_that_checkdam_needs() -> None:
    given = {_SOCKETS: "false", "spark.driver.memory": "1g", "spark.speculation": "true"}

    settings = complete_settings(given, "local[2]", "/tmp/x")

    assert settings[_SOCKETS] == "false"
    assert settings["spark.driver.memory"] == "1g"
    assert settings["spark.speculation"] == "false"
