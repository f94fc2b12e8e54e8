"""Hooks of MkDocs: files outside docs/ become part of the site, and links to them work.

The pages are written for GitHub: their links are relative paths in the repository, such as
``../models/Pong/README.md``. In the site docs/ is the root, and a file outside it keeps its path in
the repository. Pages outside docs/ are those that mkdocs.yml names in ``nav``; other files are
those that a page links to.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parent.parent
# The target of a link or picture. What looks like one in code leads nowhere and is left as it is.
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
# A picture that is no link yet.
PICTURE = re.compile(r"(?<!\[)(!\[[^\]]*\]\(([^)\s]+)\))")
EXTERNAL = re.compile(r"[a-z]+:")
# The roles of reStructuredText, which docstrings use and Markdown does not know.
ROLE = re.compile(r":(?:attr|class|func|meth|mod):(?=<code>)")
# The README is the first page of the site.
README, INDEX = "README.md", "index.md"


def site_path(path: str) -> str:
    """Returns where a file of the repository is in the site; both relative, with slashes."""
    if path == README:
        return INDEX
    return path.removeprefix("docs/")


def repository_path(path: str) -> str:
    """Returns which file of the repository a page of the site is; both relative."""
    if path == INDEX:
        return README
    return f"docs/{path}" if (ROOT / "docs" / path).exists() else path


def link_targets(text: str, page: str) -> list[str]:
    """Lists the files of the repository that a page links to.

    Args:
        page: its path in the repository.

    Returns:
        Paths in the repository of files that exist.
    """
    return [
        target
        for _, link, _ in LINK.findall(text)
        if not EXTERNAL.match(link) and (ROOT / (target := resolve(link, page))).is_file()
    ]


def resolve(link: str, page: str) -> str:
    """Returns the path in the repository of what a page's relative link leads to."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def named_pages(nav: Any) -> list[str]:
    """Lists the paths in the site of the pages in ``nav``: nested lists and mappings of paths."""
    if isinstance(nav, str):
        return [nav.partition("#")[0]]
    return [
        path
        for part in (nav.values() if isinstance(nav, dict) else nav)
        for path in named_pages(part)
    ]


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages and files outside docs/ (MkDocs calls this)."""
    pages = dict.fromkeys(repository_path(page) for page in named_pages(config.nav))
    for page in pages:
        targets = link_targets((ROOT / page).read_text(), page)
        for path in [page, *(t for t in targets if not t.endswith(".md"))]:
            if files.get_file_from_path(site_path(path)) is None:
                source = str(ROOT / path)
                files.append(File.generated(config, site_path(path), abs_src_path=source))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Leads links to the place in the site of what they lead to, and makes each picture a link to
    its file, where it can be seen in full size (MkDocs calls this).
    """
    path = repository_path(page.file.src_uri)
    folder = posixpath.dirname(page.file.src_uri)

    def replace(match: re.Match[str]) -> str:
        before, link, after = match.groups()
        target = resolve(link, path)
        if EXTERNAL.match(link) or not (ROOT / target).exists():
            return match[0]
        return before + posixpath.relpath(site_path(target), folder or ".") + after

    return PICTURE.sub(r"[\1](\2)", LINK.sub(replace, markdown))


def on_page_content(html: str, page: Any, config: Any, files: Files) -> str:
    """Removes the roles of docstrings from a finished page (MkDocs calls this)."""
    return ROLE.sub("", html)
