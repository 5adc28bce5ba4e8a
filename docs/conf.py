# Sphinx's settings for the book that `packaging/book` makes of these pages.
project = "Settee"
extensions = ["myst_parser"]
# Links to headings have the same form as on GitHub.
myst_heading_anchors = 4
# Some examples are shortened, or in languages that the highlighter does not know.
suppress_warnings = ["misc.highlighting_failure"]
html_theme = "alabaster"
html_theme_options = {
    "description": "Runs untrusted JavaScript, Python or other functions in pooled, sandboxed processes, with limits on time and memory",
    "page_width": "1100px",
    "sidebar_width": "260px",
    "fixed_sidebar": True,
}
html_sidebars = {"**": ["about.html", "searchbox.html", "navigation.html"]}
html_copy_source = False
