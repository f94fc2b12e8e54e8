#include "kernels/avx512.h"

namespace torchbeast {

#if TB_HAS_AVX512

bool HasAvx512Bf16() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bf16");
}

#else

bool HasAvx512Bf16() { return false; }

#endif

}  // namespace torchbeast
