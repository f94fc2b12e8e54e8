// What the tests of the kernels share.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>

#include "avx512.h"

namespace torchbeast {

// The number whose bits as bfloat16 these are.
inline float ToFloat(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

template <typename Parameter>
class KernelTest : public testing::TestWithParam<Parameter> {
 protected:
  void SetUp() override {
    if (!HasAvx512()) GTEST_SKIP() << "needs AVX-512";
  }
};

}  // namespace torchbeast
