// What the kernels for processors with AVX-512 share.
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
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
// Products of bfloat16 numbers, which AMD's processors have since 2022 and most of Intel's
// servers since 2023.
#define AVX512_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#else
#define TB_HAS_AVX512 0
#endif

namespace torchbeast {

// Numbers in a vector.
constexpr int64_t kVectorFloats = 16, kVectorBfloats = 32;

// Whether this processor can run the kernels (x86-64 with AVX-512).
bool HasAvx512();

// Whether it can run those that multiply bfloat16 numbers, too.
bool HasAvx512Bf16();

#if TB_HAS_AVX512

using Floats = float __attribute__((vector_size(64)));

template <typename Vector>
AVX512 inline void Load(const void* source, Vector& result) {
  std::memcpy(&result, source, sizeof result);
}

template <typename Vector>
AVX512 inline void Store(const Vector& values, void* target) {
  std::memcpy(target, &values, sizeof values);
}

// Stores bits of bfloat16 numbers, rounded to the nearest, ties to even.
AVX512 inline void StoreRounded(const Floats& values, uint16_t* target) {
  const __m512 numbers = reinterpret_cast<const __m512&>(values);
  const __m512i bits = _mm512_castps_si512(numbers);
  const __m512i is_odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i half = _mm512_add_epi32(is_odd, _mm512_set1_epi32(0x7fff));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(numbers, numbers, _CMP_UNORD_Q);
  const __m512i rounded = _mm512_mask_mov_epi32(_mm512_srli_epi32(_mm512_add_epi32(bits, half), 16),
                                                is_nan, _mm512_set1_epi32(0x7fc0));
  Store(_mm512_cvtepi32_epi16(rounded), target);
}

#endif

}  // namespace torchbeast
