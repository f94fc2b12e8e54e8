#include "core/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <stdexcept>
#include <utility>

#include "core/sync.h"

namespace torchbeast {

namespace {

struct DTypeInfo {
  int64_t size;
  const char* name;
};

constexpr DTypeInfo kDTypes[] = {
    {1, "bool"},  {1, "uint8"},   {1, "int8"},     {2, "int16"},   {4, "int32"},
    {8, "int64"}, {2, "float16"}, {2, "bfloat16"}, {4, "float32"}, {8, "float64"},
};

constexpr size_t kAlignment = 64;
// Below this, malloc's own caches do as well as ours.
constexpr size_t kMinPooledBytes = 4096;

// At least `bytes`, of which kMinPooledBytes is the least: 4, 5, 6 or 7 times a power of two.
size_t RoundUp(size_t bytes) {
  size_t step = kMinPooledBytes / 4;
  while (8 * step <= bytes) step *= 2;
  return (bytes + step - 1) / step * step;
}

std::shared_ptr<void> AllocateAligned(size_t bytes) {
  const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
  void* block = std::aligned_alloc(kAlignment, rounded);
  if (block == nullptr) throw std::bad_alloc();
  return std::shared_ptr<void>(block, std::free);
}

}  // namespace

int64_t ItemSize(DType dtype) { return kDTypes[static_cast<int>(dtype)].size; }
const char* Name(DType dtype) { return kDTypes[static_cast<int>(dtype)].name; }

bool HasValidValues(DType dtype, const void* data, int64_t count) {
  // A float is infinite or not a number exactly if all bits of its exponent are set.
  auto check = [data, count](auto exponent) {
    using Bits = decltype(exponent);
    const auto* bytes = static_cast<const std::byte*>(data);
    for (int64_t i = 0; i < count; ++i) {
      Bits bits;
      std::memcpy(&bits, bytes + i * sizeof(Bits), sizeof(Bits));
      if ((bits & exponent) == exponent) return false;
    }
    return true;
  };
  switch (dtype) {
    case DType::kBool:
      return std::all_of(static_cast<const char*>(data), static_cast<const char*>(data) + count,
                         [](char value) { return value == 0 || value == 1; });
    case DType::kFloat16:
      return check(uint16_t{0x7c00});
    case DType::kBFloat16:
      return check(uint16_t{0x7f80});
    case DType::kFloat32:
      return check(uint32_t{0x7f800000});
    case DType::kFloat64:
      return check(uint64_t{0x7ff0000000000000});
    default:
      return true;
  }
}

void Shape::Append(int64_t dim) {
  if (rank_ == kMaxRank) {
    throw std::invalid_argument("Arrays of more than " + std::to_string(kMaxRank) +
                                " dimensions are not supported");
  }
  dims_[rank_++] = dim;
}

bool Shape::operator==(const Shape& other) const {
  return rank_ == other.rank_ && std::equal(begin(), end(), other.begin());
}

int64_t Shape::Product(int first, int last) const {
  int64_t product = 1;
  for (int i = first; i < last; ++i) product *= dims_[i];
  return product;
}

Shape Shape::WithLeading(std::initializer_list<int64_t> leading) const {
  Shape result(leading);
  for (int64_t dim : *this) result.Append(dim);
  return result;
}

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) text += (i ? ", " : "") + std::to_string(dims_[i]);
  return text + "]";
}

struct BufferPool::State {
  State(size_t max_idle_bytes, Allocator allocator)
      : max_idle_bytes(max_idle_bytes), allocator(std::move(allocator)) {}

  // Takes `block` back, or lets it go if enough is idle already.
  void Release(size_t bytes, std::shared_ptr<void> block) {
    MutexLock lock(mutex);
    if (idle_bytes + bytes > max_idle_bytes) return;  // `block` is freed after the unlock.
    idle_bytes += bytes;
    idle[bytes].push_back(std::move(block));
  }

  const size_t max_idle_bytes;
  const Allocator allocator;
  Mutex mutex;
  size_t idle_bytes TB_GUARDED_BY(mutex) = 0;
  std::map<size_t, std::vector<std::shared_ptr<void>>> idle TB_GUARDED_BY(mutex);
};

BufferPool::BufferPool(size_t max_idle_bytes, Allocator allocator)
    : state_(std::make_shared<State>(max_idle_bytes, std::move(allocator))) {}

std::shared_ptr<void> BufferPool::Acquire(size_t bytes) {
  if (bytes < kMinPooledBytes) return AllocateAligned(bytes);
  bytes = RoundUp(bytes);
  std::shared_ptr<void> block;
  {
    MutexLock lock(state_->mutex);
    auto found = state_->idle.find(bytes);
    if (found != state_->idle.end() && !found->second.empty()) {
      block = std::move(found->second.back());
      found->second.pop_back();
      state_->idle_bytes -= bytes;
    }
  }
  if (!block) block = state_->allocator ? state_->allocator(bytes) : AllocateAligned(bytes);
  void* data = block.get();
  return std::shared_ptr<void>(
      data, [state = std::weak_ptr<State>(state_), bytes, block = std::move(block)](void*) mutable {
        if (auto alive = state.lock()) alive->Release(bytes, std::move(block));
      });
}

Tensor BufferPool::Empty(DType dtype, const Shape& shape) {
  Tensor tensor{dtype, shape, nullptr, nullptr};
  tensor.owner = Acquire(static_cast<size_t>(tensor.NumBytes()));
  tensor.data = static_cast<std::byte*>(tensor.owner.get());
  return tensor;
}

Tensor CopySlice(const Tensor& source, int dim, int64_t start, int64_t length,
                 BufferPool& buffers) {
  Shape shape = source.shape;
  if (dim >= shape.rank() || start < 0 || length < 0 || start + length > shape[dim]) {
    throw std::invalid_argument("No rows " + std::to_string(start) + " to " +
                                std::to_string(start + length) + " along dimension " +
                                std::to_string(dim) + " of " + shape.ToString());
  }
  shape[dim] = length;
  Tensor result = buffers.Empty(source.dtype, shape);
  const int64_t inner = shape.Product(dim + 1, shape.rank()) * ItemSize(source.dtype);
  const int64_t outer = shape.Product(0, dim);
  for (int64_t i = 0; i < outer; ++i) {
    std::memcpy(result.data + i * length * inner,
                source.data + (i * source.shape[dim] + start) * inner, length * inner);
  }
  return result;
}

namespace {

Tensor ConcatenateLeaves(const std::vector<const Tensor*>& items, int dim, BufferPool& buffers) {
  const Tensor& first = *items.front();
  if (dim >= first.shape.rank()) {
    throw nest::NestError("Cannot batch along dimension " + std::to_string(dim) + " of " +
                          first.shape.ToString());
  }
  if (items.size() == 1 && !first.shared) return first;
  Shape shape = first.shape;
  shape[dim] = 0;
  for (const Tensor* pointer : items) {
    const Tensor& item = *pointer;
    Shape expected = first.shape;
    if (item.shape.rank() == expected.rank()) expected[dim] = item.shape[dim];
    if (item.dtype != first.dtype || item.shape != expected) {
      throw nest::NestError("Cannot batch " + std::string(Name(first.dtype)) +
                            first.shape.ToString() + " with " + Name(item.dtype) +
                            item.shape.ToString());
    }
    shape[dim] += item.shape[dim];
  }
  Tensor result = buffers.Empty(first.dtype, shape);
  const int64_t inner = shape.Product(dim + 1, shape.rank()) * ItemSize(first.dtype);
  const int64_t outer = shape.Product(0, dim);
  const int64_t row = shape[dim] * inner;
  int64_t offset = 0;
  for (const Tensor* item : items) {
    const int64_t part = item->shape[dim] * inner;
    for (int64_t i = 0; i < outer; ++i) {
      std::memcpy(result.data + i * row + offset, item->data + i * part, part);
    }
    offset += part;
  }
  return result;
}

}  // namespace

TensorNest Concatenate(const std::vector<TensorNest>& items, int dim, BufferPool& buffers) {
  size_t index = 0;
  return nest::map_many(
      [&](const std::vector<const Tensor*>& leaves) {
        try {
          Tensor result = ConcatenateLeaves(leaves, dim, buffers);
          ++index;
          return result;
        } catch (const nest::NestError& error) {
          const std::string path = items.front().path_of(index);
          if (path.empty()) throw;
          throw nest::NestError(error.what() + (" at " + path));
        }
      },
      items);
}

void CheckBatchable(const TensorNest& nest, int64_t batch_dim) {
  if (nest.empty()) throw std::invalid_argument("Cannot enqueue empty vector of tensors");
  nest.for_each([&](const Tensor& tensor) {
    if (tensor.shape.rank() <= batch_dim) {
      throw std::invalid_argument(
          "Enqueued tensors must have more than batch_dim == " + std::to_string(batch_dim) +
          " dimensions, got " + std::to_string(tensor.shape.rank()));
    }
  });
}

}  // namespace torchbeast
