from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
from tests.unit.server.made_jobs import COUNT, JOB
from tests.unit.server.serving import Served

from checkdam.server.app.openapi import document

DIALECT = "https://json-schema.org/draft/2020-12/schema"
EXAMPLES = {
    "jobid": JOB,
    "vertexid": COUNT,
    "checkpointid": "2",
    "subtaskindex": "0",
    "attempt": "1",
    "taskmanagerid": "host:11",
}


def test_the_document_names_every_parameter_of_a_path_and_nothing_twice(served: Served) -> None:
    description = served.get("/openapi.json")

    operations = [(path, operation) for path, methods in description["paths"].items() for operation in methods.values()]
    assert len({operation["operationId"] for _, operation in operations}) == len(operations)
    for path, operation in operations:
        named = [p["name"] for p in operation["parameters"] if p["in"] == "path"]
        assert named == re.findall(r"{(\w+)}", path)


def test_the_document_is_openapi(served: Served) -> None:
    description = served.get("/openapi.json")

    assert description["openapi"].startswith("3.1")
    for schema in description["components"]["schemas"].values():
        jsonschema_rs.meta.validate(schema | {"$schema": DIALECT})
    references = set(re.findall(r'"\$ref": "([^"]+)"', str(description).replace("'", '"')))
    assert references
    assert references <= {f"#/components/schemas/{name}" for name in description["components"]["schemas"]}


def test_the_document_leaves_out_what_is_not_served() -> None:
    assert document([])["paths"] == {}


def test_every_answer_fits_its_schema(served: Served) -> None:
    description = served.get("/openapi.json")

    checked = [_check(served, description, path) for path in description["paths"]]

    assert sum(checked) >= 40


def _check(served: Served, description: dict[str, Any], path: str) -> bool:
    operation = description["paths"][path].get("get")
    if operation is None or "yarn" in path or not set(re.findall(r"{(\w+)}", path)) <= EXAMPLES.keys():
        return False
    answer = served.client.get(re.sub(r"{(\w+)}", lambda match: EXAMPLES[match[1]], path))
    assert str(answer.status_code) in operation["responses"], (path, answer.text)
    content = operation["responses"][str(answer.status_code)]["content"]
    if "application/json" not in content:
        return False
    schema = content["application/json"]["schema"] | {"components": description["components"]}
    try:
        jsonschema_rs.Draft202012Validator(schema).validate(answer.json())
    except jsonschema_rs.ValidationError as error:
        pytest.fail(f"{path}: {error}")
    return True
