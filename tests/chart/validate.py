"""Judges objects by the schemas of Kubernetes, strictly, for several versions in one go.

In, on stdin: {"oldest": "1.31", "documents": [...]}. Out: {"versions": [...], "errors": [...], "unknown": [...]}.
"""

import functools
import json
import sys

from kubernetes_validate import utils

# The library reads a schema anew for each document.
utils.schema_contents = functools.lru_cache(maxsize=None)(utils.schema_contents)

asked = json.load(sys.stdin)
number = lambda version: tuple(int(part) for part in version.split(".")[:2])
versions = sorted((v for v in utils.all_versions() if number(v) >= number(asked["oldest"])), key=number)
errors, unknown = [], set()
for document in asked["documents"]:
    for version in versions:
        try:
            utils.validate(document, version, strict=True)
        except utils.SchemaNotFoundError:
            unknown.add(document["kind"])
        except utils.ValidationError as error:
            place = ".".join(map(str, error.path))
            errors.append(f"{version}: {document['kind']} {document['metadata']['name']}: {place}: {error.message}")
json.dump({"versions": versions, "errors": errors, "unknown": sorted(unknown)}, sys.stdout)
