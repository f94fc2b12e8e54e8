#include "python/py_kernels.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <tuple>

#include "kernels/avx512.h"
#include "kernels/normalize_frames.h"
#include "kernels/residual_section.h"
#include "python/py_gil.h"
#include "python/py_sizes.h"

namespace nb = nanobind;

namespace torchbeast {

#if TB_HAS_AVX512

namespace {

// Dense.
template <typename Number, size_t kAxes>
using Array = nb::ndarray<Number, nb::ndim<kAxes>, nb::c_contig, nb::device::cpu>;

// [N, H, W, C]. Bits of bfloat16 numbers travel as int16: not every library knows bfloat16.
template <typename Number>
using Pictures = Array<Number, 4>;

template <typename Number, size_t kAxes>
bool HasShape(const Array<Number, kAxes>& array, const int64_t (&expected)[kAxes]) {
  return std::equal(expected, expected + kAxes, array.shape_ptr());
}

template <typename Number>
void CheckPooled(const Pictures<Number>& pooled, const SectionShape& shape) {
  const ConvolutionShape block = shape.block();
  if (!HasShape(pooled, {shape.count, block.height, block.width, block.outputs})) {
    throw std::invalid_argument("pooled pictures must be [N, (H + 1) / 2, (W + 1) / 2, C]");
  }
}

void PyNormalizeFrames(const Array<const uint8_t, 4>& stacks, const Array<const float, 4>& means,
                       const Array<const float, 1>& scales, const Array<const int32_t, 1>& games,
                       const Array<int16_t, 4>& outputs) {
  const auto count = static_cast<int64_t>(stacks.shape(0));
  const auto height = static_cast<int64_t>(stacks.shape(2));
  const auto width = static_cast<int64_t>(stacks.shape(3));
  const auto num_games = static_cast<int64_t>(scales.shape(0));
  if (!HasShape(stacks, {count, kStackedFrames, height, width}) ||
      !HasShape(means, {num_games, height, width, kStackedFrames}) ||
      !HasShape(outputs, {count, height, width, kStackedFrames}) || !HasShape(games, {count})) {
    throw std::invalid_argument(
        "normalize_frames needs stacks [N, 4, H, W], means [K, H, W, 4], scales [K], games [N] and "
        "outputs [N, H, W, 4]");
  }
  for (int64_t n = 0; n < count; ++n) {
    if (games.data()[n] < 0 || games.data()[n] >= num_games) {
      throw nb::index_error("normalize_frames: no such game");
    }
  }
  BlockingCall no_gil;
  NormalizeFrames(stacks.data(), means.data(), scales.data(), games.data(),
                  reinterpret_cast<uint16_t*>(outputs.data()), {count, height * width});
}

template <typename Number>
using Weights = std::array<Array<Number, 4>, kSectionConvolutions>;
template <typename Number>
using Biases = std::array<Array<Number, 1>, kSectionConvolutions>;
// Indices, pooled, hidden1, middle, hidden2: as SectionActivations has them.
template <typename Number, typename Index>
using Kept = std::tuple<Pictures<Index>, Pictures<Number>, Pictures<Number>, Pictures<Number>,
                        Pictures<Number>>;

template <typename Inputs, typename Outputs>
SectionShape SectionShapeOf(const Inputs& inputs, const Outputs& outputs) {
  const SectionShape shape{
      static_cast<int64_t>(inputs.shape(0)), static_cast<int64_t>(inputs.shape(1)),
      static_cast<int64_t>(inputs.shape(2)), static_cast<int64_t>(inputs.shape(3)),
      static_cast<int64_t>(outputs.shape(3))};
  CheckSize("a picture's height", shape.height, 1, kMaxPictureSide);
  CheckSize("a picture's width", shape.width, 1, kMaxPictureSide);
  if (!shape.first().IsSupported()) {
    throw std::invalid_argument(
        "residual_section needs 4 or 16 channels for 16 of the outputs, or 16 or 32 for 32");
  }
  CheckPooled(outputs, shape);
  return shape;
}

template <typename Number>
void CheckFilters(const Weights<Number>& weights, const Biases<Number>& biases,
                  const SectionShape& shape) {
  for (size_t i = 0; i < kSectionConvolutions; ++i) {
    const int64_t inputs = i == 0 ? shape.inputs : shape.outputs;
    if (!HasShape(weights[i], {shape.outputs, 3, 3, inputs}) ||
        !HasShape(biases[i], {shape.outputs})) {
      throw std::invalid_argument("filters must be [outputs, 3, 3, inputs], biases [outputs]");
    }
  }
}

std::array<Filters, kSectionConvolutions> ToFilters(const Weights<const float>& weights,
                                                    const Biases<const float>& biases) {
  std::array<Filters, kSectionConvolutions> filters;
  for (size_t i = 0; i < kSectionConvolutions; ++i) {
    filters[i] = {weights[i].data(), biases[i].data()};
  }
  return filters;
}

template <typename To, typename From>
To* BitsOf(const Pictures<From>& pictures) {
  return reinterpret_cast<To*>(pictures.data());
}

template <typename To, typename Number, typename Index>
SectionActivations<To, Index> ToActivations(const Pictures<const int16_t>& inputs,
                                            const Kept<Number, Index>& kept,
                                            const SectionShape& shape) {
  std::apply([&](const auto&... pictures) { (CheckPooled(pictures, shape), ...); }, kept);
  return {BitsOf<const uint16_t>(inputs), std::get<0>(kept).data(),
          BitsOf<To>(std::get<1>(kept)),  BitsOf<To>(std::get<2>(kept)),
          BitsOf<To>(std::get<3>(kept)),  BitsOf<To>(std::get<4>(kept))};
}

void PyResidualSection(const Pictures<const int16_t>& inputs, const Weights<const float>& weights,
                       const Biases<const float>& biases, const Pictures<int16_t>& outputs,
                       const std::optional<Kept<int16_t, uint8_t>>& kept) {
  const SectionShape shape = SectionShapeOf(inputs, outputs);
  CheckFilters(weights, biases, shape);
  SectionActivations<uint16_t, uint8_t> activations{BitsOf<const uint16_t>(inputs)};
  if (kept) activations = ToActivations<uint16_t>(inputs, *kept, shape);
  BlockingCall no_gil;
  ResidualSection(ToFilters(weights, biases), activations, BitsOf<uint16_t>(outputs), shape);
}

void PyResidualSectionBackward(const Pictures<const int16_t>& inputs,
                               const Weights<const float>& weights,
                               const Biases<const float>& biases,
                               const Kept<const int16_t, const uint8_t>& kept,
                               const Pictures<const int16_t>& gradients,
                               const std::optional<Pictures<int16_t>>& input_gradients,
                               const Weights<float>& weight_gradients,
                               const Biases<float>& bias_gradients) {
  const SectionShape shape = SectionShapeOf(inputs, gradients);
  CheckFilters(weights, biases, shape);
  CheckFilters(weight_gradients, bias_gradients, shape);
  if (input_gradients &&
      (shape.inputs == kStackedFrames ||
       !HasShape(*input_gradients, {shape.count, shape.height, shape.width, shape.inputs}))) {
    throw std::invalid_argument("input_gradients must be as the inputs, of 16 or 32 channels");
  }
  std::array<FilterGradients, kSectionConvolutions> results;
  for (size_t i = 0; i < kSectionConvolutions; ++i) {
    results[i] = {weight_gradients[i].data(), bias_gradients[i].data()};
  }
  const auto activations = ToActivations<const uint16_t>(inputs, kept, shape);
  BlockingCall no_gil;
  ResidualSectionBackward(
      ToFilters(weights, biases), activations, BitsOf<const uint16_t>(gradients),
      input_gradients ? BitsOf<uint16_t>(*input_gradients) : nullptr, results, shape);
}

}  // namespace

#endif

void BindKernels(nb::module_& m) {
  m.def("has_kernels", &HasAvx512Bf16);
#if TB_HAS_AVX512
  // A converted argument would be a copy, and results would be lost with it.
  m.def("normalize_frames", &PyNormalizeFrames, nb::arg("stacks").noconvert(),
        nb::arg("means").noconvert(), nb::arg("scales").noconvert(), nb::arg("games").noconvert(),
        nb::arg("outputs").noconvert());
  m.def("residual_section", &PyResidualSection, nb::arg("inputs").noconvert(),
        nb::arg("weights").noconvert(), nb::arg("biases").noconvert(),
        nb::arg("outputs").noconvert(), nb::arg("kept").noconvert() = nb::none());
  m.def("residual_section_backward", &PyResidualSectionBackward, nb::arg("inputs").noconvert(),
        nb::arg("weights").noconvert(), nb::arg("biases").noconvert(), nb::arg("kept").noconvert(),
        nb::arg("gradients").noconvert(), nb::arg("input_gradients").noconvert().none(),
        nb::arg("weight_gradients").noconvert(), nb::arg("bias_gradients").noconvert());
#endif
}

}  // namespace torchbeast
