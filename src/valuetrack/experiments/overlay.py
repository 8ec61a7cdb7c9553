"""Tables of an experiment's file laid over one another: what the upper one says, counts."""

from __future__ import annotations

from valuetrack.types import Json


class UnknownTaskError(ValueError):
    """A task is to be like one that does not exist."""


def over(below: Json, above: Json) -> Json:
    """Lay one table over another, at every depth.

    Examples
    --------
    >>> over({"a": {"x": 1, "y": 2}, "b": 3}, {"a": {"x": 9}})
    {'a': {'x': 9, 'y': 2}, 'b': 3}
    """

    def laid(low: object, high: object) -> object:
        return over(low, high) if isinstance(low, dict) and isinstance(high, dict) else high

    return {**below, **{key: laid(below.get(key), value) for key, value in above.items()}}


def tasks_like_others(data: Json) -> Json:
    """Fill in what tasks take over from another one, which comes before them in the file.

    Raises
    ------
    UnknownTaskError
        If there is no such task before it.

    Examples
    --------
    >>> tasks = {"a": {"steps": 1, "env": "x"}, "b": {"like": "a", "steps": 2}}
    >>> tasks_like_others({"tasks": tasks})
    {'tasks': {'a': {'steps': 1, 'env': 'x'}, 'b': {'steps': 2, 'env': 'x'}}}
    """
    given = data.get("tasks")
    if not isinstance(given, dict):
        return data
    tasks: Json = {}
    for name, task in given.items():
        tasks[name] = task
        if isinstance(task, dict) and "like" in task:
            like = task["like"]
            if not isinstance(like, str) or like == name or like not in tasks:
                raise UnknownTaskError(
                    f"task {name!r} is like {like!r}, which is no task before it."
                )
            tasks[name] = over(tasks[like], {k: v for k, v in task.items() if k != "like"})
    return {**data, "tasks": tasks}
