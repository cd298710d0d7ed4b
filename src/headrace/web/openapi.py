"""The description of the JSON API: OpenAPI 3.1, from the functions and types behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_type_hints

from headrace import __version__

from .actions import ACTIONS
from .schemas import parameters_of, schemas_of
from .views import Error, Preview

_DRY_RUN = {"type": "boolean", "default": True, "description": "true: only say what would change"}


def document(views: Sequence[Callable[..., Any]]) -> dict[str, Any]:
    """Return the OpenAPI document.

    :param views: the functions of the views
    """
    results = {view: get_type_hints(view)["return"] for view in views}
    functions = [*views, *(action.make_plan for action in ACTIONS.values())]
    schemas, parts = schemas_of([*results.values(), Preview, Error, *map(parameters_of, functions)])
    requests = {function: parts.pop(function.__name__) for function in functions}

    def operation(function: Callable[..., Any], result: Any, **more: Any) -> dict[str, Any]:
        def answer(text: str, kind: Any) -> dict[str, Any]:
            return {"description": text, "content": {"application/json": {"schema": schemas[kind]}}}

        summary = (function.__doc__ or "").partition("\n")[0]
        refusal = answer("The request cannot be answered, and why.", Error)
        responses = {"200": answer(summary, result), "default": refusal}
        return {"summary": summary, "responses": responses, **more}

    paths: dict[str, Any] = {}
    for view, result in results.items():
        required = requests[view]["required"]
        parameters = [
            {"name": name, "in": "query", "required": name in required, "schema": schema}
            for name, schema in requests[view]["properties"].items()
        ]
        paths[f"/api/{view.__name__}"] = {"get": operation(view, result, parameters=parameters)}
    for action in ACTIONS.values():
        body = requests[action.make_plan]
        body["properties"]["dry_run"] = _DRY_RUN
        post = operation(
            action.make_plan,
            Preview,
            description=f"In the cluster it takes {action.needs}.",
            security=[{"token": []}, {"user": []}],
            requestBody={"required": True, "content": {"application/json": {"schema": body}}},
        )
        paths[f"/api/actions/{action.name}"] = {"post": post}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace ui",
            "version": __version__,
            "description": "The queues of a Kafka-protocol cluster. Unknown values are null.",
        },
        "paths": paths,
        "components": {
            "schemas": parts,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "user": {"type": "http", "scheme": "basic"},
            },
        },
    }
