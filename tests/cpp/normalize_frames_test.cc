#include "kernels/normalize_frames.h"

#include <gtest/gtest.h>

#include <vector>

#include "kernel_test.h"

#if TB_HAS_AVX512

namespace torchbeast {
namespace {

using NormalizeFramesTest = KernelTest<int64_t>;

// Under the address sanitizer this also shows that nothing outside is touched.
TEST_P(NormalizeFramesTest, AgreesWithPlainLoops) {
  const StackShape shape{3, GetParam()};
  const int64_t size = kStackedFrames * shape.pixels;
  std::vector<uint8_t> stacks(shape.count * size);
  for (size_t i = 0; i < stacks.size(); ++i) stacks[i] = i * 2654435761u >> 13;
  std::vector<float> means(2 * size);
  for (size_t i = 0; i < means.size(); ++i) means[i] = (i * 40503u >> 3) % 256;
  const std::vector<float> scales{0.5f, 0.0625f};
  const std::vector<int32_t> games{1, 0, 1};
  std::vector<uint16_t> outputs(stacks.size());
  NormalizeFrames(stacks.data(), means.data(), scales.data(), games.data(), outputs.data(), shape);
  for (int64_t i = 0; i < static_cast<int64_t>(outputs.size()); ++i) {
    const int64_t c = i % kStackedFrames, pixel = i / kStackedFrames % shape.pixels;
    const int64_t n = i / size;
    const float frame = stacks[n * size + c * shape.pixels + pixel];
    // Differences of bytes have eight bits, as bfloat16 numbers do: nothing is rounded.
    EXPECT_EQ(ToFloat(outputs[i]), (frame - means[games[n] * size + i % size]) * scales[games[n]]);
  }
}

INSTANTIATE_TEST_SUITE_P(Pixels, NormalizeFramesTest, testing::Values(1, 15, 16, 17, 84 * 84));

}  // namespace
}  // namespace torchbeast

#endif
