"""Compares the parser with the JSON Schema of a config, and printed configs with what other readers make of them.

    schema_corpus.py verdicts FOLDER    validates the files of FOLDER/corpus.json, as PyYAML reads them, by FOLDER/schema.json
    schema_corpus.py prints FOLDER      reads the configs of FOLDER/prints.json, as YAML 1.1, as YAML 1.2 and as JSON

Prints each disagreement, and the number of agreements.
"""

import json
import math
import pathlib
import sys

import jsonschema
import ruamel.yaml
import yaml


def read(text, format):
    return json.loads(text) if format == "json" else yaml.safe_load(text)


def plain(value):
    """Replaces infinity, which JSON lacks, by the text that YAML has for it."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    return value


def same(a, b):
    """As ==, but True is not 1 and 1 is not 1.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b


def verdicts(folder, validator):
    agreed = 0
    for file in json.loads((folder / "corpus.json").read_text()):
        value = read(file["text"], file["format"])
        errors = [error.message[:300] for error in validator.iter_errors(value)]
        if (not errors) == file["valid"]:
            agreed += 1
        else:
            print("the parser", "takes" if file["valid"] else "refuses", json.dumps(file["text"]), "read as", repr(value), *errors)
    print(agreed, "files agree")


def prints(folder, validator):
    agreed = 0
    for config in json.loads((folder / "prints.json").read_text()):
        old = yaml.safe_load(config["yaml"])
        new = ruamel.yaml.YAML(typ="safe", pure=True).load(config["yaml"])
        other = json.loads(config["json"])
        errors = [error.message[:300] for value in (old, other) for error in validator.iter_errors(value)]
        if same(old, new) and same(plain(old), other) and not errors:
            agreed += 1
        else:
            print("read differently:", config["yaml"], old, new, other, *errors, sep="\n")
    print(agreed, "configs agree")


def main():
    folder = pathlib.Path(sys.argv[2])
    schema = json.loads((folder / "schema.json").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    {"verdicts": verdicts, "prints": prints}[sys.argv[1]](folder, jsonschema.Draft7Validator(schema))


if __name__ == "__main__":
    main()
