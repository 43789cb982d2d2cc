"""Grafana's own typed model reads the dashboards: every field is known to it and has its type. The files that provision Grafana in
Compose have the fields of Grafana's documentation, and point at each other."""

import importlib
import json
import sys
import types
import typing
from enum import Enum
from pathlib import Path

import jsonschema
import yaml
from grafana_foundation_sdk.cog import plugins, runtime
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import Dashboard

COMPOSE = Path("deploy/compose")


def faults(value, hint, where):
    """What of a value of the model does not have the type that the model states."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is typing.Any or hint is object:
        return
    if origin in (typing.Union, types.UnionType):
        root = lambda option: typing.get_origin(option) or option
        own = [option for option in inner if isinstance(root(option), type) and isinstance(value, root(option))]
        yield from min((list(faults(value, option, where)) for option in own or inner), key=len)
    elif origin is typing.Literal:
        if value not in inner:
            yield f"{where}: {value!r} is none of {inner}"
    elif origin is list:
        if not isinstance(value, list):
            yield f"{where}: {value!r} is no list"
            return
        for number, item in enumerate(value):
            yield from faults(item, inner[0], f"{where}[{number}]")
    elif origin is dict:
        if not isinstance(value, dict):
            yield f"{where}: {value!r} is no object"
            return
        for key, item in value.items():
            yield from faults(item, inner[1], f"{where}.{key}")
    elif hint is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            yield f"{where}: {value!r} is no number"
    elif isinstance(hint, type) and issubclass(hint, Enum):
        if value not in [option.value for option in hint]:
            yield f"{where}: {value!r} is none of {[option.value for option in hint]}"
    elif hint in (int, str, bool, type(None)):
        if type(value) is not hint:
            yield f"{where}: {value!r} is no {hint.__name__}"
    elif isinstance(value, dict) and hasattr(hint, "from_json"):
        # The model leaves some of its objects as they are in the file.
        yield from of_object(value, hint, where)
    elif not isinstance(value, hint):
        yield f"{where}: {value!r} is no {hint.__name__}"
    else:
        yield from fields(value, where)


def fields(value, where):
    """The same of each field of an object of the model."""
    module = importlib.import_module(type(value).__module__)
    for name, hint in typing.get_type_hints(type(value), vars(module)).items():
        yield from faults(getattr(value, name), hint, f"{where}.{name}")


def lost(wanted, found, where):
    """What of a file the model has not taken over: it does not know the field."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            if key in found:
                yield from lost(value, found[key], f"{where}.{key}")
            elif value is not None:
                yield f"{where}.{key}: unknown"
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (one, other) in enumerate(zip(wanted, found)):
            yield from lost(one, other, f"{where}[{number}]")
    elif wanted != found:
        yield f"{where}: {wanted!r} is read as {found!r}"


def of_object(wanted, kind, where):
    """Faults of an object of a file, which has this type of the model."""
    model = kind.from_json(wanted)
    yield from fields(model, where)
    yield from lost(wanted, json.loads(json.dumps(model, cls=JSONEncoder)), where)


def of_dashboard(text, where):
    """Faults of a dashboard."""
    wanted = json.loads(text)
    for panel in wanted["panels"]:
        if runtime.panelcfg_config(panel["type"]) is None:
            yield f"{where}: no panel has the type {panel['type']!r}"
    yield from of_object(wanted, Dashboard, where)


def listing(name, item, required):
    """A schema of a file of provisioning."""
    items = {"type": "object", "required": required, "properties": item, "additionalProperties": False}
    return {
        "type": "object",
        "required": ["apiVersion", name],
        "properties": {"apiVersion": {"const": 1}, name: {"type": "array", "minItems": 1, "items": items}},
        "additionalProperties": False,
    }


TEXT, YES = {"type": "string"}, {"type": "boolean"}
# Grafana publishes no schema of these; the fields are those of its page on provisioning, as far as we use them.
SOURCES = listing(
    "datasources",
    {"name": TEXT, "uid": TEXT, "type": TEXT, "access": {"enum": ["proxy", "direct"]}, "url": TEXT, "isDefault": YES},
    ["name", "type", "access"],
)
PROVIDERS = listing(
    "providers",
    {"name": TEXT, "type": {"const": "file"}, "options": {"type": "object", "required": ["path"], "properties": {"path": TEXT}}},
    ["name", "options"],
)


def of_compose():
    """Faults of the provisioning in Compose."""
    files = {}
    for name, schema in [("datasources/prometheus.yaml", SOURCES), ("dashboards/files.yaml", PROVIDERS)]:
        files[name] = yaml.safe_load((COMPOSE / "grafana" / name).read_text())
        for error in jsonschema.Draft202012Validator(schema).iter_errors(files[name]):
            yield f"{name}: {error.json_path}: {error.message}"
    services = yaml.safe_load(Path("docker-compose.yml").read_text())["services"]
    mounts = [volume.split(":")[:2] for volume in services["grafana"]["volumes"]]
    mounts = {inside: Path(outside).resolve() for outside, inside in mounts}
    for provider in files["dashboards/files.yaml"]["providers"]:
        if mounts.get(provider["options"]["path"]) != Path("deploy/grafana").resolve():
            yield f"{provider['options']['path']} is not deploy/grafana"
    for name in map(Path, files):
        if mounts.get(f"/etc/grafana/provisioning/{name.parent}") != (COMPOSE / "grafana" / name.parent).resolve():
            yield f"{name} is not mounted where Grafana looks for it"
    for source in files["datasources/prometheus.yaml"]["datasources"]:
        host = source["url"].removeprefix("http://").split(":")[0]
        if source["type"] != "prometheus" or host not in services:
            yield f"{source['name']}: {source['url']} is no Prometheus of docker-compose.yml"


def check_itself(text):
    """A misspelt field, a wrong type and an unknown panel are found."""
    for old, new in [('"gridPos"', '"gridpos"'), ('"editable": true', '"editable": "true"'), ('"type": "stat"', '"type": "stats"')]:
        assert old in text and list(of_dashboard(text.replace(old, new), "")), f"{new} is not found"


plugins.register_default_plugins()
paths = sorted(Path("deploy/grafana").glob("*.json"))
check_itself(paths[0].read_text())
found = [list(of_dashboard(path.read_text(), path.stem)) for path in paths] + [list(of_compose())]
for fault in sum(found, []):
    print(fault)
failed = sum(map(bool, found))
print(f"{len(found) - failed} passed, {failed} failed")
sys.exit(failed > 0)
