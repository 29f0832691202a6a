"""Row tags: keys with values that rows get where they are ingested, such as ``day=2026-01-31``.

All rows of one file have the same tags. They are no columns of a table, and stay with the rows
through compactions. (The tags of versions are names that people give to versions of a table.)

The tags of a row are one text: ``\\nday=2026-01-31\\nsource=shop\\n``, in the order of the keys,
and empty if there are none. As no value has a newline, a row has a tag if its text has
``\\nkey=value\\n`` in it. A shard knows the different texts of its rows, with a separator between
them.
"""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from urllib.parse import quote, unquote

from dormouse.errors import InvalidRequestError, RefusedSourceError

NO_TAGS: Mapping[str, str] = MappingProxyType({})
MOST_TAGS = 16
MOST_VALUE_CHARACTERS = 256
MOST_FOLDER_BYTES = 255
"""The longest name of a file system, in which a tag of a dropped file is the name of a folder."""
MOST_BYTES = 512
"""What the tags of a file take in its key at most: S3 has 1,024 bytes for a whole key."""
ANY = "*"
"""What stands for the texts of a shard that has more different ones than are listed."""
MOST_TEXTS_BYTES = 1024
_SEPARATOR = "\x1e"
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}")
_VALUE = re.compile(rf"[^\x00-\x1f\x7f\ud800-\udfff]{{1,{MOST_VALUE_CHARACTERS}}}")
_FOLDER = re.compile(r"(?<=/)tag\.([^/]*)/")
_HINT = (
    f"up to {MOST_TAGS} tags; a key has 1 to 64 letters, digits, _, . and -, and begins with a "
    f"letter or _; a value has 1 to {MOST_VALUE_CHARACTERS} characters, none of them a control "
    f"character; percent-encoded, all together have up to {MOST_BYTES} bytes"
)


def row_tags(tags: Mapping[str, str]) -> str:
    """Return tags as the text that rows have. Raises InvalidRequestError: too many, long or odd."""
    if not tags:
        return ""
    for key, value in tags.items():
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise InvalidRequestError(f"{key!r} is no key of a row tag", hint=_HINT)
        if not isinstance(value, str) or not _VALUE.fullmatch(value):
            raise InvalidRequestError(f"row tag {key!r} has no usable value", hint=_HINT)
    sizes = [len(folder) for folder in _folders(tags)]
    if len(tags) > MOST_TAGS or max(sizes) > MOST_FOLDER_BYTES or sum(sizes) > MOST_BYTES:
        raise InvalidRequestError("there are too many row tags, or they are too long", hint=_HINT)
    return "\n".join(["", *(f"{key}={tags[key]}" for key in sorted(tags)), ""])


def tags_of(text: str) -> dict[str, str]:
    """Return the tags of a text of rows."""
    pairs = (each.partition("=") for each in text.split("\n") if each)
    return {key: value for key, _, value in pairs}


def tag_in(key: str, value: str) -> str | None:
    """Return what the text of a row has in it if the row has a tag; None if no row can have it."""
    return f"\n{key}={value}\n" if _KEY.fullmatch(key) and _VALUE.fullmatch(value) else None


def parse_tags(texts: Iterable[str]) -> dict[str, str]:
    """Return tags given as ``key=value``. Raises InvalidRequestError: none, or two values."""
    tags: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise InvalidRequestError(f"{text!r} is no row tag", hint="write KEY=VALUE")
        if tags.setdefault(key, value) != value:
            raise InvalidRequestError(f"row tag {key!r} has two values")
    row_tags(tags)
    return tags


def with_tags(key: str, tags: Mapping[str, str]) -> str:
    """Return the key under which a file is dropped in a table's folder so that its rows have tags.
    Raises as `row_tags`.
    """
    row_tags(tags)
    name, _, rest = key.partition("/")
    return "/".join([name, *_folders(tags), rest])


def without_tags(key: str) -> str:
    """Return the key without the folders that are tags."""
    return _FOLDER.sub("", key)


def tags_of_key(key: str) -> dict[str, str]:
    """Return the tags that a key's folders say. Raises RefusedSourceError: one is none."""
    try:
        return parse_tags(unquote(folder, errors="strict") for folder in _FOLDER.findall(key))
    except UnicodeDecodeError as error:
        raise RefusedSourceError(
            "a folder of the file says a row tag that is not UTF-8", hint=_HINT
        ) from error
    except InvalidRequestError as error:
        raise RefusedSourceError(f"a folder of the file: {error}", hint=error.hint) from error


def _folders(tags: Mapping[str, str]) -> list[str]:
    return [f"tag.{key}={quote(tags[key], safe='')}" for key in sorted(tags)]


def texts_of(joined: str) -> list[str] | None:
    """Return the texts that rows of a shard have; None if these are not listed."""
    return None if joined == ANY else joined.split(_SEPARATOR)


def only_text(joined: str) -> str | None:
    """Return the text that all rows of a shard have; None if it may not be the same."""
    texts = texts_of(joined)
    return texts[0] if texts and len(texts) == 1 else None


def joined_texts(texts: Iterable[str]) -> str:
    """Return the texts of a shard as what `texts_of` reads; `ANY` if they take too many bytes."""
    text = _SEPARATOR.join(sorted(set(texts)))
    return ANY if len(text.encode()) > MOST_TEXTS_BYTES else text


def merged_texts(shards: Iterable[str]) -> str:
    """Return the texts of the rows of several shards together."""
    texts = {*shards}
    if ANY in texts:
        return ANY
    return joined_texts(text for each in texts for text in each.split(_SEPARATOR))


def may_have(joined: str, tags: Iterable[str]) -> bool:
    """Return whether a row of a shard may have one of some tags (`tag_in`)."""
    return joined == ANY or any(tag in joined for tag in tags)


def all_have(joined: str, tags: Iterable[str]) -> bool:
    """Return whether each row of a shard has one of some tags."""
    tags = tuple(tags)
    return joined != ANY and all(may_have(text, tags) for text in joined.split(_SEPARATOR))
