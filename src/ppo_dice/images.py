"""Images: how a network sees them, and the convolutional network that reads them.

A convolution of stride s is one of stride 1 over blocks of s × s pixels. So an image is cut into the blocks
of the first layer once per iteration, while it is still bytes, and a convolution is a sum of matrix products
over shifted slices. On a CPU inside a loop that was fifty times as fast as XLA's own convolution; other
devices use that.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Shaped, UInt8

from ppo_dice.config import Convolutions
from ppo_dice.errors import UserError
from ppo_dice.types import ImageKind, Key

GAIN = float(2**0.5)
ROWS_AT_ONCE = 16
"""Images that go through a network together: few enough for a core's cache."""


class _Layer(NamedTuple):
    filters: int
    kernel: int
    stride: int

    @property
    def reach(self) -> int:
        """Width of the kernel in blocks."""
        return -(-self.kernel // self.stride)

    def places(self, width: int) -> int:
        """Places at which the kernel fits."""
        return (width - self.kernel) // self.stride + 1

    def blocks(self, width: int) -> int:
        """Blocks of pixels that these places see."""
        return self.places(width) - 1 + self.reach


@dataclass(frozen=True)
class ImageView:
    """How a network sees an image: cut into the blocks of its first layer."""

    image: ImageKind
    block: int
    rows: int
    columns: int

    @property
    def depth(self) -> int:
        """Values of a block."""
        return self.block**2 * self.image.channels

    @property
    def size(self) -> int:
        """Bytes of the image as the network sees it."""
        return self.rows * self.columns * self.depth

    def cut(self, pixels: UInt8[Array, " P"]) -> UInt8[Array, " V"]:
        """The image as it comes from the environment → its blocks, each with its channels last."""
        kind = self.image
        if kind.channels_first:
            image = jnp.moveaxis(pixels.reshape(kind.channels, kind.height, kind.width), 0, -1)
        else:
            image = pixels.reshape(kind.height, kind.width, kind.channels)
        return _blocks(image, self.block, self.rows, self.columns).reshape(-1)


class CNN(eqx.Module):
    """Convolutions with a ReLU after each, and a fully connected layer with a ReLU."""

    kernels: tuple[Float[Array, "_ _ _ _"], ...]
    biases: tuple[Float[Array, " _"], ...]
    dense: eqx.nn.Linear
    strides: tuple[int, ...] = eqx.field(static=True)
    view: ImageView = eqx.field(static=True)

    @property
    def n_features(self) -> int:
        """Length of what comes out."""
        return int(self.dense.weight.shape[0])

    def ready(self) -> Callable[[UInt8[Array, " V"]], Float[Array, " F"]]:
        """The function of one image; what depends on the weights alone is done before."""
        layers = [_Layer(k.shape[3], k.shape[0], stride) for k, stride in zip(self.kernels, self.strides)]
        kernels = [_kernel_over_blocks(k, layer) for k, layer in zip(self.kernels, layers)]
        kernels[0] = kernels[0] / self.view.image.highest  # the pixels stay whole numbers
        view = self.view

        def read(pixels: UInt8[Array, " V"]) -> Float[Array, " F"]:
            height, width = view.image.height, view.image.width
            x = pixels.reshape(view.rows, view.columns, view.depth).astype(jnp.float32)
            for number, (layer, kernel, bias) in enumerate(zip(layers, kernels, self.biases)):
                if number > 0:
                    x = _blocks(x, layer.stride, layer.blocks(height), layer.blocks(width))
                x = jax.nn.relu(_convolve(x, kernel) + bias[None, None])
                height, width = layer.places(height), layer.places(width)
            return jax.nn.relu(self.dense(x.reshape(-1)))

        return read


def image_view(image: ImageKind, convolutions: Convolutions) -> ImageView:
    """How a network with these convolutions sees the image; a `UserError` where a kernel does not fit."""
    layers = _layers(convolutions)
    height, width = image.height, image.width
    for number, layer in enumerate(layers, 1):
        if min(height, width) < layer.kernel:
            raise UserError(
                f"Images of {image.height} × {image.width} pixels are too small for the convolutions: the "
                f"kernel of layer {number} is {layer.kernel} wide and meets {height} × {width}; "
                "choose smaller cnn_kernels or cnn_strides, or fewer layers."
            )
        height, width = layer.places(height), layer.places(width)
    first = layers[0]
    return ImageView(image, first.stride, first.blocks(image.height), first.blocks(image.width))


def init_cnn(view: ImageView, convolutions: Convolutions, key: Key) -> CNN:
    """Orthogonal weights with gain √2, biases of zero."""
    layers = _layers(convolutions)
    *conv_keys, dense_key = jax.random.split(key, len(layers) + 1)
    kernels, inputs = [], view.image.channels
    height, width = view.image.height, view.image.width
    for layer, conv_key in zip(layers, conv_keys):
        flat = _orthogonal((layer.filters, layer.kernel**2 * inputs), conv_key)
        kernels.append(flat.T.reshape(layer.kernel, layer.kernel, inputs, layer.filters))
        inputs, height, width = layer.filters, layer.places(height), layer.places(width)
    weight = _orthogonal((convolutions.features, height * width * inputs), dense_key)
    dense = eqx.nn.Linear(weight.shape[1], weight.shape[0], key=dense_key)
    zeros = jnp.zeros(convolutions.features, jnp.float32)
    return CNN(
        tuple(kernels),
        tuple(jnp.zeros(layer.filters, jnp.float32) for layer in layers),
        eqx.tree_at(lambda linear: (linear.weight, linear.bias), dense, (weight, zeros)),
        tuple(layer.stride for layer in layers),
        view,
    )


def split_row(row: UInt8[Array, " L"], sizes: Sequence[int]) -> tuple[list[Array], Float[Array, " N"]]:
    """The bytes of images of these sizes, and the numbers behind them."""
    ends = list(itertools.accumulate(sizes))
    images = [row[end - size : end] for size, end in zip(sizes, ends)]
    return images, jax.lax.bitcast_convert_type(row[ends[-1] :].reshape(-1, 4), jnp.float32)


def join_row(images: Sequence[UInt8[Array, " _"]], numbers: Float[Array, " N"]) -> UInt8[Array, " L"]:
    """The opposite of `split_row`."""
    return jnp.concatenate([*images, jax.lax.bitcast_convert_type(numbers, jnp.uint8).reshape(-1)])


def in_small_batches(function: Callable[[Any], Any], rows: Shaped[Array, "B *O"]) -> Any:
    """`function` of every row, a few rows at a time."""
    if rows.shape[0] <= ROWS_AT_ONCE:
        return jax.vmap(function)(rows)
    return jax.lax.map(function, rows, batch_size=ROWS_AT_ONCE)


def _layers(convolutions: Convolutions) -> list[_Layer]:
    return [
        _Layer(*numbers)
        for numbers in zip(convolutions.filters, convolutions.kernels, convolutions.strides, strict=True)
    ]


def _blocks(image: Shaped[Array, "H W C"], block: int, rows: int, columns: int) -> Shaped[Array, "R Q D"]:
    """Cut or pad to rows × columns blocks, and put the values of each block in a row."""
    height, width, channels = image.shape
    image = image[: rows * block, : columns * block]
    missing = (rows * block - image.shape[0], columns * block - image.shape[1])
    if any(missing):  # a kernel that is no multiple of its stride has zeros there
        image = jnp.pad(image, ((0, missing[0]), (0, missing[1]), (0, 0)))
    split = image.reshape(rows, block, columns, block, channels)
    return split.transpose(0, 2, 1, 3, 4).reshape(rows, columns, block * block * channels)


def _kernel_over_blocks(kernel: Float[Array, "K K I O"], layer: _Layer) -> Float[Array, "R R D O"]:
    """The same kernel for a convolution of stride 1 over blocks."""
    reach, stride = layer.reach, layer.stride
    missing = reach * stride - layer.kernel
    padded = jnp.pad(kernel, ((0, missing), (0, missing), (0, 0), (0, 0)))
    split = padded.reshape(reach, stride, reach, stride, *kernel.shape[2:])
    return split.transpose(0, 2, 1, 3, 4, 5).reshape(reach, reach, -1, kernel.shape[3])


def _convolve(x: Float[Array, "R Q D"], kernel: Float[Array, "K K D O"]) -> Float[Array, "r q O"]:
    """A convolution of stride 1 without padding, by whatever is quick on the device."""
    return jax.lax.platform_dependent(x, kernel, cpu=convolve_by_products, default=convolve_natively)


def convolve_by_products(x: Float[Array, "R Q D"], kernel: Float[Array, "K K D O"]) -> Float[Array, "r q O"]:
    """Slices that are shifted along the columns side by side, times the rows of the kernel in turn."""
    reach, _, _, filters = kernel.shape
    rows, columns = x.shape[0] - reach + 1, x.shape[1] - reach + 1
    side_by_side = jnp.concatenate([x[:, shift : shift + columns] for shift in range(reach)], axis=-1)
    by_row = kernel.reshape(reach, -1, filters)
    return sum(
        (side_by_side[shift : shift + rows] @ by_row[shift] for shift in range(reach)),
        start=jnp.zeros((), x.dtype),
    )


def convolve_natively(x: Float[Array, "R Q D"], kernel: Float[Array, "K K D O"]) -> Float[Array, "r q O"]:
    """XLA's own convolution."""
    dimensions = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(x[None], kernel, (1, 1), "VALID", dimension_numbers=dimensions)[0]


def _orthogonal(shape: Sequence[int], key: Key) -> Float[Array, "O I"]:
    return jax.nn.initializers.orthogonal(GAIN)(key, tuple(shape), jnp.float32)
