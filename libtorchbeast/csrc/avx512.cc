#include "avx512.h"

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

}  // namespace torchbeast
