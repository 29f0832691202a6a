"""A folder publishes local paths, which engines find without a server, also after a move."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from dormouse.client.instance import Instance
from dormouse.messages.stages import OutboundMessage, TableChanged
from tests.support.world import LETTERS


def publish(instance: Instance, folder: Path, *letters: str) -> Path:
    """Ingest a row for each letter; return the folder that is published."""
    path = folder / f"{'-'.join(letters)}.csv"
    path.write_text("letter,at,note\n" + "".join(f"{letter},1,x\n" for letter in letters))
    table = instance.table("letters")
    table.ingest(path)
    assert instance.folder is not None
    instance.folder.finish(60)
    return Path(table.iceberg.show().folder)


def newest(published: Path) -> dict[str, object]:
    """Return the metadata that is found by the hint, as engines do."""
    stem = (published / "metadata" / "version-hint.text").read_text()
    found: dict[str, object] = json.loads(
        (published / "metadata" / f"{stem}.metadata.json").read_text()
    )
    return found


def test_engines_find_the_newest_version_by_the_folder(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        table = instance.create_table("letters", LETTERS, {"iceberg": "on"})
        published = publish(instance, tmp_path, "a", "b")
        assert newest(published)["location"] == published.as_uri()
        publish(instance, tmp_path, "c")
        shown = table.iceberg.show()
        assert (shown.rows, shown.lag_seconds) == (3, 0)
        assert newest(published) == json.loads(Path(shown.metadata).read_text())
        assert table.iceberg.check() == []
        uris = [file.uri for file in table.iceberg.files()]
        assert sorted(uris) == sorted(f.uri.removeprefix("file://") for f in table.files())


def test_a_folder_that_was_moved_is_published_where_it_is(tmp_path: Path) -> None:
    with Instance.open(tmp_path / "mice", background=False) as instance:
        instance.create_table("letters", LETTERS, {"iceberg": "on"})
        publish(instance, tmp_path, "a", "b")
    shutil.move(tmp_path / "mice", tmp_path / "moved")
    with Instance.open(tmp_path / "moved", background=False) as instance:
        table = instance.table("letters")
        assert "is of a data root at" in table.iceberg.check()[0]
        assert instance.folder is not None
        change = OutboundMessage("table-changes", TableChanged(table.table.id))
        instance.folder.queues.send([change])  # as each sweep does
        instance.folder.finish(60)
        assert table.iceberg.check() == []
        assert table.iceberg.show().metadata.startswith(str(tmp_path / "moved"))
        assert newest(Path(table.iceberg.show().folder))["current-snapshot-id"] == 2
