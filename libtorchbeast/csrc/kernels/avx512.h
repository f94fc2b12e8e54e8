// What the kernels for processors with AVX-512 and AVX512-BF16 share.
//
// Every function of a kernel has the target AVX512, helpers included: the compiler takes vectors
// apart before it inlines. Vectors are passed by reference, because how they are passed by value
// depends on the target.
#pragma once

#include <cstdint>
#include <cstring>

// GCC knows bfloat16 since version 10.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(TB_NO_AVX512) && \
    __has_include(<avx512bf16intrin.h>)
#define TB_HAS_AVX512 1
// GCC 12 takes the undefined vectors in its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
// AMD's processors have it since 2022, most of Intel's servers since 2023.
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#else
#define TB_HAS_AVX512 0
#endif

namespace torchbeast {

// Numbers in a vector.
constexpr int64_t kVectorFloats = 16, kVectorBfloats = 32;

// Whether this processor can run the kernels (x86-64 with AVX-512 and its bfloat16 numbers).
inline bool HasAvx512Bf16() {
#if TB_HAS_AVX512
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

#if TB_HAS_AVX512

template <typename Vector>
AVX512 inline void Load(const void* source, Vector& result) {
  std::memcpy(&result, source, sizeof result);
}

template <typename Vector>
AVX512 inline void Store(const Vector& values, void* target) {
  std::memcpy(target, &values, sizeof values);
}

// Stores bits of bfloat16 numbers, rounded to the nearest, ties to even; below 2^-126 to 0.
AVX512 inline void StoreRounded(const __m512& values, uint16_t* target) {
  Store(_mm512_cvtneps_pbh(values), target);
}

#endif

}  // namespace torchbeast
