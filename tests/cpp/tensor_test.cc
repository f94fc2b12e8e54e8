#include "core/tensor.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <numeric>

namespace torchbeast {
namespace {

Tensor Iota(BufferPool& pool, const Shape& shape, int start) {
  Tensor tensor = pool.Empty(DType::kInt32, shape);
  auto* data = reinterpret_cast<int32_t*>(tensor.data);
  std::iota(data, data + shape.NumElements(), start);
  return tensor;
}

std::vector<int32_t> Values(const Tensor& tensor) {
  const auto* data = reinterpret_cast<const int32_t*>(tensor.data);
  return {data, data + tensor.shape.NumElements()};
}

TEST(TensorTest, ConcatenatesAlongAnyAxis) {
  BufferPool pool;
  const Tensor a = Iota(pool, {2, 1, 2}, 0);
  const Tensor b = Iota(pool, {2, 2, 2}, 10);
  const Tensor result = Concatenate({a, b}, 1, pool).leaf();
  EXPECT_EQ(result.shape, (Shape{2, 3, 2}));
  EXPECT_EQ(Values(result), (std::vector<int32_t>{0, 1, 10, 11, 12, 13, 2, 3, 14, 15, 16, 17}));
  EXPECT_EQ(Values(CopySlice(result, 1, 1, 2, pool)), Values(b));
  EXPECT_EQ(Concatenate({a}, 1, pool).leaf().data, a.data);
}

TEST(TensorTest, ABatchOfOneSharedTensorIsACopy) {
  BufferPool pool;
  Tensor a = Iota(pool, {1, 1, 2}, 0);
  a.shared = true;
  const Tensor result = Concatenate({a}, 1, pool).leaf();
  EXPECT_NE(result.data, a.data);
  EXPECT_FALSE(result.shared);
  EXPECT_EQ(Values(result), Values(a));
}

TEST(TensorTest, RefusesDimensionsAndRowsThatAreNotThere) {
  BufferPool pool;
  const Tensor a = Iota(pool, {1, 2}, 0);
  EXPECT_THROW(Concatenate({a, a}, 9, pool), nest::NestError);
  EXPECT_THROW(Concatenate({a}, 2, pool), nest::NestError);
  EXPECT_THROW(CopySlice(a, 9, 0, 1, pool), std::invalid_argument);
  EXPECT_THROW(CopySlice(a, 1, 1, 2, pool), std::invalid_argument);
  EXPECT_THROW(CopySlice(a, 1, -1, 1, pool), std::invalid_argument);
}

TEST(TensorTest, RefusesToConcatenateWhatDiffers) {
  BufferPool pool;
  const Tensor a = Iota(pool, {1, 1, 2}, 0);
  EXPECT_THROW(Concatenate({a, Iota(pool, {1, 1, 3}, 0)}, 1, pool), nest::NestError);
  EXPECT_THROW(Concatenate({a, pool.Empty(DType::kInt64, {1, 1, 2})}, 1, pool), nest::NestError);
  try {
    Concatenate({TensorNest(TensorNest::Sequence{a, a}),
                 TensorNest(TensorNest::Sequence{a, Iota(pool, {1, 1, 3}, 0)})},
                1, pool);
    FAIL() << "nothing was thrown";
  } catch (const nest::NestError& error) {
    EXPECT_STREQ(error.what(), "Cannot batch int32[1, 1, 2] with int32[1, 1, 3] at [1]");
  }
  const TensorNest pair(TensorNest::Sequence{a, a});
  EXPECT_THROW(Concatenate({pair, a}, 1, pool), nest::NestError);
  EXPECT_THROW(Concatenate({}, 1, pool), nest::NestError);
}

TEST(BufferPoolTest, RecyclesBlocksUpToItsBound) {
  int num_allocated = 0;
  BufferPool pool(3 * 8192, [&](size_t bytes) {
    ++num_allocated;
    return std::shared_ptr<void>(std::malloc(bytes), std::free);
  });
  auto acquire = [&](int count, size_t bytes) {
    num_allocated = 0;
    std::vector<std::shared_ptr<void>> blocks;
    for (int i = 0; i < count; ++i) blocks.push_back(pool.Acquire(bytes));
    return num_allocated;
  };
  EXPECT_EQ(acquire(1, 8192), 1);
  EXPECT_EQ(acquire(10, 8192), 9);
  EXPECT_EQ(acquire(10, 8192), 7);
}

TEST(BufferPoolTest, BatchesOfNearlyOneSizeUseTheSameBlock) {
  BufferPool pool;
  const void* block = pool.Acquire(100'000).get();
  EXPECT_EQ(pool.Acquire(105'000).get(), block);
  EXPECT_NE(pool.Acquire(200'000).get(), block);
}

TEST(BufferPoolTest, BlocksOutliveThePool) {
  std::shared_ptr<void> block;
  {
    BufferPool pool;
    block = pool.Acquire(1 << 20);
  }
  static_cast<char*>(block.get())[(1 << 20) - 1] = 1;
}

TEST(ShapeTest, RefusesTooManyDimensions) {
  Shape shape;
  for (int i = 0; i < Shape::kMaxRank; ++i) shape.Append(1);
  EXPECT_THROW(shape.Append(1), std::invalid_argument);
}

}  // namespace
}  // namespace torchbeast
