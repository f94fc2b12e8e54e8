// The one check of sizes that come from Python.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

#include "core/tensor.h"

namespace torchbeast {

// The longest side of a picture that kernels work on: a few numbers per pixel stay small.
constexpr int64_t kMaxPictureSide = 1 << 13;
// The largest array: products of sizes, in bytes, are far from overflowing.
constexpr int64_t kMaxElements = int64_t{1} << 40;
// Steps of a rollout: its product with the environments of a stream is far from overflowing.
constexpr int64_t kMaxUnrollLength = 1 << 20;
constexpr int64_t kMaxBatchDim = Shape::kMaxRank - 1;

// Returns `size`. std::invalid_argument unless it is from `lowest` to `highest`.
inline int64_t CheckSize(const char* name, int64_t size, int64_t lowest, int64_t highest) {
  if (lowest <= size && size <= highest) return size;
  throw std::invalid_argument(std::string(name) + " must be from " + std::to_string(lowest) +
                              " to " + std::to_string(highest) + ", got " + std::to_string(size));
}

inline int CheckBatchDim(int64_t batch_dim) {
  return static_cast<int>(CheckSize("batch_dim", batch_dim, 0, kMaxBatchDim));
}

}  // namespace torchbeast
