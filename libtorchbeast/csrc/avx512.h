// What the kernels for processors with AVX-512 share.
//
// Every function of a kernel has the target AVX512, helpers included: the compiler takes vectors
// apart before it inlines. Vectors are passed by reference, because how they are passed by value
// depends on the target.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__) && defined(__GNUC__)
#define TB_HAS_AVX512 1
// GCC 12 takes the undefined vectors in its own intrinsics for mistakes.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#define AVX512 __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq")))
#else
#define TB_HAS_AVX512 0
#endif

namespace torchbeast {

// Whether this processor can run the kernels (x86-64 with AVX-512).
bool HasAvx512();

// Throws std::runtime_error if it cannot.
void RequireAvx512();

#if TB_HAS_AVX512

using Uint16s = uint16_t __attribute__((vector_size(32)));
using Uint32s = uint32_t __attribute__((vector_size(64)));
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
  Uint32s bits = reinterpret_cast<Uint32s>(values);
  const Uint32s is_nan = reinterpret_cast<Uint32s>(values != values);
  bits = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  bits = (is_nan & 0x7fc0) | (~is_nan & bits);
  Store(__builtin_convertvector(bits, Uint16s), target);
}

#endif

}  // namespace torchbeast
