#include "kernels/max_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernel_test.h"

#if TB_HAS_AVX512

namespace torchbeast {
namespace {

// Whole numbers from -8 to 8, which bfloat16 holds exactly.
std::vector<uint16_t> Picture(const PoolShape& shape, int64_t height, int64_t width) {
  std::vector<uint16_t> picture(height * width * shape.channels);
  for (size_t i = 0; i < picture.size(); ++i) {
    picture[i] = ToBits(static_cast<float>(static_cast<int>((i * 2654435761u >> 7) % 17) - 8));
  }
  return picture;
}

using MaxPoolTest = KernelTest<PoolShape>;

// Under the address sanitizer this also shows that nothing outside is touched.
TEST_P(MaxPoolTest, AgreesWithPlainLoops) {
  const PoolShape s = GetParam();
  const int64_t rows = s.pooled_height(), columns = s.pooled_width();
  const std::vector<uint16_t> inputs = Picture(s, s.height, s.width);
  const std::vector<uint16_t> gradients = Picture(s, rows, columns);
  std::vector<uint16_t> outputs(gradients.size()), result(inputs.size());
  std::vector<uint8_t> indices(gradients.size());
  MaxPool(inputs.data(), outputs.data(), indices.data(), s);
  MaxPoolBackward(gradients.data(), indices.data(), result.data(), s);

  std::vector<float> expected(inputs.size(), 0);
  for (int64_t i = 0; i < static_cast<int64_t>(outputs.size()); ++i) {
    const int64_t c = i % s.channels, column = i / s.channels % columns;
    const int64_t row = i / s.channels / columns;
    int64_t best = -1;
    int index = 0;
    for (int k = 0; k < 9; ++k) {
      const int64_t y = 2 * row - 1 + k / 3, x = 2 * column - 1 + k % 3;
      if (y < 0 || y >= s.height || x < 0 || x >= s.width) continue;
      const int64_t at = (y * s.width + x) * s.channels + c;
      if (best < 0 || ToFloat(inputs[at]) > ToFloat(inputs[best])) best = at, index = k;
    }
    ASSERT_EQ(outputs[i], inputs[best]);
    ASSERT_EQ(indices[i], index);
    expected[best] += ToFloat(gradients[i]);
  }
  for (size_t i = 0; i < result.size(); ++i) ASSERT_EQ(ToFloat(result[i]), expected[i]);
}

INSTANTIATE_TEST_SUITE_P(Sizes, MaxPoolTest,
                         testing::Values(PoolShape{84, 84, 16}, PoolShape{21, 21, 32},
                                         PoolShape{10, 11, 48}, PoolShape{1, 1, 16},
                                         PoolShape{2, 1, 16}));

}  // namespace
}  // namespace torchbeast

#endif
