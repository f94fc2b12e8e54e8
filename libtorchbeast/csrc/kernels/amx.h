// Matrix tiles (AMX) with bfloat16 numbers, which Intel's processors have since 2023.
//
// A tile has up to 16 rows of up to 64 bytes. _tile_dpbf16ps(sums, a, b) adds the product of
// a [M, K] and b [K, N] to sums [M, N], float32. In b, two rows of K lie side by side: [K / 2, N,
// 2].
#pragma once

#include <cstdint>

#include "kernels/avx512.h"

#if TB_HAS_AVX512 && defined(__linux__) && defined(__has_include)
// GCC's header, clang's.
#if __has_include(<amxbf16intrin.h>) || __has_include(<amxintrin.h>)
#define TB_HAS_AMX 1
#define AMX \
  __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512dq,avx512bf16")))
#endif
#endif
#ifndef TB_HAS_AMX
#define TB_HAS_AMX 0
#endif

namespace torchbeast {

#if TB_HAS_AMX

// Whether this processor has AMX, and the operating system lets this process use it.
bool HasAmx();

constexpr int kTileRows = 16;
constexpr int kTileBytes = 64;

// Rows and bytes per row of each tile register, as the processor takes them.
class alignas(64) TileShapes {
 public:
  void Set(int tile, int rows, int bytes_per_row) {
    rows_[tile] = static_cast<uint8_t>(rows);
    bytes_per_row_[tile] = static_cast<uint16_t>(bytes_per_row);
  }

 private:
  [[maybe_unused]] uint8_t palette_ = 1;
  [[maybe_unused]] uint8_t reserved_[15] = {};
  uint16_t bytes_per_row_[16] = {};
  uint8_t rows_[16] = {};
};
static_assert(sizeof(TileShapes) == 64);

// The tile registers have these shapes while this object lives.
class TileScope {
 public:
  AMX explicit TileScope(const TileShapes& shapes) {
    // Compilers do not know what the tiles' instructions read: whatever is stored so far, is
    // stored.
    asm volatile("" : : "r"(&shapes) : "memory");
    _tile_loadconfig(&shapes);
  }
  AMX ~TileScope() { _tile_release(); }
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;
};

#endif

}  // namespace torchbeast
