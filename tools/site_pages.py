"""Brings pages of the repository that lie outside docs/ into the site: a hook of MkDocs.

README, CHANGELOG, CONTRIBUTING and the results of benchmarks stay where people look for them in a
checkout. The site shows each under a path of its own, and links to and from it are rewritten.
Nothing else may be linked: MkDocs reports every other link that leaves docs/.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).parents[1]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(\]\(|<img src=\")([^)\s\"#]+)(?=[)#\"])")


def outside_pages(root: Path = ROOT) -> dict[str, str]:
    """Return the path in the site of each page outside docs/, by its path in the repository."""
    results = sorted((root / "bench" / "results").glob("*.md"))
    return {
        "README.md": "overview.md",
        "CHANGELOG.md": "changelog.md",
        "CONTRIBUTING.md": "contributing.md",
        **{f"bench/results/{page.name}": f"measurements/{page.name}" for page in results},
    }


def relinked(text: str, at: str, outside: dict[str, str]) -> str:
    """Return a page's text with links as the site needs them.

    `at` is the page's path in the repository, for example ``docs/guide.md``; `outside` is that of
    `outside_pages`. A link that leads to no page of the site is left as it is.
    """
    here = posixpath.dirname(_in_site(at, outside) or at)

    def moved(link: re.Match[str]) -> str:
        before, path = link.groups()
        target = _target(path, at)
        in_site = None if target is None else _in_site(target, outside)
        return link[0] if in_site is None else before + posixpath.relpath(in_site, here or ".")

    return _LINK.sub(moved, text)


def link_targets(text: str, at: str) -> set[str]:
    """Return the paths in the repository to which a page at path `at` links."""
    prose = _CODE.sub("", text)
    targets = (_target(path, at) for _, path in _LINK.findall(prose))
    return {target for target in targets if target is not None}


def _target(path: str, at: str) -> str | None:
    """Return the path in the repository of a link's path; None if it leads to another site."""
    if re.match(r"[a-z]+:", path):
        return None
    return posixpath.normpath(posixpath.join(posixpath.dirname(at), path))


def _in_site(path: str, outside: dict[str, str]) -> str | None:
    if PurePosixPath(path).parts[:1] == ("docs",):
        return posixpath.relpath(path, "docs")
    return outside.get(path)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages outside docs/ to those of the site."""
    from mkdocs.structure.files import File

    for path, in_site in outside_pages().items():
        files.append(File.generated(config, in_site, content=(ROOT / path).read_text()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Rewrite the links of a page before it is rendered."""
    outside = outside_pages()
    paths = {in_site: path for path, in_site in outside.items()}
    source = page.file.src_uri
    return relinked(markdown, paths.get(source, f"docs/{source}"), outside)
