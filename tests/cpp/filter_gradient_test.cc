#include "kernels/filter_gradient.h"

#include <gtest/gtest.h>

#include <vector>

#include "convolution_test.h"

#if TB_HAS_AVX512

namespace torchbeast {
namespace {

using FilterGradientTest = ConvolutionTest;

TEST_P(FilterGradientTest, AgreesWithPlainLoops) {
  const std::vector<uint16_t> bits = inputs.Bits(), gradient_bits = gradients.Bits();
  FilterGradient filter_gradient(shape, *backend);
  // The gradient of two pictures: as they are, and positive.
  filter_gradient.Add(bits.data(), false, gradient_bits.data());
  filter_gradient.Add(bits.data(), true, gradient_bits.data());
  std::vector<float> weights(weight.size()), biases(bias.size());
  filter_gradient.Write(weights.data(), biases.data());
  const Picture positive = inputs.Positive();
  for (int64_t o = 0; o < shape.outputs; ++o) {
    float total = 0;
    std::vector<float> expected(static_cast<size_t>(9 * shape.inputs));
    for (int64_t y = 0; y < shape.height; ++y) {
      for (int64_t x = 0; x < shape.width; ++x) {
        const float gradient = gradients.At(y, x, o);
        total += 2 * gradient;
        for (int64_t tap = 0; tap < 9; ++tap) {
          for (int64_t c = 0; c < shape.inputs; ++c) {
            const int64_t row = y + tap / 3 - 1, column = x + tap % 3 - 1;
            expected[static_cast<size_t>(tap * shape.inputs + c)] +=
                gradient * (inputs.At(row, column, c) + positive.At(row, column, c));
          }
        }
      }
    }
    ASSERT_EQ(biases[static_cast<size_t>(o)], total);
    for (size_t i = 0; i < expected.size(); ++i) {
      ASSERT_EQ(weights[static_cast<size_t>(o) * expected.size() + i], expected[i]);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, FilterGradientTest, testing::ValuesIn(AllConvolutionCases()),
                         NameOfCase);

}  // namespace
}  // namespace torchbeast

#endif
