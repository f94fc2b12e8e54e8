// Contiguous row-major arrays in shared memory blocks, and the pool those blocks come from.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "nest/nest.h"

namespace torchbeast {

enum class DType : uint8_t {
  kBool,
  kUint8,
  kInt8,
  kInt16,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
};

int64_t ItemSize(DType dtype);
const char* Name(DType dtype);

// Whether none of `count` values is infinite or NaN, and booleans are 0 or 1.
bool HasValidValues(DType dtype, const void* data, int64_t count);

// Up to kMaxRank dimensions, held inline: shapes are made for every row of every rollout.
class Shape {
 public:
  static constexpr int kMaxRank = 8;

  Shape() = default;
  Shape(std::initializer_list<int64_t> dims) {
    for (int64_t dim : dims) Append(dim);
  }

  // std::invalid_argument beyond kMaxRank.
  void Append(int64_t dim);

  int rank() const { return rank_; }
  int64_t operator[](int i) const { return dims_[i]; }
  int64_t& operator[](int i) { return dims_[i]; }
  const int64_t* begin() const { return dims_.data(); }
  const int64_t* end() const { return dims_.data() + rank_; }
  bool operator==(const Shape& other) const;
  bool operator!=(const Shape& other) const { return !(*this == other); }

  // Product of the dimensions in [first, last); 1 if there are none.
  int64_t Product(int first, int last) const;
  int64_t NumElements() const { return Product(0, rank_); }
  // This shape with `leading` in front.
  Shape WithLeading(std::initializer_list<int64_t> leading) const;
  std::string ToString() const;

 private:
  std::array<int64_t, kMaxRank> dims_{};
  int rank_ = 0;
};

// A view of a shared block. Copying a Tensor shares the block; the block lives as long as any view.
struct Tensor {
  DType dtype = DType::kFloat32;
  Shape shape;
  // Keeps the block alive.
  std::shared_ptr<void> owner;
  // The first element, somewhere in the block.
  std::byte* data = nullptr;
  // Somebody else reads the block or may write to it: a batch must not be it, but a copy.
  bool shared = false;

  int64_t NumBytes() const { return shape.NumElements() * ItemSize(dtype); }
};

using TensorNest = nest::Nest<Tensor>;

// Thread-safe free list of memory blocks. A block returns to the list when its last user drops it;
// fresh pages cost several times the copy into them. Sizes are rounded up to four per power of two,
// so that batches of nearly one size use the same blocks. Keeps at most `max_idle_bytes` of idle
// blocks. The pool may die before its blocks.
class BufferPool {
 public:
  // Allocates a block; the deleter of the returned pointer frees it.
  using Allocator = std::function<std::shared_ptr<void>(size_t bytes)>;

  explicit BufferPool(size_t max_idle_bytes = size_t{256} << 20, Allocator allocator = {});

  // An uninitialised block of at least `bytes`, aligned to 64 bytes unless an allocator made it.
  std::shared_ptr<void> Acquire(size_t bytes);
  // An uninitialised tensor.
  Tensor Empty(DType dtype, const Shape& shape);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// A contiguous copy of rows [start, start + length) of `source` along `dim`. std::invalid_argument
// if it has no such rows.
Tensor CopySlice(const Tensor& source, int dim, int64_t start, int64_t length, BufferPool& buffers);

// One nest whose leaves are the leaves of `items` side by side along `dim`. With a single item,
// those of its leaves that are not shared are not copied. nest::NestError (a ValueError) if
// structures, types or other dimensions differ, a leaf has no dimension `dim`, or `items` is empty.
TensorNest Concatenate(const std::vector<TensorNest>& items, int dim, BufferPool& buffers);

// std::invalid_argument unless `nest` has a leaf and every leaf more than `batch_dim` dimensions.
void CheckBatchable(const TensorNest& nest, int64_t batch_dim);

}  // namespace torchbeast
