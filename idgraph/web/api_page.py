"""The description of a REST interface as one HTML page: made here out of its OpenAPI document, without scripts or other
hosts, so that it shows where there is no internet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

PATH = "/docs"
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}
_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color-scheme: light dark }
code, pre { font: 0.9rem/1.4 ui-monospace, monospace }
pre { overflow-x: auto; padding: 0.5rem; border: 1px solid #8886 }
summary { cursor: pointer; padding: 0.25rem 0 }
details details { margin-left: 1.5rem }
table { border-collapse: collapse }
th, td { text-align: left; vertical-align: top; padding: 0.2rem 1rem 0.2rem 0; border-bottom: 1px solid #8884 }
.method { display: inline-block; min-width: 4.5rem; font-weight: bold }
"""


def install(app: FastAPI) -> None:
    """Serve the page of an application at `/docs`."""

    @app.get(PATH, include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(page(app.openapi()), headers=_HEADERS)


def page(document: dict[str, Any]) -> str:
    """The page of an OpenAPI document."""
    title = escape(document["info"]["title"])
    body = "".join(
        (
            f"<h1>{title}</h1><p>Version {escape(document['info']['version'])}. For programs: "
            '<a href="openapi.json">openapi.json</a>.</p><h2>Operations</h2>',
            *_operations(document),
            "<h2>Types</h2>",
            *_types(document),
        )
    )
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f"<style>{_STYLE}</style></head><body>{body}</body></html>"
    )


def _operations(document: dict[str, Any]) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            needs_token = bool(operation.get("security", document.get("security")))
            yield (
                f'<details><summary><span class="method">{escape(method.upper())}</span> <code>{escape(path)}</code></summary>'
                f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
                f"<p>{'Needs a bearer token.' if needs_token else 'Needs no token.'}</p>"
            )
            yield _table(
                ("parameter", "in", "type", "meaning"),
                (
                    (each["name"], each["in"], _type(each["schema"]), each.get("description", ""))
                    for each in operation.get("parameters", ())
                ),
            )
            yield from _bodies("Body", operation.get("requestBody", {}))
            for status, answer in operation["responses"].items():
                yield from _bodies(f"{status} {answer.get('description', '')}", answer, is_named=True)
            yield "</details>"


def _bodies(name: str, place: dict[str, Any], is_named: bool = False) -> Iterator[str]:
    kinds = [
        f"{escape(_type(each.get('schema', {})))} <code>{escape(kind)}</code>"
        for kind, each in place.get("content", {}).items()
    ]
    if kinds or is_named:
        yield f"<p><b>{escape(name)}</b> {', '.join(kinds)}</p>"


def _types(document: dict[str, Any]) -> Iterator[str]:
    for name, schema in sorted(document.get("components", {}).get("schemas", {}).items()):
        yield f"<details><summary><code>{escape(name)}</code></summary><p>{escape(schema.get('description', ''))}</p>"
        yield f"<pre>{escape(json.dumps(schema, indent=2))}</pre></details>"


def _type(schema: dict[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(map(_type, schema["anyOf"]))
    if "enum" in schema:
        return " or ".join(map(json.dumps, schema["enum"]))
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {}))}"
    return str(schema.get("type", json.dumps(schema["const"]) if "const" in schema else "any"))


def _table(titles: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    made = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "".join(f"<th>{title}</th>" for title in titles)
    return f"<table><tr>{head}</tr>{made}</table>" if made else ""
