"""Prints overview.svg, a diagram of who talks to whom: python3 docs/images/overview.py > docs/images/overview.svg"""

from html import escape

# Frames, boxes: left, top, width, height, class, lines of text.
BOXES = [
    (290, 20, 270, 236, "frame", "Settee"),
    (640, 20, 230, 236, "frame cell", "Sandboxed processes"),
    (10, 54, 200, 52, "box", "Your program", "client for Python, Node, Rust"),
    (10, 120, 200, 52, "box extra", "CouchDB (optional)", "its functions, by settee attach"),
    (10, 186, 200, 52, "box", "Any HTTP client", "functions, dashboard, metrics"),
    (305, 54, 240, 86, "box main", "Pools", "lend warm processes:", "limits, turns, logs, costs"),
    (305, 172, 240, 66, "box main extra", "Replication scheduler", "optional: copies CouchDB databases"),
    (655, 54, 200, 52, "box", "JavaScript", "one customer's functions"),
    (655, 120, 200, 52, "box", "JavaScript", "several customers', in isolates"),
    (655, 186, 200, 52, "box", "Python, any program", "sandboxed too"),
    (640, 292, 230, 52, "box extra", "CouchDB databases", "sources and targets"),
    (305, 292, 240, 52, "box store", "A file, or PostgreSQL", "settings, and replications to do"),
]

# Arrows: points, and a text with its place.
ARROWS = [
    ([(210, 80), (303, 80)], "socket", (250, 74)),
    ([(210, 146), (250, 146), (250, 104), (303, 104)], "", None),
    ([(210, 205), (268, 205), (268, 126), (303, 126)], "", None),
    ([(210, 222), (303, 222)], "HTTP", (236, 237)),
    ([(545, 80), (653, 80)], "JSON lines", (604, 74)),
    ([(545, 104), (600, 104), (600, 146), (653, 146)], "", None),
    ([(545, 126), (582, 126), (582, 212), (653, 212)], "", None),
    ([(545, 222), (566, 222), (566, 318), (638, 318)], "HTTP", (604, 312)),
    ([(425, 238), (425, 290)], "", None),
]

STYLE = """
  .page { fill: #fff; stroke: #d0d7de }
  .box { fill: #f6f8fa; stroke: #8c959f }
  .main { fill: #ddf4ff; stroke: #0969da }
  .extra { fill-opacity: .3; stroke-dasharray: 2 3 }
  .store { fill: #fff8c5; stroke: #9a6700 }
  .frame { fill: none; stroke: #57606a }
  .cell { stroke-dasharray: 6 4 }
  .arrow { fill: none; stroke: #57606a; stroke-width: 1.5 }
  .head { fill: #57606a }
  text { fill: #1f2328; font: 12px system-ui, "Segoe UI", Helvetica, Arial, sans-serif; text-anchor: middle }
  .title { font-weight: 600; font-size: 14px }
  @media (prefers-color-scheme: dark) {
    .page { fill: #0d1117; stroke: #3d444d }
    .box { fill: #212830; stroke: #656c76 }
    .main { fill: #12304f; stroke: #4493f8 }
    .store { fill: #3a2d0a; stroke: #d29922 }
    .frame { stroke: #9198a1 }
    .arrow { stroke: #9198a1 }
    .head { fill: #9198a1 }
    text { fill: #f0f6fc }
  }
"""


def text(x, y, words, kind=""):
    return f'<text x="{x:g}" y="{y:g}"{kind}>{escape(words, quote=False)}</text>'


print('<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 880 356" width="880" height="356" role="img">')
print("<title>Who talks to whom</title>")
print(f"<style>{STYLE}</style>")
print('<marker id="head" markerWidth="8" markerHeight="8" refX="6" refY="4" orient="auto"><path class="head" d="M0 0L8 4L0 8z"/></marker>')
print('<rect class="page" x=".5" y=".5" width="879" height="355" rx="8"/>')
for left, top, width, height, kind, title, *lines in BOXES:
    print(f'<rect class="{kind}" x="{left}" y="{top}" width="{width}" height="{height}" rx="6"/>')
    # A frame has its title at the top, a box its lines in the middle.
    first = top + 22 if kind.startswith("frame") else top + height / 2 + 5 - 9 * len(lines)
    print(text(left + width / 2, first, title, ' class="title"'))
    for number, line in enumerate(lines, 1):
        print(text(left + width / 2, first + 18 * number, line))
for points, words, place in ARROWS:
    path = "L".join(f"{x} {y}" for x, y in points)
    print(f'<path class="arrow" marker-end="url(#head)" d="M{path}"/>')
    if place:
        print(text(*place, words))
print("</svg>")
