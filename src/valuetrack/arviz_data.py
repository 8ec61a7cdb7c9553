"""Chains for ArviZ, before and after its version 1, which made ``InferenceData`` a ``DataTree``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

from valuetrack.types import NDArray

if TYPE_CHECKING:
    import arviz

InferenceData: TypeAlias = "arviz.InferenceData"
"""``arviz.InferenceData``, or from ArviZ 1 on ``xarray.DataTree``: ``.posterior`` of both is the
dataset of the draws."""


def inference_data(
    named: Mapping[str, NDArray],
    dims: Mapping[str, Sequence[str]] | None = None,
    coords: Mapping[str, Sequence[object]] | None = None,
) -> InferenceData:
    """Return arrays (chain, draw, ...) for ArviZ (needs the extra ``arviz``).

    ``dims`` has the names of a variable's axes after the first two, ``coords`` what lies along
    them.
    """
    try:
        import arviz  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ImportError("ArviZ is not installed: pip install 'valuetrack[arviz]'.") from error
    names = {name: list(axes) for name, axes in (dims or {}).items()}
    along = {axis: list(names) for axis, names in (coords or {}).items()}
    data: InferenceData
    if int(arviz.__version__.partition(".")[0]) < 1:
        data = arviz.from_dict(posterior=dict(named), dims=names, coords=along)
    else:
        data = arviz.from_dict({"posterior": dict(named)}, dims=names, coords=along)
    return data
