#include "kernels/area_resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kernel_test.h"

namespace torchbeast {
namespace {

struct Sizes {
  PictureSize from, to;
};

class AreaResizeTest : public KernelTest<Sizes> {
 protected:
  static double Overlap(double start, double end, int64_t pixel) {
    const auto place = static_cast<double>(pixel);
    return std::max(0.0, std::min(end, place + 1) - std::max(start, place));
  }
};

// The address sanitizer checks plain loads and stores only, not masked ones and gathers.
TEST_P(AreaResizeTest, EachPixelIsTheMeanOfItsArea) {
  const auto [from, to] = GetParam();
  std::vector<uint8_t> first(static_cast<size_t>(from.height * from.width)), second = first;
  for (size_t i = 0; i < first.size(); ++i) {
    first[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    second[i] = static_cast<uint8_t>(i * 40503u >> 7);
  }
  std::vector<uint8_t> result(static_cast<size_t>(to.height * to.width));
  AreaResize(from, to).ResizeMaximum(first.data(), second.data(), result.data());
  const double tall = static_cast<double>(from.height) / static_cast<double>(to.height);
  const double wide = static_cast<double>(from.width) / static_cast<double>(to.width);
  for (int64_t y = 0; y < to.height; ++y) {
    for (int64_t x = 0; x < to.width; ++x) {
      double sum = 0;
      for (int64_t row = 0; row < from.height; ++row) {
        const double height =
            Overlap(static_cast<double>(y) * tall, static_cast<double>(y + 1) * tall, row);
        for (int64_t column = 0; column < from.width; ++column) {
          const double width =
              Overlap(static_cast<double>(x) * wide, static_cast<double>(x + 1) * wide, column);
          const auto i = static_cast<size_t>(row * from.width + column);
          sum += height * width * std::max(first[i], second[i]);
        }
      }
      ASSERT_NEAR(result[static_cast<size_t>(y * to.width + x)], sum / (tall * wide), 0.501);
    }
  }
}

std::string NameOf(const testing::TestParamInfo<Sizes>& info) {
  const PictureSize &from = info.param.from, &to = info.param.to;
  return std::to_string(from.height) + "x" + std::to_string(from.width) + "_to_" +
         std::to_string(to.height) + "x" + std::to_string(to.width);
}

INSTANTIATE_TEST_SUITE_P(Sizes, AreaResizeTest,
                         testing::Values(Sizes{{210, 160}, {84, 84}}, Sizes{{7, 5}, {3, 2}},
                                         Sizes{{70, 65}, {33, 64}}, Sizes{{9, 130}, {9, 7}},
                                         Sizes{{1, 1}, {1, 1}}),
                         NameOf);

}  // namespace
}  // namespace torchbeast
