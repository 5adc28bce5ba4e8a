"""Generates a client from docs/openapi.json with openapi-python-client, and sends a running daemon a request with it.

Arguments: the folder for the client, the path of the OpenAPI document, and the URL of the daemon. Fails unless the
client has a module for each operation, and all modules can be imported.
"""

import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path

folder, description, daemon = sys.argv[1:]
generator = Path(sys.executable).with_name("openapi-python-client")
made = subprocess.run(
    [generator, "generate", "--path", description, "--output-path", f"{folder}/made", "--meta", "none"],
    check=True, capture_output=True, text=True,
)
sys.path.insert(0, folder)
import made as package  # noqa: E402

modules = [module.name for module in pkgutil.walk_packages(package.__path__, "made.")]
for name in modules:
    importlib.import_module(name)
paths = json.loads(Path(description).read_text())["paths"].values()
operations = sum(method in path for path in paths for method in ("get", "put", "post", "delete"))
calls = [name for name in modules if name.startswith("made.api.default.")]
assert len(calls) == operations, f"{len(calls)} of {operations}: {made.stdout}"

from made import Client  # noqa: E402
from made.api.default import up  # noqa: E402

assert up.sync(client=Client(base_url=daemon)).status == "ok"
