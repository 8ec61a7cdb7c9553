from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from valuetrack import networks
from valuetrack.networks import (
    cnn,
    fitting_convolutions,
    layer_init,
    mlp,
    parameter_count,
)

REFERENCE_INIT = {"init": "normal", "init_sd": 0.1}
SMALL_CONVOLUTIONS = ((3, 3, 2), (4, 2, 1))
SMALL_CNN = {"convolutions": SMALL_CONVOLUTIONS, "hidden": (6,), **REFERENCE_INIT}
IMAGE = (9, 8, 2)

NUMPY_ACTIVATIONS = {
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "gelu": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + np.exp(-x)),
    "leaky_relu": lambda x: np.where(x > 0, x, 0.01 * x),
}

BUILDS = {
    "mlp": lambda: mlp(3, 2, (8, 8), activation="tanh", **REFERENCE_INIT),
    "linear": lambda: mlp(3, 2, (), **REFERENCE_INIT),
    "cnn": lambda: cnn(IMAGE, 2, activation="tanh", **SMALL_CNN),
    "heads": lambda: mlp(3, (4, 2), **REFERENCE_INIT),
    "quantiles": lambda: cnn(IMAGE, (2, 5), **SMALL_CNN),
}


def compiled(network: networks.Network):
    """The compiled network, and parameters drawn by NumPy, which has nothing to compile."""
    rng = np.random.default_rng(7)
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    params = jax.tree.map(lambda p: rng.normal(0, 0.3, p.shape).astype(p.dtype), shapes)
    return jax.jit(network.apply), params


def draw(shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def numpy_mlp(params, x, activation):
    for layer in params["body"]:
        x = activation(x @ np.asarray(layer["w"]) + np.asarray(layer["b"]))
    return x @ np.asarray(params["head"]["w"]) + np.asarray(params["head"]["b"])


def numpy_convolution(x, kernel, bias, stride):
    """One image, one output pixel at a time."""
    size = kernel.shape[0]
    rows, columns = ((n - size) // stride + 1 for n in x.shape[:2])
    out = np.empty((rows, columns, kernel.shape[-1]))
    for i in range(rows):
        for j in range(columns):
            patch = x[i * stride : i * stride + size, j * stride : j * stride + size]
            out[i, j] = np.tensordot(patch, kernel, axes=3) + bias
    return out


@pytest.mark.parametrize(
    ("hidden", "activation"),
    [
        ((), "relu"),
        ((1,), "relu"),
        ((4, 3, 6, 2), "tanh"),
        *(((5, 9), a) for a in NUMPY_ACTIVATIONS),
    ],
)
def test_mlp_is_the_plain_forward_pass(hidden, activation):
    apply, params = compiled(mlp(3, 4, hidden, activation=activation, **REFERENCE_INIT))
    x = 3 * draw((6, 3))
    expected = numpy_mlp(params, x, NUMPY_ACTIVATIONS[activation])
    np.testing.assert_allclose(apply(params, x), expected, rtol=1e-4, atol=1e-5)


def test_every_named_activation_is_tested():
    assert set(networks.ACTIVATIONS) == set(NUMPY_ACTIVATIONS)


def test_an_activation_may_be_a_function():
    apply, params = compiled(mlp(3, 2, (5,), activation=jnp.sin))
    x = draw((4, 3))
    np.testing.assert_allclose(apply(params, x), numpy_mlp(params, x, np.sin), rtol=1e-4)


@pytest.mark.parametrize("build", [mlp, cnn])
def test_an_unknown_activation_is_named_with_those_there_are(build):
    with pytest.raises(ValueError, match=r"Unknown activation 'relux'.*relu.*tanh"):
        build(IMAGE if build is cnn else 3, 2, activation="relux")


@pytest.mark.parametrize(("inputs", "outputs", "hidden"), [(0, 2, (3,)), (2, 0, ()), (2, 2, (0,))])
def test_a_layer_needs_a_width(inputs, outputs, hidden):
    with pytest.raises(ValueError, match="at least 1"):
        mlp(inputs, outputs, hidden)


def test_reference_network_has_1284_parameters():
    params = mlp(2, 4, (32, 32), **REFERENCE_INIT).init(jax.random.key(0))
    assert parameter_count(params) == 1284
    flat = np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(params)])
    assert flat.std() == pytest.approx(0.1, rel=0.1)


def test_default_initialisation_is_he_normal_with_zero_biases():
    params = mlp(200, 3, (300,)).init(jax.random.key(0))
    assert not params["body"][0]["b"].any()
    assert np.std(params["body"][0]["w"]) == pytest.approx(np.sqrt(2 / 200), rel=0.02)


FAN_IN = {"mlp": 200, "cnn": 3 * 3 * 64}
WIDE = {
    "mlp": lambda init: mlp(200, 3, (3000,), init=init, init_sd=0.3),
    "cnn": lambda init: cnn((5, 5, 64), 2, convolutions=((2000, 3, 1),), init=init, init_sd=0.3),
}


def first_layer(name, init):
    layer = WIDE[name](init).init(jax.random.key(0))["body"][0]
    return [np.asarray(layer[part], np.float64).ravel() for part in ("w", "b")]


@pytest.mark.parametrize("name", WIDE)
def test_he_draws_from_a_normal_law_and_leaves_the_biases_at_zero(name):
    weights, biases = first_layer(name, "he")
    assert not biases.any()
    # JAX's he_normal is cut off at two standard deviations, and scaled to have the right one.
    assert weights.std() == pytest.approx(np.sqrt(2 / FAN_IN[name]), rel=0.02)


@pytest.mark.parametrize("name", WIDE)
def test_pytorch_draws_weights_and_biases_from_one_uniform_law(name):
    bound = 1 / np.sqrt(FAN_IN[name])
    for drawn in first_layer(name, "pytorch"):
        uniform = stats.uniform(-bound, 2 * bound)
        assert stats.kstest(drawn[:3000], uniform.cdf).pvalue > 1e-3
        assert np.abs(drawn).max() <= bound * (1 + 1e-6)


@pytest.mark.parametrize("name", WIDE)
def test_normal_draws_weights_and_biases_with_the_given_sd(name):
    for drawn in first_layer(name, "normal"):
        assert stats.kstest(drawn[:3000], stats.norm(0, 0.3).cdf).pvalue > 1e-3


def test_weights_and_biases_are_drawn_with_keys_of_their_own():
    for init in ("pytorch", "normal"):
        layer = layer_init(init)(jax.random.key(0), (1, 50))
        assert np.abs(np.corrcoef(layer["w"][0], layer["b"])[0, 1]) < 0.5


def test_an_initialisation_may_be_a_function_and_an_unknown_name_is_refused():
    def fill(key, shape):
        return {"w": jnp.full(shape, 2.0), "b": jnp.ones(shape[-1])}

    params = cnn(IMAGE, 2, **{**SMALL_CNN, "init": fill}).init(jax.random.key(0))
    for layer in (*params["body"], params["head"]):
        assert (np.asarray(layer["w"]) == 2).all()
        assert (np.asarray(layer["b"]) == 1).all()
    with pytest.raises(ValueError, match="init is one of he, pytorch, normal, not 'xavier'"):
        mlp(2, 2, init="xavier")


@pytest.mark.parametrize("batch", [(1,), (2, 3)])
@pytest.mark.parametrize("name", BUILDS)
def test_leading_axes_are_batch_axes(name, batch):
    apply, params = compiled(BUILDS[name]())
    single = IMAGE if name in ("cnn", "quantiles") else (3,)
    x = draw((*batch, *single))
    y = apply(params, x)
    one_by_one = np.stack([apply(params, row) for row in x.reshape(-1, *single)])
    assert y.shape == (*batch, *one_by_one.shape[1:])
    np.testing.assert_allclose(y.ravel(), one_by_one.ravel(), rtol=1e-4, atol=1e-6)


def test_cnn_is_the_plain_forward_pass():
    apply, params = compiled(cnn(IMAGE, 2, activation="tanh", **SMALL_CNN))
    x = draw(IMAGE)
    features = x
    for layer, (_, _, stride) in zip(params["body"], SMALL_CONVOLUTIONS, strict=False):
        kernel, bias = np.asarray(layer["w"]), np.asarray(layer["b"])
        features = np.tanh(numpy_convolution(features, kernel, bias, stride))
    dense = {"body": params["body"][2:], "head": params["head"]}
    expected = numpy_mlp(dense, features.ravel(), np.tanh)
    np.testing.assert_allclose(apply(params, x), expected, rtol=1e-4, atol=1e-6)


def test_images_of_bytes_are_scaled_and_float_images_are_not():
    apply, params = compiled(cnn(IMAGE, 2, **SMALL_CNN))
    image = np.random.default_rng(0).integers(0, 256, IMAGE, dtype=np.uint8)
    scaled = image.astype(np.float32) / 255
    np.testing.assert_allclose(apply(params, image), apply(params, scaled), rtol=1e-4, atol=1e-6)
    unscaled = apply(params, image.astype(np.float32))
    assert not np.allclose(unscaled, apply(params, image), rtol=0.1)


@pytest.mark.parametrize("dtype", [np.bool_, np.int32, np.int8])
def test_booleans_and_integers_other_than_bytes_are_taken_as_they_are(dtype):
    apply, params = compiled(cnn(IMAGE, 2, **SMALL_CNN))
    image = np.random.default_rng(0).integers(0, 2, IMAGE).astype(dtype)
    np.testing.assert_array_equal(apply(params, image), apply(params, image.astype(np.float32)))


@pytest.mark.parametrize("shape", [(), (6,), (2, 3), (2, 1, 3), (10, 10, 4)])
@pytest.mark.parametrize("dtype", [np.float32, np.bool_, np.int32])
def test_observations_of_any_shape_are_flattened(shape, dtype):
    size = int(np.prod(shape))
    flat, params = compiled(mlp(size, 2, (8,)))
    apply = mlp(shape, 2, (8,)).apply
    x = np.random.default_rng(0).integers(0, 2, (5, *shape)).astype(dtype)
    expected = flat(params, x.reshape(5, size).astype(np.float32))
    np.testing.assert_allclose(apply(params, x), expected, rtol=1e-5)
    assert apply(params, x[0]).shape == (2,)
    assert apply(params, x[None]).shape == (1, 5, 2)


def test_small_images_have_convolutions_that_fit():
    fitting = {84: 3, 36: 3, 35: 2, 10: 2, 5: 2, 4: 1, 2: 1}
    for side, layers in fitting.items():
        for shape in ((side, 90, 4), (90, side, 4)):
            convolutions = fitting_convolutions(shape)
            assert len(convolutions) == layers
            cnn(shape, 2, convolutions=convolutions)
    with pytest.raises(ValueError, match="1 x 9 pixels is too small for a convolution"):
        fitting_convolutions((1, 9, 3))


def test_images_of_half_precision_are_computed_in_that_of_the_parameters():
    apply, params = compiled(cnn(IMAGE, 2, **SMALL_CNN))
    image = draw(IMAGE).astype(np.float16)
    values = apply(params, image)
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, apply(params, image.astype(np.float32)), rtol=1e-6)


def test_default_cnn_is_the_nature_network():
    params = jax.eval_shape(cnn((84, 84, 4), 6).init, jax.random.key(0))
    shapes = [layer["w"].shape for layer in params["body"]]
    assert shapes == [(8, 8, 4, 32), (4, 4, 32, 64), (3, 3, 64, 64), (3136, 512)]
    assert params["head"]["w"].shape == (512, 6)


@pytest.mark.parametrize("shape", [(7, 84, 1), (84, 7, 1), (20, 20, 3)])
def test_a_small_image_gets_a_clear_error(shape):
    with pytest.raises(ValueError, match=r"too small for a kernel .*convolutions"):
        cnn(shape, 2)


def test_an_image_has_three_axes():
    with pytest.raises(ValueError, match=r"\(height, width, channels\)"):
        cnn((84, 84), 2)


@pytest.mark.parametrize(("build", "inputs", "options"), [(mlp, 3, {}), (cnn, IMAGE, SMALL_CNN)])
def test_heads_and_quantiles_have_their_shapes_and_differ(build, inputs, options):
    x = draw((7, *(IMAGE if build is cnn else (3,))))
    for shape in ((5, 2), (3, 4)):
        apply, params = compiled(build(inputs, shape, **options))
        y = np.asarray(apply(params, x))
        assert y.shape == (7, *shape)
        columns = y.reshape(7, -1)
        assert np.unique(columns, axis=1).shape == columns.shape


@pytest.mark.parametrize("outputs", [np.int64(4), np.int32(4), 4, (4,), [4]])
def test_the_number_of_outputs_may_come_from_numpy(outputs):
    network = mlp(2, outputs)
    params = jax.eval_shape(network.init, jax.random.key(0))
    assert jax.eval_shape(network.apply, params, jnp.ones(2)).shape == (4,)


@pytest.mark.parametrize("name", ["mlp", "cnn", "heads"])
def test_seeds_decide_every_leaf(name):
    init = BUILDS[name]().init
    first, again, other = (jax.tree.leaves(init(jax.random.key(seed))) for seed in (0, 0, 1))
    for a, b, c in zip(first, again, other, strict=True):
        np.testing.assert_array_equal(a, b)
        assert not np.any(a == c)
    values = np.concatenate([np.ravel(leaf) for leaf in first])
    assert len(np.unique(values)) > 0.99 * len(values), "a key was used twice"


@pytest.mark.parametrize("name", BUILDS)
def test_gradient_reaches_every_leaf(name):
    apply, params = compiled(BUILDS[name]())
    x = draw((16, *(IMAGE if name in ("cnn", "quantiles") else (3,))))
    gradient = jax.jit(jax.grad(lambda p: jnp.sum(apply(p, x) ** 2)))(params)
    for leaf in jax.tree.leaves(gradient):
        assert np.isfinite(leaf).all()
        assert np.any(leaf != 0)


@pytest.mark.parametrize("shape", [(7, 3), (3,), (2, 5, 3), (0, 3)])
@pytest.mark.parametrize("outputs", [1, 4, 6])
def test_written_out_products_are_products(shape, outputs):
    rng = np.random.default_rng(outputs)
    x, w, g = (
        rng.normal(size=size).astype(np.float32)
        for size in (shape, (3, outputs), (*shape[:-1], outputs))
    )

    @functools.partial(jax.jit, static_argnums=0)
    def value_and_back(multiply, left, right, back):
        value, pull_back = jax.vjp(multiply, left, right)
        return value, pull_back(back)

    for given in ((x, w, g), (g, w.T, x)):
        plain, plain_back = value_and_back(jnp.matmul, *given)
        ours, ours_back = value_and_back(networks.product, *given)
        np.testing.assert_allclose(ours, plain, rtol=1e-5, atol=1e-6)
        for one, other in zip(ours_back, plain_back, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_products_keep_the_types_that_products_have():
    x, w = np.arange(6, dtype=np.int32).reshape(2, 3), jnp.ones((3, 2), jnp.bfloat16)
    assert networks.product(jnp.asarray(x), w).dtype == jnp.matmul(x, w).dtype
    gradient = jax.grad(lambda w: networks.product(jnp.ones((2, 3)), w).sum())(w)
    assert gradient.dtype == jnp.bfloat16
    mapped = jax.vmap(networks.product)(jnp.ones((4, 5, 3)), jnp.ones((4, 3, 2)))
    np.testing.assert_array_equal(mapped, np.full((4, 5, 2), 3.0))
