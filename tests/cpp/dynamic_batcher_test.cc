#include "dynamic_batcher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

namespace torchbeast {
namespace {

Tensor Row(BufferPool& pool, float value, int64_t batch = 1) {
  Tensor tensor = pool.Empty(DType::kFloat32, {1, batch, 2});
  auto* data = reinterpret_cast<float*>(tensor.data);
  for (int64_t i = 0; i < 2 * batch; ++i) data[i] = value;
  return tensor;
}

float First(const Tensor& tensor) {
  float value;
  std::memcpy(&value, tensor.data, sizeof(value));
  return value;
}

DynamicBatcher::Options Options(int64_t minimum, int64_t maximum) {
  DynamicBatcher::Options options;
  options.batching = {minimum, maximum, std::chrono::milliseconds(5), {}};
  return options;
}

TEST(DynamicBatcherTest, EveryCallerGetsItsOwnRows) {
  DynamicBatcher batcher(Options(1, 5));
  std::thread model([&] {
    while (auto batch = batcher.NextBatch()) {
      EXPECT_LE(batch->size(), 5 * 3);
      batch->SetOutputs(batch->GetInputs());
    }
  });
  std::vector<std::thread> callers;
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&, c] {
      BufferPool pool;
      for (int i = 0; i < 200; ++i) {
        const float value = static_cast<float>(c * 1000 + i);
        const Tensor output = batcher.Compute(Row(pool, value, 1 + c % 3)).leaf();
        EXPECT_EQ(output.shape, (Shape{1, 1 + c % 3, 2}));
        EXPECT_EQ(First(output), value);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  batcher.Close();
  model.join();
}

TEST(DynamicBatcherTest, InputsSubmittedTogetherAreAnsweredInOrder) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  auto call = batcher.Submit({Row(pool, 0), Row(pool, 1), Row(pool, 2)});
  for (int i = 0; i < 2; ++i) {
    auto batch = batcher.NextBatch();
    batch->SetOutputs(batch->GetInputs());
  }
  const auto slices = call->Wait();
  ASSERT_EQ(slices.size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const Tensor row = CopySlice(slices[i].outputs->leaf(), 1, slices[i].offset, 1, pool);
    EXPECT_EQ(First(row), static_cast<float>(i));
  }
}

TEST(DynamicBatcherTest, DroppedBatchRaisesInItsCallers) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  auto call = batcher.Submit({Row(pool, 0)});
  batcher.NextBatch().reset();
  EXPECT_THROW(call->Wait(), AsyncError);
}

TEST(DynamicBatcherTest, CloseRaisesInWaitingCallers) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  auto call = batcher.Submit({Row(pool, 0)});
  std::thread caller([&] { EXPECT_THROW(call->Wait(), AsyncError); });
  batcher.Close();
  caller.join();
  EXPECT_THROW(batcher.Submit({Row(pool, 0)}), ClosedBatchingQueue);
  EXPECT_EQ(batcher.NextBatch(), nullptr);
}

TEST(DynamicBatcherTest, ChecksOutputs) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  auto call = batcher.Submit({Row(pool, 0)});
  auto batch = batcher.NextBatch();
  EXPECT_THROW(batch->SetOutputs(Row(pool, 0, 2)), std::invalid_argument);
  EXPECT_THROW(batch->SetOutputs(pool.Empty(DType::kFloat32, {1})), std::invalid_argument);
  batch->SetOutputs(Row(pool, 0));
  EXPECT_THROW(batch->SetOutputs(Row(pool, 0)), std::runtime_error);
  EXPECT_EQ(call->Wait().size(), 1U);
}

}  // namespace
}  // namespace torchbeast
