// A convolution of whole numbers, for the tests of its outputs and gradients. Sums of whole numbers
// are exact.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernel_test.h"
#include "kernels/convolution.h"

#if TB_HAS_AVX512

namespace torchbeast {

// -1, 0 and 1, in an order without a pattern.
inline float NumberAt(int64_t i) { return static_cast<float>((i * 2654435761u >> 7) % 3) - 1; }

inline std::vector<float> WholeNumbers(int64_t size, int64_t seed) {
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

struct ConvolutionCase {
  ConvolutionShape shape;
  const char* backend;
};

inline const ConvolutionBackend* FindBackend(const std::string& name) {
  return name == "Amx" ? ConvolutionBackend::Amx() : ConvolutionBackend::Avx512();
}

inline std::string NameOfCase(const testing::TestParamInfo<ConvolutionCase>& info) {
  const ConvolutionShape& s = info.param.shape;
  return std::string(info.param.backend) + "_" + std::to_string(s.height) + "x" +
         std::to_string(s.width) + "_" + std::to_string(s.inputs) + "to" +
         std::to_string(s.outputs);
}

// A convolution of whole numbers.
class ConvolutionTest : public testing::TestWithParam<ConvolutionCase> {
 protected:
  void SetUp() override {
    if (!backend) GTEST_SKIP() << "this processor lacks it";
  }

  const ConvolutionBackend* const backend = FindBackend(GetParam().backend);
  const ConvolutionShape shape = GetParam().shape;
  const Picture inputs{shape.height, shape.width, shape.inputs, 1};
  const Picture gradients{shape.height, shape.width, shape.outputs, 2};
  const std::vector<float> weight = WholeNumbers(shape.outputs * 9 * shape.inputs, 3);
  const std::vector<float> bias = WholeNumbers(shape.outputs, 4);
  const Filters filters{weight.data(), bias.data()};

  float Weight(int64_t o, int64_t tap, int64_t c) const {
    return weight[static_cast<size_t>((o * 9 + tap) * shape.inputs + c)];
  }
};

inline std::vector<ConvolutionCase> AllConvolutionCases() {
  std::vector<ConvolutionCase> cases;
  for (const char* backend : {"Amx", "Avx512"}) {
    for (const ConvolutionShape& shape :
         {ConvolutionShape{84, 84, 4, 16}, ConvolutionShape{42, 42, 16, 16},
          ConvolutionShape{42, 42, 16, 32}, ConvolutionShape{21, 21, 32, 32},
          ConvolutionShape{11, 11, 32, 32}, ConvolutionShape{1, 1, 4, 16},
          ConvolutionShape{1, 7, 16, 32}, ConvolutionShape{33, 2, 16, 16},
          ConvolutionShape{5, 64, 32, 32}}) {
      cases.push_back({shape, backend});
    }
  }
  return cases;
}

}  // namespace torchbeast

#endif
