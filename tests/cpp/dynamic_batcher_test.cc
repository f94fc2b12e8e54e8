#include "pool/dynamic_batcher.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <thread>
#include <vector>

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

// What a submission's callback was called with.
struct Outcome {
  std::optional<std::vector<DynamicBatcher::Slice>> slices;
  int calls = 0;
};

DynamicBatcher::Submission Submission(Outcome* outcome, std::vector<TensorNest> inputs) {
  return {std::move(inputs), [outcome](std::optional<std::vector<DynamicBatcher::Slice>> slices) {
            outcome->slices = std::move(slices);
            ++outcome->calls;
          }};
}

TEST(DynamicBatcherTest, EveryCallerGetsItsOwnRow) {
  DynamicBatcher batcher(Options(1, 5));
  std::thread model([&] {
    while (auto batch = batcher.NextBatch()) {
      EXPECT_LE(batch->size(), 5);
      batch->SetOutputs(batch->GetInputs());
    }
  });
  std::vector<std::thread> callers;
  for (int c = 0; c < 8; ++c) {
    callers.emplace_back([&, c] {
      BufferPool pool;
      for (int i = 0; i < 200; ++i) {
        const float value = static_cast<float>(c * 1000 + i);
        const Tensor output = batcher.Compute(Row(pool, value)).leaf();
        EXPECT_EQ(output.shape, (Shape{1, 1, 2}));
        EXPECT_EQ(First(output), value);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  batcher.Close();
  model.join();
}

TEST(DynamicBatcherTest, SubmissionsAreAnsweredWhenAllTheirInputsAre) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  Outcome first;
  Outcome second;
  batcher.Submit({Submission(&first, {Row(pool, 0), Row(pool, 1), Row(pool, 2)}),
                  Submission(&second, {Row(pool, 3)})});
  auto answer = [&] {
    auto batch = batcher.NextBatch();
    batch->SetOutputs(batch->GetInputs());
  };
  answer();
  EXPECT_EQ(first.calls, 0);
  answer();
  EXPECT_EQ(first.calls, 1);
  EXPECT_EQ(second.calls, 1);
  ASSERT_TRUE(first.slices);
  ASSERT_EQ(first.slices->size(), 3U);
  for (int i = 0; i < 3; ++i) {
    const DynamicBatcher::Slice& slice = (*first.slices)[i];
    EXPECT_EQ(First(CopySlice(slice.outputs->leaf(), 1, slice.offset, 1, pool)),
              static_cast<float>(i));
  }
}

TEST(DynamicBatcherTest, DroppedBatchIsToldOnce) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  Outcome outcome;
  batcher.Submit({Submission(&outcome, {Row(pool, 0), Row(pool, 1)})});
  batcher.NextBatch().reset();
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_FALSE(outcome.slices);
}

TEST(DynamicBatcherTest, CloseRaisesInWaitingCallers) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  std::thread caller([&] { EXPECT_THROW(batcher.Compute(Row(pool, 0)), ClosedBatchingQueue); });
  while (batcher.size() == 0) std::this_thread::yield();
  batcher.Close();
  caller.join();
  EXPECT_EQ(batcher.NextBatch(), nullptr);
}

TEST(DynamicBatcherTest, ClosedBatcherDropsWhatIsSubmitted) {
  DynamicBatcher batcher(Options(1, 2));
  BufferPool pool;
  batcher.Close();
  Outcome outcome;
  EXPECT_THROW(batcher.Submit({Submission(&outcome, {Row(pool, 0)})}), ClosedBatchingQueue);
  EXPECT_EQ(outcome.calls, 1);
  EXPECT_FALSE(outcome.slices);
}

TEST(DynamicBatcherTest, OutputsHaveOneRowPerInputAndComeOnce) {
  DynamicBatcher batcher(Options(2, 2));
  BufferPool pool;
  Outcome outcome;
  batcher.Submit({Submission(&outcome, {Row(pool, 0, 3), Row(pool, 0, 3)})});
  auto batch = batcher.NextBatch();
  EXPECT_THROW(batch->SetOutputs(Row(pool, 7, 6)), std::invalid_argument);
  EXPECT_THROW(batch->SetOutputs(pool.Empty(DType::kFloat32, {1})), std::invalid_argument);
  EXPECT_EQ(outcome.calls, 0);
  batch->SetOutputs(Row(pool, 7, 2));
  EXPECT_THROW(batch->SetOutputs(Row(pool, 7, 2)), std::runtime_error);
  EXPECT_EQ(outcome.calls, 1);
  ASSERT_TRUE(outcome.slices);
  ASSERT_EQ(outcome.slices->size(), 2U);
  EXPECT_EQ((*outcome.slices)[1].offset, 1);
}

TEST(DynamicBatcherTest, InputsThatDoNotFitTogetherAreRefusedAgain) {
  DynamicBatcher batcher(Options(2, 2));
  BufferPool pool;
  Outcome one, other;
  batcher.Submit({Submission(&one, {Row(pool, 0)})});
  batcher.Submit({Submission(&other, {TensorNest(TensorNest::Sequence{Row(pool, 0)})})});
  auto batch = batcher.NextBatch();
  for (int i = 0; i < 2; ++i) EXPECT_THROW(batch->GetInputs(), nest::NestError);
}

TEST(DynamicBatcherTest, OutputsOutOfBoundsRaiseInTheCallerWithoutChecks) {
  DynamicBatcher::Options options = Options(1, 1);
  options.check_outputs = false;
  DynamicBatcher batcher(options);
  BufferPool pool;
  std::thread caller([&] { EXPECT_THROW(batcher.Compute(Row(pool, 0)), std::invalid_argument); });
  batcher.NextBatch()->SetOutputs(pool.Empty(DType::kFloat32, {1}));
  caller.join();
}

}  // namespace
}  // namespace torchbeast
