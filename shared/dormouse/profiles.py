"""Which instance is meant: a folder, a profile of the configuration file, or a deployment.

The file is ``$DORMOUSE_CONFIG``, or ``dormouse/config.toml`` in ``$XDG_CONFIG_HOME``, which is
``~/.config`` by default::

    instance = "laptop"        # what is meant when nothing is named

    [profiles.laptop]
    folder = "~/mice"

    [profiles.prod]
    instance = "prod"
    account = "123456789012"
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dormouse.errors import InvalidRequestError

_PARTS = ("folder", "instance", "account")


@dataclass(frozen=True, slots=True)
class Profile:
    """An instance: in a `folder`, or a deployment of the name `instance` in an `account`."""

    instance: str
    account: str = ""
    folder: Path | None = None


def find_profile(name: str, environment: Mapping[str, str]) -> Profile:
    """Return the instance that a name means; the default of the configuration file if it is empty.

    Raises:
        InvalidRequestError: nothing is named, or the configuration file cannot be read as such.
    """
    if is_folder(name):
        return Profile(name, folder=folder_of(name))
    path = _config_path(environment)
    config = _config(path)
    name = name or _text(config.get("instance", ""), path, "instance")
    if not name:
        raise InvalidRequestError(
            "no instance is named",
            hint="name a folder, such as ./mice, or the name an instance was deployed under: by "
            "--instance, by DORMOUSE_INSTANCE, or as instance in " + str(path),
        )
    if is_folder(name):
        return Profile(name, folder=folder_of(name))
    profiles = config.get("profiles", {})
    if not isinstance(profiles, dict):
        raise _malformed(path, "profiles must be a table")
    if name in profiles:
        return _profile(profiles[name], path, name)
    return Profile(name)


def is_folder(name: str) -> bool:
    """Return whether a name is that of a folder: a path or a ``file:`` URL."""
    return name.startswith((".", "~", "file:")) or "/" in name


def folder_hint(name: str) -> str:
    """Return what to do if a name that was taken for a deployment's was to be that of a folder."""
    if Path(name).is_dir():
        return f"did you mean the folder ./{name}?"
    return "an instance in a folder is named by its path, such as ./mice"


def folder_of(name: str) -> Path:
    """Return the folder of a path or a ``file:`` URL.

    Raises:
        InvalidRequestError: it is on another machine.
    """
    if not name.startswith("file:"):
        return Path(name).expanduser()
    url = urlsplit(name)
    if url.netloc not in ("", "localhost") or not url.path:
        raise InvalidRequestError(
            f"{name} names no folder of this machine", hint="write file:///path/of/the/folder"
        )
    return Path(unquote(url.path)).expanduser()


def _config_path(environment: Mapping[str, str]) -> Path:
    if named := environment.get("DORMOUSE_CONFIG", ""):
        return Path(named).expanduser()
    home = environment.get("XDG_CONFIG_HOME", "") or "~/.config"
    return Path(home).expanduser() / "dormouse" / "config.toml"


def _config(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}
    except (UnicodeDecodeError, OSError) as error:
        raise _malformed(path, str(error)) from error
    import tomllib  # most instances are named without a file

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise _malformed(path, str(error)) from error


def _profile(body: object, path: Path, name: str) -> Profile:
    if not isinstance(body, dict):
        raise _malformed(path, f"the profile {name!r} must be a table")
    for part in body:
        if part not in _PARTS:
            near = get_close_matches(part, _PARTS, 1) or [", ".join(_PARTS)]
            raise _malformed(path, f"the profile {name!r} has {part!r}; did you mean {near[0]}?")
    parts = {part: _text(value, path, f"{name}.{part}") for part, value in body.items()}
    if bool(parts.get("folder")) == bool(parts.get("instance")):
        raise _malformed(path, f"the profile {name!r} needs either a folder or an instance")
    if parts.get("folder"):
        folder = folder_of(parts["folder"])
        return Profile(name, folder=folder if folder.is_absolute() else path.parent / folder)
    return Profile(parts["instance"], parts.get("account", ""))


def _text(value: object, path: Path, what: str) -> str:
    if not isinstance(value, str):
        raise _malformed(path, f"{what} must be a text in quotes")
    return value


def _malformed(path: Path, what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"the configuration in {path} cannot be read: {what}",
        hint="docs/folder.md shows such a file",
    )
