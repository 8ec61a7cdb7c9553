"""Networks as pairs of pure functions: ``init(key) -> params`` and ``apply(params, x) -> y``.

Parameters are a pytree ``{"body": [layer, ...], "head": layer}`` of plain arrays, so that a
sampler can treat them as one long vector and an agent can tell the shared body from the head.
Any other pair of such functions, Flax's and Equinox's included, serves as well.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np

from valuetrack.convolution import convolve
from valuetrack.host_networks import OnHost, duelled, mlp_on_host
from valuetrack.types import Apply, Array, Keywords, Params

Activation = Callable[[Array], Array]
Layer = dict[str, Array]
"""The weights ``w`` and biases ``b`` of a layer."""
LayerInit = Callable[[Array, tuple[int, ...]], Layer]
"""``(key, shape of the weights) -> layer``."""
InitName = Literal["he", "pytorch", "normal"]
"""The initialisations that have a name; see :func:`layer_init`."""

ACTIVATIONS: dict[str, Activation] = {
    "relu": jax.nn.relu,
    "tanh": jnp.tanh,
    "elu": jax.nn.elu,
    "gelu": jax.nn.gelu,
    "silu": jax.nn.silu,
    "leaky_relu": jax.nn.leaky_relu,
}

NATURE_CONVOLUTIONS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))
"""(channels, kernel, stride) of the convolutions of Mnih et al. (2015)."""
SMALL_CONVOLUTIONS = ((16, 3, 1), (32, 3, 1))
"""For images too small for those."""
TINY_CONVOLUTIONS = ((16, 2, 1),)
"""For images too small for those, too."""

PRIOR_FUNCTION = "prior"
"""The name of a prior function's parameters among those of a network."""

FEW = 4
"""Up to how many terms a sum is written out."""


class Network(NamedTuple):
    """A network: ``init(key) -> params`` and ``apply(params, observations) -> outputs``."""

    init: Callable[[Array], Params]
    apply: Apply
    on_host: OnHost | None = None
    """``apply`` in NumPy for many seeds, equal to rounding; ``None`` where there is no such."""


def product(x: Array, w: Array) -> Array:
    """Return x @ w, with sums of few terms written out, in the gradient as well.

    A network for a small task has few inputs and few actions. The products of its first layer,
    and of the gradient that leaves its last, have as few terms; written out they become part of
    the loops around them, while a matrix product would first be prepared and then called. Such a
    layer is differentiated in reverse only.
    """
    if min(w.shape) > FEW:
        return x @ w
    dtype = jnp.result_type(x, w)
    return _thin_product(x.astype(dtype), w.astype(dtype))


@jax.custom_vjp
def _thin_product(x: Array, w: Array) -> Array:
    return _multiply(x, w)


def _forward(x: Array, w: Array) -> tuple[Array, tuple[Array, Array]]:
    return _multiply(x, w), (x, w)


def _backward(saved: tuple[Array, Array], g: Array) -> tuple[Array, Array]:
    x, w = saved
    rows, outputs = x.reshape(-1, x.shape[-1]), g.reshape(-1, g.shape[-1])
    return _multiply(g, w.T), rows.T @ outputs


_thin_product.defvjp(_forward, _backward)


def _multiply(x: Array, w: Array) -> Array:
    """Return x @ w, as a sum over w's rows if they are few."""
    if w.shape[0] > FEW:
        return x @ w
    terms = [x[..., i : i + 1] * w[i] for i in range(w.shape[0])]
    return functools.reduce(jnp.add, terms)


def mlp(
    inputs: int | Sequence[int],
    outputs: int | Sequence[int],
    hidden: Sequence[int] = (32, 32),
    *,
    activation: str | Activation = "relu",
    init: InitName | LayerInit = "he",
    init_sd: float = 0.1,
    dueling: int | None = None,
) -> Network:
    r"""Build a fully connected network of any depth and width.

    Parameters
    ----------
    inputs
        Length of an observation, or its shape, whose axes are then flattened. Observations may have
        any dtype, and any number of leading batch axes.
    outputs
        Number of outputs, or their shape: ``(heads, actions)``, ``(actions, quantiles)``.
    hidden
        Widths of the hidden layers; empty for a linear model.
    activation
        A name from :data:`ACTIVATIONS` or a function.
    init, init_sd
        How weights and biases begin, see :func:`layer_init`.
    dueling
        The axis of the outputs that counts the actions, for a dueling head. The last hidden layer
        then exists twice, once for values and once for advantages,

        .. math:: Q(s, a) = V(s) + A(s, a) - \frac{1}{|\mathcal A|} \sum_b A(s, b).

    References
    ----------
    Wang et al. (2016). Dueling network architectures for deep reinforcement learning. ICML.
    https://arxiv.org/abs/1511.06581

    Examples
    --------
    >>> import jax
    >>> network = mlp(2, 4, hidden=(32, 32))
    >>> params = network.init(jax.random.key(0))
    >>> network.apply(params, jax.numpy.zeros((100, 2))).shape
    (100, 4)
    """
    act = _activation(activation)
    input_shape, output_shape = _shape(inputs), _shape(outputs)
    widths = (math.prod(input_shape), *hidden)
    if min((*widths, *output_shape)) < 1:
        raise ValueError(f"Every layer needs a width of at least 1: {widths} -> {output_shape}.")
    if dueling is not None:
        widths = _with_two_streams(widths)
    make = layer_init(init, init_sd)

    def init_params(key: Array) -> Params:
        *body_keys, head_key = jax.random.split(key, len(widths))
        pairs = zip(body_keys, widths[:-1], widths[1:], strict=True)
        body = [make(k, (fan_in, fan_out)) for k, fan_in, fan_out in pairs]
        if dueling is not None:
            head = _two_layers(make, head_key, widths[-1] // 2, output_shape, dueling)
            return {"body": body, "head": head}
        return {"body": body, "head": make(head_key, (widths[-1], math.prod(output_shape)))}

    def apply(params: Params, x: Array) -> Array:
        if len(input_shape) != 1:
            x = x.reshape(*x.shape[: x.ndim - len(input_shape)], widths[0])
        for layer in params["body"]:
            x = act(product(x, layer["w"]) + layer["b"])
        if dueling is not None:
            halves, head = jnp.split(x, 2, axis=-1), params["head"]
            layers = (head["value"], head["advantage"])
            pairs = zip(halves, layers, strict=True)
            parts = (product(half, layer["w"]) + layer["b"] for half, layer in pairs)
            value, advantage = parts
            q: Array = duelled(value, advantage, output_shape, dueling)
            return q
        y = product(x, params["head"]["w"]) + params["head"]["b"]
        return jnp.reshape(y, (*y.shape[:-1], *output_shape))

    on_host = None
    if isinstance(activation, str):  # a function may be for JAX's arrays only
        on_host = mlp_on_host(input_shape, output_shape, activation, dueling)
    return Network(init_params, apply, on_host)


def cnn(
    image_shape: Sequence[int],
    outputs: int | Sequence[int],
    *,
    convolutions: Sequence[tuple[int, int, int]] = NATURE_CONVOLUTIONS,
    hidden: Sequence[int] = (512,),
    activation: str | Activation = "relu",
    init: InitName | LayerInit = "he",
    init_sd: float = 0.1,
    dueling: int | None = None,
) -> Network:
    """Build a convolutional network for images, by default that of Mnih et al. (2015).

    ``image_shape`` is (height, width, channels). Images of dtype uint8 are divided by 255;
    booleans, other integers and floats are taken as they are. ``convolutions`` lists (channels,
    kernel, stride); :func:`fitting_convolutions` has some for small images. The other arguments
    are those of :func:`mlp`, which the flattened features go through.

    References
    ----------
    Mnih et al. (2015), Human-level control through deep reinforcement learning, Nature 518.

    Examples
    --------
    >>> import jax
    >>> shape = (10, 10, 4)  # one of MinAtar's, of booleans
    >>> network = cnn(shape, 3, convolutions=fitting_convolutions(shape), hidden=(128,))
    >>> params = network.init(jax.random.key(0))
    >>> network.apply(params, jax.numpy.zeros((32, *shape), bool)).shape
    (32, 3)
    """
    act = _activation(activation)
    if len(image_shape) != 3:
        raise ValueError(f"An image has a shape (height, width, channels), not {image_shape}.")
    make = layer_init(init, init_sd)
    kernels, features = _convolution_shapes(tuple(image_shape), convolutions)
    rest: Keywords = {"activation": act, "init": init, "init_sd": init_sd, "dueling": dueling}
    dense = mlp(features, outputs, hidden, **rest)

    def init_params(key: Array) -> Params:
        dense_key, *keys = jax.random.split(key, len(kernels) + 1)
        convs = [make(k, shape) for k, shape in zip(keys, kernels, strict=True)]
        params = dense.init(dense_key)
        return {"body": convs + params["body"], "head": params["head"]}

    def apply(params: Params, x: Array) -> Array:
        batch_shape = x.shape[:-3]
        x = x.reshape(-1, *image_shape)
        # Images stay bytes until they are patches: the kernel has fewer numbers to divide.
        scale = 255 if x.dtype == jnp.uint8 else 1
        for layer, (_, _, stride) in zip(params["body"], convolutions, strict=False):
            x = act(convolve(x, layer["w"] / scale, stride) + layer["b"])
            scale = 1
        x = x.reshape(*batch_shape, features)
        return dense.apply({"body": params["body"][len(kernels) :], "head": params["head"]}, x)

    return Network(init_params, apply)


def fitting_convolutions(image_shape: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    """Return the largest of the usual convolutions for which an image is large enough.

    Those of Mnih et al. (2015) need 36 x 36 pixels, :data:`SMALL_CONVOLUTIONS` 5 x 5 and
    :data:`TINY_CONVOLUTIONS` 2 x 2.

    Examples
    --------
    >>> fitting_convolutions((84, 84, 4)) == NATURE_CONVOLUTIONS
    True
    >>> fitting_convolutions((10, 10, 4))
    ((16, 3, 1), (32, 3, 1))
    """
    height, width = image_shape[:2]
    for convolutions in (NATURE_CONVOLUTIONS, SMALL_CONVOLUTIONS, TINY_CONVOLUTIONS):
        with contextlib.suppress(ValueError):  # too small for these
            _convolution_shapes((height, width, 1), convolutions)
            return convolutions
    raise ValueError(
        f"An image of {height} x {width} pixels is too small for a convolution; flatten it "
        "with gymnasium.wrappers.FlattenObservation."
    )


def for_observations(
    shape: Sequence[int],
    is_image: bool,
    outputs: int | Sequence[int],
    *,
    hidden: Sequence[int],
    convolutions: Sequence[tuple[int, int, int]] | None = None,
    activation: str | Activation = "relu",
    init: InitName | LayerInit = "he",
    init_sd: float = 0.1,
    dueling: int | None = None,
) -> Network:
    """Build the network that fits an observation: convolutions for images, else layers.

    Observations that are no images may have any shape and dtype; they are flattened. The other
    arguments are those of :func:`mlp` and :func:`cnn`; without ``convolutions``, images get the
    largest of the usual ones that they are large enough for.
    """
    common: Keywords = {
        "activation": activation, "init": init, "init_sd": init_sd, "dueling": dueling,
    }  # fmt: skip
    shape = tuple(shape)
    if is_image:
        chosen = convolutions or fitting_convolutions(shape)
        return cnn(shape, outputs, convolutions=chosen, hidden=hidden, **common)
    if convolutions is not None:
        raise ValueError(
            f"`convolutions` are for images, and an observation of shape {shape} is none: an image "
            "has three axes and at least 5 x 5 pixels."
        )
    return mlp(shape, outputs, hidden, **common)


def layer_init(init: InitName | LayerInit = "he", sd: float = 0.1) -> LayerInit:
    r"""Return how a layer's weights and biases are drawn.

    Parameters
    ----------
    init
        ``"he"``: weights :math:`N(0, 2/\text{fan-in})`, biases zero (He et al., 2015).
        ``"pytorch"``: weights *and* biases :math:`U(\pm 1/\sqrt{\text{fan-in}})`, as PyTorch's
        layers begin. ``"normal"``: both :math:`N(0, \text{sd}^2)`, as in the paper's experiments
        on the grid. Or a function ``(key, shape) -> layer``.
    sd
        Of ``"normal"``.

    References
    ----------
    He, Zhang, Ren and Sun (2015). Delving deep into rectifiers. ICCV.
    https://arxiv.org/abs/1502.01852
    """
    if callable(init):
        return init
    he = jax.nn.initializers.he_normal()

    def draw(key: Array, shape: tuple[int, ...]) -> Layer:
        weight_key, bias_key = jax.random.split(key)
        if init == "he":
            return {
                "w": he(weight_key, shape, jnp.float32),
                "b": jnp.zeros(shape[-1:], jnp.float32),
            }
        bound = 1 / math.sqrt(math.prod(shape[:-1]))

        def numbers(key: Array, shape: tuple[int, ...]) -> Array:
            if init == "normal":
                return sd * jax.random.normal(key, shape, jnp.float32)
            return jax.random.uniform(key, shape, jnp.float32, -bound, bound)

        return {"w": numbers(weight_key, shape), "b": numbers(bias_key, shape[-1:])}

    if init not in get_args(InitName):
        raise ValueError(f"init is one of {', '.join(get_args(InitName))}, not {init!r}.")
    return draw


def _with_two_streams(widths: tuple[int, ...]) -> tuple[int, ...]:
    """Return the widths with the last hidden layer twice, side by side."""
    if len(widths) == 1:
        raise ValueError("dueling splits the last hidden layer; give one more in `hidden`.")
    return (*widths[:-1], 2 * widths[-1])


def _two_layers(
    make: LayerInit, key: Array, width: int, shape: tuple[int, ...], axis: int
) -> dict[str, Layer]:
    """Draw the last layers of the two streams."""
    keys, count = jax.random.split(key), math.prod(shape)
    shapes = {"value": (width, count // shape[axis]), "advantage": (width, count)}
    return {name: make(k, one) for k, (name, one) in zip(keys, shapes.items(), strict=True)}


def with_prior_function(network: Network, prior: Network, scale: float) -> Network:
    r"""Add a randomised prior function: :math:`Q_\theta(s, a) + \beta\, p(s, a)`.

    p is a random draw of ``prior`` that nothing changes: no gradient reaches its parameters, which
    are under the name "prior". Where there are no data the values are those of p.

    References
    ----------
    Osband, Aslanides and Cassirer (2018). Randomized prior functions for deep reinforcement
    learning. NeurIPS. https://arxiv.org/abs/1806.03335
    """

    def init(key: Array) -> Params:
        own_key, prior_key = jax.random.split(key)
        return {**network.init(own_key), PRIOR_FUNCTION: prior.init(prior_key)}

    def apply(params: Params, x: Array) -> Array:
        fixed = jax.lax.stop_gradient(prior.apply(params[PRIOR_FUNCTION], x))
        return network.apply(params, x) + scale * fixed

    return Network(init, apply)


def several(network: Network, count: int) -> Network:
    """Return several copies as one network: parameters and outputs have a leading axis of them."""

    def init(key: Array) -> Params:
        return jax.vmap(network.init)(jax.random.split(key, count))

    return Network(init, jax.vmap(network.apply, in_axes=(0, None)))


def parameter_count(params: Params) -> int:
    """Return p, the number of parameters."""
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def _convolution_shapes(
    image_shape: tuple[int, ...], convolutions: Sequence[tuple[int, int, int]]
) -> tuple[list[tuple[int, int, int, int]], int]:
    """Return the shape of each kernel, and how many features leave the last convolution."""
    height, width, channels = image_shape
    kernels = []
    for out_channels, size, stride in convolutions:
        if min(height, width) < size:
            raise ValueError(
                f"A {height} x {width} image is too small for a kernel of {size}; "
                "pass smaller `convolutions` or larger images."
            )
        kernels.append((size, size, channels, out_channels))
        height, width = (height - size) // stride + 1, (width - size) // stride + 1
        channels = out_channels
    return kernels, height * width * channels


def _activation(activation: str | Activation) -> Activation:
    if callable(activation):
        return activation
    if activation not in ACTIVATIONS:
        raise ValueError(f"Unknown activation {activation!r}; there are {', '.join(ACTIVATIONS)}.")
    return ACTIVATIONS[activation]


def _shape(outputs: int | Sequence[int]) -> tuple[int, ...]:
    # Gymnasium counts its actions in np.int64, which is no int.
    return (int(outputs),) if isinstance(outputs, int | np.integer) else tuple(outputs)
