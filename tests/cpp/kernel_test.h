// What the tests of the kernels share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/avx512.h"

namespace torchbeast {

// The number whose bits as bfloat16 these are.
inline float ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

// The bits of the nearest bfloat16 number, the even one of two.
inline uint16_t ToBits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline std::vector<uint16_t> ToBits(const std::vector<float>& values) {
  std::vector<uint16_t> bits;
  for (const float value : values) bits.push_back(ToBits(value));
  return bits;
}

inline float Rounded(float value) { return ToFloat(ToBits(value)); }

template <typename Parameter>
class KernelTest : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (!HasAvx512Bf16()) GTEST_SKIP() << "needs AVX512-BF16";
  }
};

}  // namespace torchbeast
