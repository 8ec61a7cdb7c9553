"""Options as typed keyword arguments: for ``help``, for editors and for type checkers.

Pydantic's annotations carry limits and validators, which a reader of a signature does not want to
see. :func:`plain_type` leaves what one may write.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pydantic

UNIONS = (Union, types.UnionType)


def plain_type(annotation: Any) -> Any:
    """Return the type of what users may write for an option.

    Examples
    --------
    >>> from typing import Annotated
    >>> plain_type(tuple[Annotated[int, "at least 1"], ...] | None)
    collections.abc.Sequence[int] | None
    """
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        accepted = [getattr(extra, "json_schema_input_type", None) for extra in inside[1:]]
        wider = [one for one in accepted if get_origin(one) in UNIONS]
        return plain_type(wider[0] if wider else inside[0])
    if origin in UNIONS:
        return _union([plain_type(one) for one in inside])
    if origin is tuple:
        if inside[-1] is Ellipsis:
            return Sequence[plain_type(inside[0])]  # type: ignore[misc]
        return tuple[tuple(map(plain_type, inside))]  # type: ignore[misc]
    if isinstance(annotation, type) and issubclass(annotation, pydantic.BaseModel):
        return Mapping[str, Any]
    return annotation


def _union(parts: Sequence[Any]) -> Any:
    """Return the union of types; all texts and numbers that are named stand in one literal."""
    named = [value for part in parts if get_origin(part) is Literal for value in get_args(part)]
    others = [part for part in parts if get_origin(part) is not Literal]
    literal = [Literal[tuple(named)]] if named else []
    at_end = [part for part in others if part is type(None)]
    before = [part for part in others if part is not type(None)]
    return functools.reduce(operator.or_, dict.fromkeys([*before, *literal, *at_end]))


def with_options(init: Callable[..., None], kind: type[pydantic.BaseModel]) -> inspect.Signature:
    """Return the signature of a constructor whose ``**options`` are those of ``kind``."""
    _, *own = inspect.signature(init, eval_str=True).parameters.values()
    fixed = [parameter for parameter in own if parameter.kind is not parameter.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=plain_type(Annotated[(field.annotation, *field.metadata, None)]),
        )
        for name, field in kind.model_fields.items()
    ]
    return inspect.Signature([*fixed, *options])


def written_type(annotation: Any) -> str:
    """Write a plain type as Python source.

    Examples
    --------
    >>> from typing import Literal
    >>> written_type(Literal["he", "normal"] | None)
    'Literal["he", "normal"] | None'
    """
    origin, inside = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return f"Literal[{', '.join(map(written_value, inside))}]"
    if origin in UNIONS:
        return " | ".join(map(written_type, inside))
    if origin is not None:
        name = getattr(origin, "__name__", str(origin))
        return f"{name}[{', '.join(map(written_type, inside))}]"
    return "None" if annotation is type(None) else getattr(annotation, "__name__", "Any")


def written_value(value: object) -> str:
    """Write a default as Python source: texts in double quotes, large numbers in groups."""
    if isinstance(value, str):
        return f'"{value}"'
    return f"{value:_}" if type(value) is int else repr(value)
