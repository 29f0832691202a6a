"""The settings of a process; the only module that reads the environment."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

from dormouse.errors import InvalidRequestError
from dormouse.stored.decoding import convert_plain
from dormouse.stored.paths import InstanceNames

# Which instance is meant: a folder, a profile of the configuration file, or a deployment. The file
# is `$DORMOUSE_CONFIG`, or `dormouse/config.toml` in `$XDG_CONFIG_HOME`, which is `~/.config` by
# default. Its key `instance` says what is meant when nothing is named; a table `profiles.laptop`
# has a `folder`, a table `profiles.prod` an `instance` and perhaps an `account`.


@dataclass(frozen=True, slots=True)
class Profile:
    """An instance: in a `folder`, or a deployment of the name `instance` in an `account`."""

    instance: str
    account: str = ""
    folder: Path | None = None


def find_profile(name: str, environment: Mapping[str, str]) -> Profile:
    """Return the instance that a name means; the default of the configuration file if it is empty.
    Raises InvalidRequestError: nothing is named, or the configuration file cannot be read as such.
    """
    if is_folder(name):
        return Profile(name, folder=folder_of(name))
    path = _config_path(environment)
    config = _config(path)
    name = name or config.instance
    if not name:
        raise InvalidRequestError(
            "no instance is named",
            hint="name a folder, such as ./mice, or the name an instance was deployed under: by "
            "--instance, by DORMOUSE_INSTANCE, or as instance in " + str(path),
        )
    if is_folder(name):
        return Profile(name, folder=folder_of(name))
    if name in config.profiles:
        return _profile(config.profiles[name], path, name)
    return Profile(name)


def is_folder(name: str) -> bool:
    """Return whether a name is that of a folder: a path or a ``file:`` URL."""
    return name.startswith((".", "~", "file:")) or "/" in name


def folder_hint(name: str) -> str:
    """Return what to do if a name that was taken for a deployment's was to be that of a folder."""
    if Path(name).is_dir():
        return f"if you mean the folder, name it ./{name}"
    return "an instance in a folder is named by its path, such as ./mice"


def folder_of(name: str) -> Path:
    """Return the folder of a path or ``file:`` URL. Raises InvalidRequestError."""
    if not name.startswith("file:"):
        return Path(name).expanduser()
    url = urlsplit(name)
    if url.netloc not in ("", "localhost") or not url.path:
        raise InvalidRequestError(
            f"{name} names no folder of this machine", hint="write file:///path/of/the/folder"
        )
    return Path(unquote(url.path)).expanduser()


def _config_path(environment: Mapping[str, str]) -> Path:
    if path := environment.get("DORMOUSE_CONFIG", ""):
        return Path(path).expanduser()
    home = environment.get("XDG_CONFIG_HOME", "") or "~/.config"
    return Path(home).expanduser() / "dormouse" / "config.toml"


class _Config(msgspec.Struct):
    instance: str = ""
    profiles: dict[str, Any] = {}


class _Profile(msgspec.Struct, forbid_unknown_fields=True):
    folder: str = ""
    instance: str = ""
    account: str = ""


def _config(path: Path) -> _Config:
    try:
        text = path.read_text()
        import tomllib  # most instances are named without a file

        return convert_plain(tomllib.loads(text), _Config)
    except FileNotFoundError:
        return _Config()
    except (ValueError, OSError) as error:
        raise _malformed(path, str(error)) from error


def _profile(body: object, path: Path, name: str) -> Profile:
    try:
        written = convert_plain(body, _Profile)
    except ValueError as error:
        raise _malformed(path, f"the profile {name!r}: {error}") from error
    if bool(written.folder) == bool(written.instance):
        raise _malformed(path, f"the profile {name!r} needs either a folder or an instance")
    if written.folder:
        folder = folder_of(written.folder)
        return Profile(name, folder=folder if folder.is_absolute() else path.parent / folder)
    return Profile(written.instance, written.account)


def _malformed(path: Path, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the configuration in {path} cannot be read: {what}",
        hint="docs/folder.md shows such a file",
    )


DEFAULT_MEMORY_BYTES = 512 * 1024 * 1024
MEMORY_BYTES = "DORMOUSE_MEMORY_BYTES"
CONDITIONS_TRIED_AT = "DORMOUSE_CONDITIONS_TRIED_AT"
SPARK_PACKAGE = "/opt/spark-package"
"""Where the Lambda layer with the Spark package puts it."""
SPARK_RUN_SECONDS = 12 * 60 * 60
"""A run of Spark that takes longer is ended, and its job is tried again."""


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """The EMR Serverless application that runs Spark jobs, and the role of these jobs.

    `package` is the folder with the Spark package, deployed with the process that starts jobs.
    """

    application: str
    role: str
    package: Path


@dataclass(frozen=True, slots=True)
class Settings:
    """The instance to work for, and the resources of this machine.

    If `account` is empty, AWS is asked for it. `has_spark` says whether the instance has Spark;
    `spark` is what a process needs to start Spark jobs, None if it starts none. `folder` is where
    the instance is if it is in a folder, None for a deployment. `readers_role` is the ARN of the
    role whose credentials are lent to readers of Iceberg, empty if none are. `glue_database` is
    where published tables get entries, by the process that publishes them. `result_queues` are the
    queues that results of queries may be sent to, by the process that answers them. `http_role_id`
    is the unique id of the role of the HTTP API, whose messages that process believes to say who
    asks; empty if it believes none. `query_role_ids` are those of the roles that send messages
    about queries that have begun. `conditions_tried_at` is the URI of a server that was found to
    hold to conditions of writes when this instance was deployed there, so that its processes need
    not try them; empty if none was.
    """

    instance: str
    account: str
    scratch: Path
    memory_bytes: int = DEFAULT_MEMORY_BYTES
    spark: SparkSettings | None = None
    has_spark: bool = False
    folder: Path | None = None
    readers_role: str = ""
    glue_database: str = ""
    result_queues: tuple[str, ...] = ()
    http_role_id: str = ""
    query_role_ids: tuple[str, ...] = ()
    conditions_tried_at: str = ""

    @property
    def names(self) -> InstanceNames:
        """The names of the instance's resources."""
        return InstanceNames(self.instance, self.account)

    @staticmethod
    def from_environment(
        environment: Mapping[str, str] = os.environ, *, instance: str | None = None
    ) -> Settings:
        """Read the settings from the environment; `instance` overrides it.
        Raises InvalidRequestError: a setting is missing or invalid; the message says which.
        """
        if instance is not None and not instance.strip():
            raise InvalidRequestError(
                f"no instance is named {instance!r}",
                hint="name a folder, such as ./mice, a deployment or a profile",
            )
        profile = find_profile(instance or environment.get("DORMOUSE_INSTANCE", ""), environment)
        return Settings(
            instance=profile.instance,
            account=profile.account or environment.get("DORMOUSE_ACCOUNT", ""),
            scratch=scratch_folder(environment),
            memory_bytes=memory_bytes(environment),
            spark=_spark(environment),
            has_spark=environment.get("DORMOUSE_SPARK", "") == "yes",
            folder=profile.folder,
            readers_role=environment.get("DORMOUSE_READERS_ROLE", ""),
            glue_database=environment.get("DORMOUSE_GLUE_DATABASE", ""),
            result_queues=_list(environment, "DORMOUSE_RESULT_QUEUES"),
            http_role_id=environment.get("DORMOUSE_HTTP_ROLE_ID", ""),
            query_role_ids=_list(environment, "DORMOUSE_QUERY_ROLE_IDS"),
            conditions_tried_at=environment.get(CONDITIONS_TRIED_AT, ""),
        )


def _list(environment: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(filter(None, environment.get(name, "").split(",")))


def scratch_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Return the folder for temporary files."""
    return named_scratch_folder(environment) or Path(tempfile.gettempdir())


def named_scratch_folder(environment: Mapping[str, str] = os.environ) -> Path | None:
    """Return the folder that ``TMPDIR`` names for temporary files; None if it is not set."""
    return Path(environment["TMPDIR"]) if environment.get("TMPDIR") else None


def memory_bytes(environment: Mapping[str, str] = os.environ) -> int:
    """Return what sorting may use before it spills. Raises InvalidRequestError."""
    text = environment.get(MEMORY_BYTES, "") or str(DEFAULT_MEMORY_BYTES)
    if not text.isdecimal() or int(text) == 0:
        raise InvalidRequestError(f"{MEMORY_BYTES} must be a positive whole number, not {text!r}")
    return int(text)


def key_file(root: Path, environment: Mapping[str, str] = os.environ) -> Path:
    """Return the file with the keys of an instance in a folder, by default beside the folder."""
    path = environment.get("DORMOUSE_KEY_FILE", "")
    return Path(path).expanduser() if path else root.with_name(f"{root.name}.keys")


_STUB, _FINDS_JAVA = "/usr/bin/java", "/usr/libexec/java_home"
"""On macOS the first is there without Java, and fails; the second says whether there is any."""


def spark_environment(environment: Mapping[str, str] = os.environ) -> Mapping[str, str] | None:
    """Return Spark's environment here; None without Java or Spark, or if it is switched off."""
    if environment.get("DORMOUSE_SPARK") == "no" or find_spec("dormouse_spark") is None:
        return None
    has_spark = find_spec("pyspark") or shutil.which("spark-submit", path=environment.get("PATH"))
    return dict(environment) if has_spark and _has_java(environment) else None


def _has_java(environment: Mapping[str, str]) -> bool:
    """Return whether there is Java, without starting it, which takes as long as a command."""
    home = environment.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").is_file():
        return True
    java = shutil.which("java", path=environment.get("PATH"))
    if java == _STUB and Path(_FINDS_JAVA).is_file():
        import subprocess  # other commands need it not

        return subprocess.run([_FINDS_JAVA], capture_output=True, check=False).returncode == 0
    return java is not None


def _spark(environment: Mapping[str, str]) -> SparkSettings | None:
    application = environment.get("DORMOUSE_SPARK_APPLICATION", "")
    if not application:
        return None
    package = Path(environment.get("DORMOUSE_SPARK_PACKAGE") or SPARK_PACKAGE)
    return SparkSettings(application, environment.get("DORMOUSE_SPARK_ROLE", ""), package)


# The version of the library for packages of Spark: a digest of the source files.
#
# The build of the Spark package runs this module without any other package installed: it may import
# only the standard library.


@cache
def library_version(folder: Path = Path(__file__).parent) -> str:
    """Return a digest of the library's source files, by default those of this process."""
    digest = blake2b(digest_size=8)
    for path in sorted(folder.rglob("*.py")):
        body = path.read_bytes()
        digest.update(f"{path.relative_to(folder).as_posix()} {len(body)}\n".encode() + body)
    return digest.hexdigest()
