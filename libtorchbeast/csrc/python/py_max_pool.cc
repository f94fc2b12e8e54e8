#include "python/py_max_pool.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "max_pool.h"

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
  if (!HasMaxPool()) throw std::runtime_error("max_pool needs a processor with AVX-512");
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

}  // namespace

void BindMaxPool(nb::module_& m) {
  m.def("has_max_pool", &HasMaxPool);
  // A converted argument would be a copy, and results would be lost with it.
  m.def("max_pool", &PyMaxPool, nb::arg("inputs").noconvert(), nb::arg("outputs").noconvert(),
        nb::arg("places").noconvert() = nb::none());
  m.def("max_pool_backward", &PyMaxPoolBackward, nb::arg("gradients").noconvert(),
        nb::arg("places").noconvert(), nb::arg("input_gradients").noconvert());
}

}  // namespace torchbeast
