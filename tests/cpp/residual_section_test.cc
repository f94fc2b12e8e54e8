#include "kernels/residual_section.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernel_test.h"
#include "kernels/filter_gradient.h"

#if TB_HAS_AVX512_BF16

namespace torchbeast {
namespace {

// Small whole multiples of `step`.
std::vector<float> Numbers(int64_t size, float step) {
  std::vector<float> numbers(static_cast<size_t>(size));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = step * (static_cast<float>((i * 2654435761u >> 7) % 5) - 2);
  }
  return numbers;
}

// A section and its numbers, each in memory of its own.
class ResidualSectionTest : public testing::TestWithParam<SectionShape> {
 protected:
  void SetUp() override {
    if (!HasAvx512Bf16()) GTEST_SKIP() << "needs AVX512-BF16";
    for (size_t i = 0; i < kSectionConvolutions; ++i) {
      const int64_t channels = i == 0 ? shape.inputs : shape.outputs;
      // The blocks' branches are 0 until a test says otherwise.
      weights[i] = Numbers(shape.outputs * 9 * channels, i == 0 ? 0.25f : 0.f);
      biases[i] = Numbers(shape.outputs, i == 0 ? 0.5f : 0.f);
      weight_gradients[i].resize(weights[i].size());
      bias_gradients[i].resize(biases[i].size());
    }
  }

  void Forward(bool keep) {
    SectionNumbers<uint16_t, uint8_t> numbers{inputs.data()};
    if (keep) {
      numbers = {inputs.data(),  places.data(), pooled.data(),
                 hidden1.data(), middle.data(), hidden2.data()};
    }
    ResidualSection(MakeFilters(), numbers, outputs.data(), shape);
  }

  void Backward(const std::vector<uint16_t>& gradients, uint16_t* input_gradients) {
    std::array<FilterGradients, kSectionConvolutions> results;
    for (size_t i = 0; i < kSectionConvolutions; ++i) {
      results[i] = {weight_gradients[i].data(), bias_gradients[i].data()};
    }
    ResidualSectionBackward(MakeFilters(),
                            {inputs.data(), places.data(), pooled.data(), hidden1.data(),
                             middle.data(), hidden2.data()},
                            gradients.data(), input_gradients, results, shape);
  }

  std::array<Filters, kSectionConvolutions> MakeFilters() const {
    std::array<Filters, kSectionConvolutions> filters;
    for (size_t i = 0; i < kSectionConvolutions; ++i) {
      filters[i] = {weights[i].data(), biases[i].data()};
    }
    return filters;
  }

  const SectionShape shape = GetParam();
  const ConvolutionShape block = shape.block();
  const int64_t input_size = shape.height * shape.width * shape.inputs;
  const size_t size = static_cast<size_t>(shape.count * block.height * block.width * block.outputs);
  const std::vector<uint16_t> inputs = ToBits(Numbers(shape.count * input_size, 1));
  std::vector<uint16_t> outputs = std::vector<uint16_t>(size), pooled = outputs, hidden1 = outputs,
                        middle = outputs, hidden2 = outputs;
  std::vector<uint8_t> places = std::vector<uint8_t>(size);
  std::array<std::vector<float>, kSectionConvolutions> weights, biases, weight_gradients,
      bias_gradients;
};

TEST_P(ResidualSectionTest, WithoutBranchesItIsAConvolutionAndMaxPooling) {
  Forward(true);
  std::vector<uint16_t> gradients = ToBits(Numbers(static_cast<int64_t>(size), 1));
  std::vector<uint16_t> input_gradients(shape.inputs == 4 ? 0 : inputs.size());
  Backward(gradients, input_gradients.empty() ? nullptr : input_gradients.data());

  const int64_t wide = shape.height * shape.width * shape.outputs;
  const int64_t narrow = block.height * block.width * block.outputs;
  std::vector<uint16_t> convolved(static_cast<size_t>(wide)), expected(size);
  std::vector<uint16_t> expected_gradients(input_gradients.size());
  FilterGradient filter_gradient(shape.first());
  const Filters first{weights[0].data(), biases[0].data()};
  for (int64_t n = 0; n < shape.count; ++n) {
    const uint16_t* picture = inputs.data() + n * input_size;
    Convolution(first, shape.first()).Run(picture, false, {convolved.data()});
    MaxPool(convolved.data(), expected.data() + n * narrow, nullptr, shape.pool());
    MaxPoolBackward(gradients.data() + n * narrow, places.data() + n * narrow, convolved.data(),
                    shape.pool());
    filter_gradient.Add(picture, false, convolved.data());
    if (shape.inputs == 4) continue;
    Convolution::ForInputGradients(first, shape.first())
        .Run(convolved.data(), false, {expected_gradients.data() + n * input_size});
  }
  EXPECT_EQ(outputs, expected);
  EXPECT_EQ(input_gradients, expected_gradients);
  std::vector<float> weight(weights[0].size()), bias(biases[0].size());
  filter_gradient.Write(weight.data(), bias.data());
  EXPECT_EQ(weight_gradients[0], weight);
  EXPECT_EQ(bias_gradients[0], bias);
}

TEST_P(ResidualSectionTest, OutputsAreTheSameWhetherNumbersAreKept) {
  for (size_t i = 1; i < kSectionConvolutions; ++i) {
    weights[i] = Numbers(static_cast<int64_t>(weights[i].size()), 0.125f);
    biases[i] = Numbers(shape.outputs, 0.5f);
  }
  Forward(true);
  const std::vector<uint16_t> kept = outputs;
  EXPECT_NE(kept, pooled);
  std::fill(outputs.begin(), outputs.end(), uint16_t{0});
  Forward(false);
  EXPECT_EQ(outputs, kept);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ResidualSectionTest,
                         testing::Values(SectionShape{2, 84, 84, 4, 16},
                                         SectionShape{2, 42, 42, 16, 32},
                                         SectionShape{3, 9, 6, 32, 32},
                                         SectionShape{1, 1, 1, 16, 16}),
                         [](const auto& info) { return NameOfShape(info.param); });

}  // namespace
}  // namespace torchbeast

#endif
