"""How an instance is opened, in a folder or on AWS, and closed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Self

from dormouse.settings import Settings

if TYPE_CHECKING:
    from dormouse.client.instance import Instance
    from dormouse.folder.wiring import OpenFolder
    from dormouse.http.loopback import LoopbackServer
    from dormouse.ports.services import Services


class OpenedInstance:
    """What `Instance` has of its opening and closing."""

    __slots__ = ()
    services: Services
    folder: OpenFolder | None

    @staticmethod
    def open(folder: str | Path, *, background: bool = True, create: bool = True) -> Instance:
        """Open the instance in a folder; `create` one in a folder that is empty or not there.

        Work is done by this process: `TableHandle.ingest` returns when the rows can be queried, and
        a thread in the background splits, compacts and collects while the process lives. Close the
        instance, or use it in a ``with`` statement, to end that before. Without `background` there
        is no such thread: the process works while it waits for something.

        Raises:
            InvalidRequestError: it is no folder of an instance and cannot become one; or another
                release of Dormouse uses it.
            NotFoundError: there is no instance, and none is to be created.
            CorruptDataError: its SQLite file is damaged, or of another format.
        """
        from dormouse.client.in_folder import open_instance

        return open_instance(Path(folder), background=background, create=create)

    def close(self) -> None:
        """End what this process does in the background for an instance in a folder."""
        if self.folder is not None:
            self.folder.close()

    def serve_catalog(self, port: int = 0) -> LoopbackServer:
        """Serve the published tables as an Iceberg REST catalog, to engines on this machine.

        The server, which is returned, answers at ``http://127.0.0.1:PORT/iceberg`` until it is
        closed, or a ``with`` statement ends; port 0 takes a free one.

        Raises:
            InvalidRequestError: the port cannot be used.
        """
        from functools import partial

        from dormouse.features.catalog.serve_catalog import serve_catalog
        from dormouse.http.loopback import LoopbackServer

        return LoopbackServer(partial(serve_catalog, self.services), port)

    def __enter__(self) -> Self:
        """Return the instance."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the instance."""
        self.close()

    @staticmethod
    def connect(
        name: str | None = None, *, background: bool = True, create: bool = True
    ) -> Instance:
        """Connect to the instance of this name, or of the name in ``DORMOUSE_INSTANCE``.

        A path, such as ``./mice``, or a ``file:`` URL is the folder of an instance. A name is that
        of a profile in the configuration file, or else of a deployment on AWS: its account is
        ``DORMOUSE_ACCOUNT``, or else that of the credentials; credentials and region are found as
        every AWS client finds them. `background` and `create` are those of `open`.

        Raises:
            InvalidRequestError: no name is given, or another setting is invalid.
            NotFoundError: there is no instance in the folder, and none is to be created.
            UnavailableError: there are no credentials, or AWS does not answer.
        """
        settings = Settings.from_environment(instance=name)
        if settings.folder is not None:
            return OpenedInstance.open(settings.folder, background=background, create=create)
        from dormouse.client.deployment import connect_deployment  # nothing else needs AWS

        return connect_deployment(settings)
