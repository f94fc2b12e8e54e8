#include "kernels/avx512.h"

#include <stdexcept>

namespace torchbeast {

bool HasAvx512() {
#if TB_HAS_AVX512
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
#else
  return false;
#endif
}

void RequireAvx512() {
  if (!HasAvx512()) {
    throw std::runtime_error("this kernel needs an x86-64 processor with AVX-512");
  }
}

bool HasAvx512Bf16() {
#if TB_HAS_AVX512_BF16
  return HasAvx512() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

void RequireAvx512Bf16() {
  if (!HasAvx512Bf16()) {
    throw std::runtime_error("this kernel needs an x86-64 processor with AVX512-BF16");
  }
}

}  // namespace torchbeast
