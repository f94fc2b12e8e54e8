#include "pool/batching_queue.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

namespace torchbeast {
namespace {

using std::chrono::milliseconds;

TEST(BatchingQueueTest, RefusesSizesThatMakeNoSense) {
  EXPECT_THROW(BatchingQueue<int>({0, 1}), std::invalid_argument);
  EXPECT_THROW(BatchingQueue<int>({3, 2}), std::invalid_argument);
  EXPECT_THROW(BatchingQueue<int>({4, 8, {}, 3}), std::invalid_argument);
  EXPECT_THROW(BatchingQueue<int>({1, 8, milliseconds(-1)}), std::invalid_argument);
}

TEST(BatchingQueueTest, HandsItemsOutInOrder) {
  BatchingQueue<int> queue({2, 3});
  for (int i = 0; i < 5; ++i) queue.Enqueue(i);
  EXPECT_EQ(queue.DequeueMany(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(queue.DequeueMany(), (std::vector<int>{3, 4}));
  EXPECT_EQ(queue.size(), 0);
}

TEST(BatchingQueueTest, DequeueWaitsForMinimum) {
  BatchingQueue<int> queue({2, 2});
  std::atomic<bool> dequeued{false};
  std::thread consumer([&] {
    EXPECT_EQ(queue.DequeueMany().size(), 2U);
    dequeued = true;
  });
  queue.Enqueue(0);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_FALSE(dequeued);
  queue.Enqueue(1);
  consumer.join();
}

TEST(BatchingQueueTest, TimeoutHandsOutLessThanMinimum) {
  BatchingQueue<int> queue({4, 4, milliseconds(20)});
  queue.Enqueue(7);
  EXPECT_EQ(queue.DequeueMany(), std::vector<int>{7});
}

// One consumer waits for items that the other one takes. Its deadline was for those.
TEST(BatchingQueueTest, TimeoutCountsForTheItemsThatAreThere) {
  constexpr milliseconds kTimeout{60};
  BatchingQueue<Clock::time_point> queue({8, 8, kTimeout});
  std::atomic<int> num_early{0};
  auto consume = [&] {
    for (auto batch = queue.DequeueMany(); !batch.empty(); batch = queue.DequeueMany()) {
      if (batch.size() < 8 && Clock::now() - batch.front() < kTimeout) ++num_early;
    }
  };
  std::thread one(consume);
  std::thread other(consume);
  for (int round = 0; round < 6; ++round) {
    queue.Enqueue(Clock::now());
    std::this_thread::sleep_for(milliseconds(10));
    std::vector<Clock::time_point> rest(7, Clock::now());
    queue.EnqueueAll(&rest);
    std::this_thread::sleep_for(milliseconds(30));
    queue.Enqueue(Clock::now());
    std::this_thread::sleep_for(2 * kTimeout);
  }
  queue.Close();
  one.join();
  other.join();
  EXPECT_EQ(num_early, 0);
}

TEST(BatchingQueueTest, TimeoutDoesNotHandOutNothing) {
  BatchingQueue<int> queue({1, 4, milliseconds(5)});
  std::thread producer([&] {
    std::this_thread::sleep_for(milliseconds(60));
    queue.Enqueue(1);
  });
  EXPECT_EQ(queue.DequeueMany(), std::vector<int>{1});
  producer.join();
}

TEST(BatchingQueueTest, CloseKeepsItemsAndRefusesMore) {
  BatchingQueue<int> queue({2, 2});
  queue.Enqueue(1);
  queue.Close();
  EXPECT_TRUE(queue.is_closed());
  EXPECT_THROW(queue.Enqueue(2), ClosedBatchingQueue);
  EXPECT_EQ(queue.DequeueMany(), std::vector<int>{1});
  EXPECT_TRUE(queue.DequeueMany().empty());
  EXPECT_THROW(queue.Close(), std::runtime_error);
}

TEST(BatchingQueueTest, CloseWakesProducersAndConsumers) {
  BatchingQueue<int> full({1, 1, {}, 1});
  BatchingQueue<int> empty({1, 1});
  full.Enqueue(0);
  std::thread producer([&] { EXPECT_THROW(full.Enqueue(1), ClosedBatchingQueue); });
  std::thread consumer([&] { EXPECT_TRUE(empty.DequeueMany().empty()); });
  std::this_thread::sleep_for(milliseconds(20));
  full.Close();
  empty.Close();
  producer.join();
  consumer.join();
}

TEST(BatchingQueueTest, PollEndsAWait) {
  struct Interrupted {};
  BatchingQueue<int> queue({1, 1, {}, 1});
  const Poll interrupt = [] { throw Interrupted(); };
  EXPECT_THROW(queue.DequeueMany(interrupt), Interrupted);
  queue.Enqueue(1);
  EXPECT_THROW(queue.Enqueue(2, interrupt), Interrupted);
  EXPECT_EQ(queue.size(), 1);
}

TEST(BatchingQueueTest, EveryItemIsDequeuedExactlyOnce) {
  constexpr int kProducers = 4;
  constexpr int kConsumers = 3;
  constexpr int kItems = 2000;
  BatchingQueue<int> queue({3, 7, milliseconds(1), 16});
  std::vector<std::thread> producers;
  std::vector<std::thread> consumers;
  std::array<std::atomic<int>, kProducers * kItems> seen{};
  for (int p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (int i = 0; i < kItems; ++i) queue.Enqueue(p * kItems + i);
    });
  }
  for (int c = 0; c < kConsumers; ++c) {
    consumers.emplace_back([&] {
      while (true) {
        const std::vector<int> batch = queue.DequeueMany();
        if (batch.empty()) return;
        EXPECT_LE(batch.size(), 7U);
        for (int item : batch) ++seen[item];
      }
    });
  }
  for (std::thread& thread : producers) thread.join();
  queue.Close();
  for (std::thread& thread : consumers) thread.join();
  for (const auto& count : seen) EXPECT_EQ(count, 1);
}

}  // namespace
}  // namespace torchbeast
