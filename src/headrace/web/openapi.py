"""The description of the JSON API: OpenAPI 3.1, from the functions and types behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, get_type_hints

from headrace import __version__

from .actions import Action
from .schemas import parameters_of, schema_of
from .views import Error, Preview

_DRY_RUN = {
    "type": "boolean",
    "default": True,
    "description": "true: only say what would change",
}


def summary_of(function: Callable[..., Any]) -> str:
    """Return what a function does: the first line of its docstring."""
    return (function.__doc__ or "").partition("\n")[0]


def document(views: Iterable[Callable[..., Any]], actions: Iterable[Action]) -> dict[str, Any]:
    """Return the OpenAPI document.

    :param views: the functions of the views, by name
    """
    schemas: dict[str, Any] = {}

    def operation(summary: str, result: Any) -> dict[str, Any]:
        def answer(text: str, kind: Any) -> dict[str, Any]:
            content = {"application/json": {"schema": schema_of(kind, schemas)}}
            return {"description": text, "content": content}

        refusal = answer("The request cannot be answered, and why.", Error)
        return {
            "summary": summary,
            "responses": {"200": answer(summary, result), "default": refusal},
        }

    paths: dict[str, Any] = {}
    for view in views:
        parameters = [
            {
                "name": parameter.name,
                "in": "query",
                "required": parameter.is_required,
                "description": parameter.about.text,
                "schema": parameter.schema(),
            }
            for parameter in parameters_of(view)
        ]
        described = operation(summary_of(view), get_type_hints(view)["return"])
        paths[f"/api/{view.__name__}"] = {"get": described | {"parameters": parameters}}
    for action in actions:
        body = {
            "type": "object",
            "properties": {field.name: field.schema() for field in action.fields}
            | {"dry_run": _DRY_RUN},
            "required": [field.name for field in action.fields if field.is_required],
        }
        described = operation(summary_of(action.make_plan), Preview) | {
            "description": f"In the cluster it takes {action.needs}.",
            "security": [{"token": []}, {"user": []}],
            "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        }
        paths[f"/api/actions/{action.name}"] = {"post": described}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace ui",
            "version": __version__,
            "description": "The queues of a Kafka-protocol cluster. Unknown values are null.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "user": {"type": "http", "scheme": "basic"},
            },
        },
    }
