#include "convolution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernel_test.h"

#if TB_HAS_AMX

namespace torchbeast {
namespace {

// -1, 0 and 1, in an order without a pattern.
float NumberAt(int64_t i) { return static_cast<float>((i * 2654435761u >> 7) % 3) - 1; }

std::vector<float> WholeNumbers(int64_t size, int64_t seed) {
  std::vector<float> numbers(static_cast<size_t>(size));
  for (int64_t i = 0; i < size; ++i) numbers[static_cast<size_t>(i)] = NumberAt(i + seed);
  return numbers;
}

// A picture [H, W, C], numbers outside are 0.
struct Picture {
  int64_t height, width, channels;
  std::vector<float> numbers;

  Picture(int64_t h, int64_t w, int64_t c, int64_t seed)
      : height(h), width(w), channels(c), numbers(WholeNumbers(h * w * c, seed)) {}

  float At(int64_t y, int64_t x, int64_t c) const {
    if (y < 0 || y >= height || x < 0 || x >= width) return 0;
    return numbers[static_cast<size_t>((y * width + x) * channels + c)];
  }

  Picture Positive() const {
    Picture result = *this;
    for (float& number : result.numbers) number = std::fmax(number, 0.f);
    return result;
  }

  std::vector<uint16_t> Bits() const { return ToBits(numbers); }
};

class ConvolutionTest : public testing::TestWithParam<ConvolutionShape> {
 protected:
  void SetUp() override {
    if (!HasAmx()) GTEST_SKIP() << "needs AMX";
  }

  const ConvolutionShape shape = GetParam();
  const Picture inputs{shape.height, shape.width, shape.inputs, 1};
  const Picture gradients{shape.height, shape.width, shape.outputs, 2};
  const std::vector<float> weight = WholeNumbers(shape.outputs * 9 * shape.inputs, 3);
  const std::vector<float> bias = WholeNumbers(shape.outputs, 4);
  const Filters filters{weight.data(), bias.data()};

  float Weight(int64_t o, int64_t tap, int64_t c) const {
    return weight[static_cast<size_t>((o * 9 + tap) * shape.inputs + c)];
  }
};

// Sums of whole numbers are exact. Under the address sanitizer this also shows that ordinary loads
// and stores stay inside; it does not see those of tiles.
TEST_P(ConvolutionTest, AgreesWithPlainLoops) {
  const Picture added(shape.height, shape.width, shape.outputs, 5), positive = inputs.Positive();
  const std::vector<uint16_t> bits = inputs.Bits(), added_bits = added.Bits();
  std::vector<uint16_t> outputs(added_bits.size()), of_positive(added_bits.size());
  Convolution convolution(filters, shape);
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
  Convolution convolution = Convolution::ForInputGradients(filters, shape);
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

TEST_P(ConvolutionTest, FilterGradientsAgreeWithPlainLoops) {
  const std::vector<uint16_t> bits = inputs.Bits(), gradient_bits = gradients.Bits();
  FilterGradient filter_gradient(shape);
  // Of two pictures: as they are, and positive.
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

// Large enough for NaN to be hidden by a maximum of integers.
TEST_P(ConvolutionTest, NanOfEitherSignPassesTheRelu) {
  std::vector<uint16_t> bits = inputs.Bits();
  for (const uint16_t nan : {0x7fc0, 0xffc0}) {
    bits[bits.size() / 2] = nan;
    std::vector<uint16_t> outputs(gradients.numbers.size());
    Convolution(filters, shape).Run(bits.data(), true, {outputs.data()});
    bool has_nan = false;
    for (const uint16_t output : outputs) has_nan |= std::isnan(ToFloat(output));
    EXPECT_TRUE(has_nan);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, ConvolutionTest,
    testing::Values(ConvolutionShape{84, 84, 4, 16}, ConvolutionShape{42, 42, 16, 16},
                    ConvolutionShape{42, 42, 16, 32}, ConvolutionShape{21, 21, 32, 32},
                    ConvolutionShape{11, 11, 32, 32}, ConvolutionShape{1, 1, 4, 16},
                    ConvolutionShape{1, 7, 16, 32}, ConvolutionShape{33, 2, 16, 16},
                    ConvolutionShape{5, 64, 32, 32}),
    NameOf<ConvolutionShape>);

}  // namespace
}  // namespace torchbeast

#endif
