#include "convolution_test.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#if TB_HAS_AVX512

namespace torchbeast {
namespace {

// Under the address sanitizer this also shows that plain loads and stores stay inside; it does not
// see masked ones and those of tiles.
TEST_P(ConvolutionTest, AgreesWithPlainLoops) {
  const Picture added(shape.height, shape.width, shape.outputs, 5), positive = inputs.Positive();
  const std::vector<uint16_t> bits = inputs.Bits(), added_bits = added.Bits();
  std::vector<uint16_t> outputs(added_bits.size()), of_positive(added_bits.size());
  Convolution convolution(filters, shape, *backend);
  convolution.Run(bits.data(), false, {outputs.data()});
  convolution.Run(bits.data(), true, {of_positive.data(), nullptr, added_bits.data()});
  size_t i = 0;
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; ++x) {
      for (int64_t o = 0; o < shape.outputs; ++o, ++i) {
        float sum = bias[static_cast<size_t>(o)], sum_of_positive = sum + added.At(y, x, o);
        for (int64_t tap = 0; tap < 9; ++tap) {
          for (int64_t c = 0; c < shape.inputs; ++c) {
            const int64_t row = y + tap / 3 - 1, column = x + tap % 3 - 1;
            sum += Weight(o, tap, c) * inputs.At(row, column, c);
            sum_of_positive += Weight(o, tap, c) * positive.At(row, column, c);
          }
        }
        ASSERT_EQ(ToFloat(outputs[i]), Rounded(sum));
        ASSERT_EQ(ToFloat(of_positive[i]), Rounded(sum_of_positive));
      }
    }
  }
}

TEST_P(ConvolutionTest, InputGradientsAgreeWithPlainLoops) {
  if (shape.inputs == 4) GTEST_SKIP() << "the first layer's inputs need no gradients";
  const std::vector<uint16_t> bits = gradients.Bits(), gate = inputs.Bits();
  std::vector<uint16_t> results(gate.size());
  Convolution convolution = Convolution::ForInputGradients(filters, shape, *backend);
  convolution.Run(bits.data(), false, {results.data(), gate.data()});
  size_t i = 0;
  for (int64_t y = 0; y < shape.height; ++y) {
    for (int64_t x = 0; x < shape.width; ++x) {
      for (int64_t c = 0; c < shape.inputs; ++c, ++i) {
        float sum = 0;
        for (int64_t tap = 0; tap < 9; ++tap) {
          for (int64_t o = 0; o < shape.outputs; ++o) {
            sum += Weight(o, tap, c) * gradients.At(y - tap / 3 + 1, x - tap % 3 + 1, o);
          }
        }
        ASSERT_EQ(ToFloat(results[i]), inputs.numbers[i] > 0 ? Rounded(sum) : 0);
      }
    }
  }
}

// Large enough for NaN to be hidden by a maximum of integers.
TEST_P(ConvolutionTest, NanOfEitherSignPassesTheRelu) {
  std::vector<uint16_t> bits = inputs.Bits();
  for (const uint16_t nan : {0x7fc0, 0xffc0}) {
    bits[bits.size() / 2] = nan;
    std::vector<uint16_t> outputs(gradients.numbers.size());
    Convolution(filters, shape, *backend).Run(bits.data(), true, {outputs.data()});
    bool has_nan = false;
    for (const uint16_t output : outputs) has_nan |= std::isnan(ToFloat(output));
    EXPECT_TRUE(has_nan);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, ConvolutionTest, testing::ValuesIn(AllConvolutionCases()),
                         NameOfCase);

}  // namespace
}  // namespace torchbeast

#endif
