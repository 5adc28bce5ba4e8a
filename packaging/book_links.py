"""Fails if a link of a page in the folder named leads to no file, or to no place of a page."""
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.places, self.links = set(), []
        self.feed(path.read_text())

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.places.add(attributes.get("id"))
        self.links += [attributes[name] for name in ("href", "src") if attributes.get(name)]


folder = Path(sys.argv[1]).resolve()
pages = {path: Page(path) for path in folder.rglob("*.html")}
wrong = [] if pages else [f"{folder}: no page"]
for path, page in pages.items():
    for link in page.links:
        to = urlsplit(link)
        if to.scheme or to.netloc:
            continue
        target = (path.parent / unquote(to.path)).resolve() if to.path else path
        known = pages[target].places if target in pages else {""}
        if not target.is_file() or unquote(to.fragment or "") not in known | {""}:
            wrong.append(f"{path.relative_to(folder)}: {link}")
sys.exit("\n".join(wrong) or 0)
