"""Paths of the REST catalog, pages of names, and results that would be too long."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dormouse.iceberg import rest
from dormouse.iceberg.rest import CatalogError, Target, config, load_result, page, parse_path

NAMES = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
ODD = ["", "a/b", "ünï🐭", "a b", "a+b", "..", "%", "a%1Fb", "\x1f", "'\";--", "x" * 50_000]


@pytest.mark.parametrize("prefix", ["", "mice/", "namespaces/", "v1/"])
@given(NAMES)
def test_a_table_is_found_by_its_path_with_and_without_a_prefix(prefix: str, name: str) -> None:
    found = parse_path(f"/iceberg/v1/{prefix}namespaces/dormouse/tables/{name}")
    assert found == Target("table", "dormouse", name, prefix.rstrip("/"))


@given(st.text(min_size=1), st.text(min_size=1))
def test_what_is_percent_encoded_is_decoded_once(namespace: str, name: str) -> None:
    path = f"/iceberg/v1/namespaces/{_quoted(namespace)}/views/{_quoted(name)}"
    found = parse_path(path)
    assert (found.kind, found.namespace, found.name) == ("view", *map(_sent, (namespace, name)))


def _quoted(text: str) -> str:
    return quote(text.encode(errors="replace"), safe="")


def _sent(text: str) -> str:
    return text.encode(errors="replace").decode()


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/iceberg/v1/config", "config"),
        ("/iceberg/v1/namespaces", "namespaces"),
        ("/iceberg/v1/mice/namespaces", "namespaces"),
        ("/iceberg/v1/namespaces/dormouse", "namespace"),
        ("/iceberg/v1/mice/namespaces/dormouse", "namespace"),
        ("/iceberg/v1/namespaces/dormouse/tables", "tables"),
        ("/iceberg/v1/namespaces/dormouse/views", "views"),
    ],
)
def test_each_path_names_one_thing(path: str, kind: str) -> None:
    assert parse_path(path).kind == kind


@pytest.mark.parametrize(
    "path",
    [
        "",
        "/",
        "/iceberg",
        "/iceberg/v1",
        "/iceberg/v1/",
        "/iceberg/v2/config",
        "/v1/config",
        "/iceberg/v1/mice/config",
        "/iceberg/v1/namespaces/",
        "/iceberg/v1/namespaces/dormouse/",
        "/iceberg/v1/namespaces/dormouse/tables/",
        "/iceberg/v1/namespaces/dormouse/tables/a/b",
        "/iceberg/v1/namespaces//tables/a",
        "/iceberg/v1/a/b/namespaces",
        "http://elsewhere/iceberg/v1/config",
        "/iceberg/v1/" + "x/" * 20_000,
        "/iceberg/v1/%ff%fe",
    ],
)
def test_any_other_path_is_not_found(path: str) -> None:
    with pytest.raises(CatalogError) as refused:
        parse_path(path)
    assert (refused.value.status, refused.value.kind) == (404, "NotFoundException")
    assert len(refused.value.explanation) < 2000


@given(st.text())
def test_no_path_is_anything_but_found_or_not(path: str) -> None:
    try:
        parse_path(path)
    except CatalogError as error:
        assert error.status == 404


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("table", "NoSuchTableException"),
        ("view", "NoSuchViewException"),
        ("tables", "NoSuchNamespaceException"),
        ("views", "NoSuchNamespaceException"),
        ("namespace", "NoSuchNamespaceException"),
    ],
)
@pytest.mark.parametrize("namespace", ["other", "dormouse\x1fflights", "Dormouse", "dormouse "])
def test_nothing_is_in_another_namespace(kind: Any, error: str, namespace: str) -> None:
    with pytest.raises(CatalogError) as refused:
        rest.check_namespace(Target(kind, namespace, "flights"))
    assert (refused.value.status, refused.value.kind) == (404, error)
    rest.check_namespace(Target(kind, "dormouse", "flights"))


def test_clients_learn_what_can_be_asked_and_nothing_that_writes() -> None:
    endpoints = config("")["endpoints"]
    assert {line.partition(" ")[0] for line in endpoints} == {"GET", "HEAD"}
    for line in endpoints:
        path = line.partition(" ")[2].replace("{prefix}", "mice").replace("{namespace}", "dormouse")
        parse_path(f"/iceberg{path.format(table='t', view='v')}")
    assert "HEAD /v1/{prefix}/namespaces/{namespace}/tables/{table}" in endpoints


@pytest.mark.parametrize("warehouse", ["mice", "my_lake-2.x", "_"])
def test_a_warehouse_becomes_the_prefix_of_paths(warehouse: str) -> None:
    assert config(warehouse)["overrides"] == {"prefix": warehouse}
    path = f"/iceberg/v1/{warehouse}/namespaces/dormouse/tables/t"
    assert parse_path(path).prefix == warehouse


@pytest.mark.parametrize(
    "warehouse", ["namespaces", "config", "s3://bucket/x", ".", "x" * 101, *ODD]
)
def test_a_warehouse_that_cannot_be_part_of_a_path_becomes_no_prefix(warehouse: str) -> None:
    assert config(warehouse)["overrides"] == {}


@given(st.sets(NAMES, max_size=30), st.integers(1, 12))
def test_pages_have_each_name_once_and_in_order(names: set[str], size: int) -> None:
    found: list[str] = []
    query = {"pageToken": "", "pageSize": str(size)}
    for _ in range(len(names) + 1):
        part, following = names_of(page(list(names), query))
        assert len(part) <= size
        found += part
        query = {**query, "pageToken": following or ""}
        if following is None:
            break
    assert found == sorted(names)


def names_of(listing: dict[str, Any]) -> tuple[list[str], str | None]:
    names = [each["name"] for each in listing["identifiers"]]
    return names, listing.get("next-page-token")


def test_clients_that_ask_for_no_pages_get_all_names() -> None:
    names = [f"t{number}" for number in range(rest.MOST_NAMES + 5)]
    assert names_of(page(names, {"unknown": "1"})) == (sorted(names), None)
    part, following = names_of(page(names, {"pageToken": ""}))
    assert (len(part), following) == (rest.MOST_NAMES, part[-1])


@pytest.mark.parametrize("size", ["", "0", "-1", "many", "1.5", "٣", "0" * 5000])
def test_a_page_of_no_size_is_refused(size: str) -> None:
    with pytest.raises(CatalogError) as refused:
        page(["a"], {"pageSize": size})
    assert refused.value.status == 400


def metadata(count: int, columns: int = 1) -> dict[str, Any]:
    """Return metadata of `count` versions, each with a schema of its own and an append before."""
    ids = [number for version in range(1, count + 1) for number in (1000 + version, version)]
    return {
        "current-schema-id": count,
        "schemas": [
            {"schema-id": n, "fields": [{"id": i, "name": f'"{i}"'} for i in range(columns)]}
            for n in range(1, count + 1)
        ],
        "current-snapshot-id": count,
        "snapshots": [{"snapshot-id": i, "schema-id": i % 1000} for i in ids],
        "snapshot-log": [{"snapshot-id": i} for i in ids],
        "refs": {
            "main": {"snapshot-id": count},
            **{f"v{n}": {"snapshot-id": n} for n in range(1, count + 1)},
        },
    }


def test_clients_can_ask_for_the_snapshots_that_have_a_name() -> None:
    found = load_result("s3://b/m.json", metadata(3), only_refs=True)
    assert [each["snapshot-id"] for each in found["metadata"]["snapshots"]] == [1, 2, 3]
    assert found["metadata-location"] == "s3://b/m.json"
    everything = load_result("s3://b/m.json", metadata(3), only_refs=False)
    assert everything["metadata"] == metadata(3)


def test_what_would_be_too_long_to_return_has_the_newest_snapshots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert rest.MOST_BYTES < 6 * 2**20
    monkeypatch.setattr(rest, "MOST_BYTES", 50_000)
    whole = metadata(40, columns=150)
    assert rest.sent_bytes(whole) > rest.MOST_BYTES
    found = load_result("s3://b/m.json", whole, only_refs=False)
    assert rest.sent_bytes(found) <= rest.MOST_BYTES
    kept = found["metadata"]
    ids = [each["snapshot-id"] for each in kept["snapshots"]]
    assert ids == [each["snapshot-id"] for each in whole["snapshots"]][-len(ids) :]
    assert kept["refs"]["main"] == {"snapshot-id": 40}
    assert {ref["snapshot-id"] for ref in kept["refs"].values()} <= set(ids)
    assert {each["snapshot-id"] for each in kept["snapshot-log"]} == set(ids)
    schemas = {each["schema-id"] for each in kept["schemas"]}
    assert schemas == {each["schema-id"] for each in kept["snapshots"]}


def test_what_is_returned_is_measured_as_a_function_returns_it() -> None:
    content = {"name": '"quoted" ü🐭'}
    returned = json.dumps({"body": json.dumps(content, separators=(",", ":"), ensure_ascii=False)})
    assert rest.sent_bytes(content) == len(returned) - len('{"body": }')
