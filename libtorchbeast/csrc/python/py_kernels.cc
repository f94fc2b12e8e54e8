#include "python/py_kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "avx512.h"
#include "max_pool.h"
#include "normalize_frames.h"
#include "rmsprop.h"

namespace nb = nanobind;

namespace torchbeast {

namespace {

// [N, H, W, C], dense. Bits of bfloat16 numbers travel as int16: not every library knows bfloat16.
template <typename Number>
using Pictures = nb::ndarray<Number, nb::ndim<4>, nb::c_contig, nb::device::cpu>;

template <typename Bits>
PoolShape ShapeOf(const Pictures<Bits>& pictures) {
  const auto size = [&](size_t axis) { return static_cast<int64_t>(pictures.shape(axis)); };
  const PoolShape shape{size(0), size(1), size(2), size(3)};
  if (shape.channels % kPoolChannels != 0) {
    throw std::invalid_argument("max_pool needs a multiple of 16 channels");
  }
  RequireAvx512();
  return shape;
}

template <typename Number>
void CheckPooled(const Pictures<Number>& pooled, const PoolShape& shape) {
  const int64_t expected[] = {shape.count, shape.pooled_height(), shape.pooled_width(),
                              shape.channels};
  for (size_t axis = 0; axis < 4; ++axis) {
    if (static_cast<int64_t>(pooled.shape(axis)) != expected[axis]) {
      throw std::invalid_argument("pooled pictures must be [N, (H + 1) / 2, (W + 1) / 2, C]");
    }
  }
}

void PyMaxPool(const Pictures<const int16_t>& inputs, const Pictures<int16_t>& outputs,
               const std::optional<Pictures<uint8_t>>& places) {
  const PoolShape shape = ShapeOf(inputs);
  CheckPooled(outputs, shape);
  if (places) CheckPooled(*places, shape);
  nb::gil_scoped_release no_gil;
  MaxPool(reinterpret_cast<const uint16_t*>(inputs.data()),
          reinterpret_cast<uint16_t*>(outputs.data()), places ? places->data() : nullptr, shape);
}

void PyMaxPoolBackward(const Pictures<const int16_t>& gradients,
                       const Pictures<const uint8_t>& places,
                       const Pictures<int16_t>& input_gradients) {
  const PoolShape shape = ShapeOf(input_gradients);
  CheckPooled(gradients, shape);
  CheckPooled(places, shape);
  nb::gil_scoped_release no_gil;
  MaxPoolBackward(reinterpret_cast<const uint16_t*>(gradients.data()), places.data(),
                  reinterpret_cast<uint16_t*>(input_gradients.data()), shape);
}

// Dense.
template <typename Number, size_t kAxes>
using Array = nb::ndarray<Number, nb::ndim<kAxes>, nb::c_contig, nb::device::cpu>;

void PyNormalizeFrames(const Array<const uint8_t, 4>& stacks, const Array<const float, 4>& means,
                       const Array<const float, 1>& scales, const Array<const int32_t, 1>& games,
                       const Array<int16_t, 4>& outputs) {
  RequireAvx512();
  const size_t count = stacks.shape(0), height = stacks.shape(2), width = stacks.shape(3);
  const auto has_shape = [&](const auto& array, size_t first) {
    return array.shape(0) == first && array.shape(1) == height && array.shape(2) == width &&
           array.shape(3) == kStackedFrames;
  };
  if (stacks.shape(1) != kStackedFrames || !has_shape(means, scales.shape(0)) ||
      !has_shape(outputs, count) || games.shape(0) != count) {
    throw std::invalid_argument(
        "normalize_frames needs stacks [N, 4, H, W], means [K, H, W, 4], scales [K], games [N] and "
        "outputs [N, H, W, 4]");
  }
  for (size_t n = 0; n < count; ++n) {
    if (games.data()[n] < 0 || static_cast<size_t>(games.data()[n]) >= scales.shape(0)) {
      throw nb::index_error("normalize_frames: no such game");
    }
  }
  nb::gil_scoped_release no_gil;
  NormalizeFrames(stacks.data(), means.data(), scales.data(), games.data(),
                  reinterpret_cast<uint16_t*>(outputs.data()),
                  {static_cast<int64_t>(count), static_cast<int64_t>(height * width)});
}

using Numbers = Array<float, 1>;

void PyStepRmsProp(const Numbers& parameters, const Array<const float, 1>& gradients,
                   const Numbers& square_averages, const std::optional<Numbers>& momenta,
                   float learning_rate, float alpha, float epsilon, float momentum) {
  RequireAvx512();
  const size_t size = parameters.size();
  if (gradients.size() != size || square_averages.size() != size ||
      (momenta && momenta->size() != size)) {
    throw std::invalid_argument("step_rmsprop needs arrays of one size");
  }
  nb::gil_scoped_release no_gil;
  StepRmsProp(parameters.data(), gradients.data(), square_averages.data(),
              momenta ? momenta->data() : nullptr, static_cast<int64_t>(size),
              {learning_rate, alpha, epsilon, momentum});
}

}  // namespace

void BindKernels(nb::module_& m) {
  m.def("has_kernels", &HasAvx512);
  // A converted argument would be a copy, and results would be lost with it.
  m.def("max_pool", &PyMaxPool, nb::arg("inputs").noconvert(), nb::arg("outputs").noconvert(),
        nb::arg("places").noconvert() = nb::none());
  m.def("max_pool_backward", &PyMaxPoolBackward, nb::arg("gradients").noconvert(),
        nb::arg("places").noconvert(), nb::arg("input_gradients").noconvert());
  m.def("normalize_frames", &PyNormalizeFrames, nb::arg("stacks").noconvert(),
        nb::arg("means").noconvert(), nb::arg("scales").noconvert(), nb::arg("games").noconvert(),
        nb::arg("outputs").noconvert());
  m.def("step_rmsprop", &PyStepRmsProp, nb::arg("parameters").noconvert(),
        nb::arg("gradients").noconvert(), nb::arg("square_averages").noconvert(),
        nb::arg("momenta").noconvert().none(), nb::arg("learning_rate"), nb::arg("alpha"),
        nb::arg("epsilon"), nb::arg("momentum"));
}

}  // namespace torchbeast
