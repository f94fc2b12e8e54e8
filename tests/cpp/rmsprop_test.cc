#include "kernels/rmsprop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernel_test.h"

namespace torchbeast {
namespace {

using RmsPropTest = KernelTest<int64_t>;

// Under the address sanitizer this also shows that nothing outside is touched.
TEST_P(RmsPropTest, AgreesWithPlainLoops) {
  const int64_t size = GetParam();
  const RmsPropOptions options{0.1f, 0.9f, 0.01f, 0.5f};
  for (const bool has_momenta : {false, true}) {
    std::vector<float> parameters(size), gradients(size), averages(size), momenta(size);
    for (int64_t i = 0; i < size; ++i) {
      parameters[i] = 1 + i % 7;
      gradients[i] = i % 5 - 2;
      averages[i] = i % 3;
      momenta[i] = i % 4;
    }
    std::vector<float> expected = parameters, expected_averages = averages;
    for (int64_t i = 0; i < size; ++i) {
      expected_averages[i] = 0.9f * averages[i] + 0.1f * gradients[i] * gradients[i];
      const float step = gradients[i] / (std::sqrt(expected_averages[i]) + 0.01f);
      expected[i] -= 0.1f * (step + (has_momenta ? 0.5f * momenta[i] : 0));
    }
    StepRmsProp(parameters.data(), gradients.data(), averages.data(),
                has_momenta ? momenta.data() : nullptr, size, options);
    for (int64_t i = 0; i < size; ++i) {
      EXPECT_NEAR(parameters[i], expected[i], 1e-5);
      EXPECT_NEAR(averages[i], expected_averages[i], 1e-6);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, RmsPropTest, testing::Values(1, 15, 16, 17, 1000));

}  // namespace
}  // namespace torchbeast
