#include "pool/actor_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "pool_run.h"
#include "test_environments.h"

namespace torchbeast {
namespace {

#ifdef __linux__
// The threads of this process with this name.
int CountThreads(const std::string& wanted) {
  int count = 0;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(thread.path() / "comm"), name);
    count += name == wanted;
  }
  return count;
}
#endif

// Servers that count their environments' steps, with a stream to each.
class CountedServers {
 public:
  CountedServers(const TemporaryDirectory& directory, const std::vector<int64_t>& environments)
      : steps_(environments.size()) {
    for (size_t i = 0; i < environments.size(); ++i) {
      const std::string address = directory.Address(std::to_string(i));
      servers_.push_back(
          std::make_unique<CountingServer>(address, [this, i](int) { ++steps_[i]; }));
      streams_.push_back({address, environments[i]});
    }
  }

  const std::vector<StreamOptions>& streams() const { return streams_; }
  // Of the server that made fewest.
  int steps() const { return *std::min_element(steps_.begin(), steps_.end()); }

 private:
  std::vector<std::atomic<int>> steps_;
  std::vector<std::unique_ptr<CountingServer>> servers_;
  std::vector<StreamOptions> streams_;
};

class ActorPoolTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(ActorPoolTest, SeveralThreadsHandleTheStreams) {
  CountedServers servers(directory_, {2, 2, 2, 2, 1, 1, 1});
  ActorOptions options;
  options.num_threads = 3;
  PoolRun run(servers.streams(), options);
  WaitFor([&] {
    run.Next();
    return servers.steps() >= 20 * kUnrollLength;
  });
#ifdef __linux__
  EXPECT_EQ(CountThreads("pool-events"), 3);
#endif
  run.Close();
  EXPECT_EQ(run.error(), "");
}

TEST_F(ActorPoolTest, StreamsThatWaitForAFullQueueTakeTurns) {
  CountedServers servers(directory_, {1, 1, 1});
  PoolRun run(servers.streams(), {}, /*queue_size=*/1);
  WaitFor([&] { return servers.steps() >= kUnrollLength; });
  constexpr int kTaken = 60;
  for (int i = 0; i < kTaken; ++i) {
    run.Next();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_GE(servers.steps(), kTaken / 3 * kUnrollLength / 2);
  run.Close();
  EXPECT_EQ(run.pool.count(), kUnrollLength * (kTaken + run.queue->size()));
}

TEST_F(ActorPoolTest, AServerMayStayAwayWhileTheOthersWaitForTheLearner) {
  CountingServer first(directory_.Address("first"));
  auto second = std::make_unique<CountingServer>(directory_.Address("second"));
  ActorOptions options;
  options.connect_timeout = std::chrono::milliseconds(300);
  PoolRun run({{directory_.Address("first"), 1}, {directory_.Address("second"), 1}}, options,
              /*queue_size=*/1);
  for (int i = 0; i < 20; ++i) run.Next();  // Both have answered steps.
  second.reset();
  std::this_thread::sleep_for(5 * options.connect_timeout);
  EXPECT_EQ(run.error(), "");
  run.Next();
}

TEST_F(ActorPoolTest, AnErrorOfOneThreadEndsAllThreads) {
  CountingServer good(directory_.Address("good"));
  CountingServer bad(directory_.Address("bad"),
                     [](int) { throw std::runtime_error("broken environment"); });
  ActorOptions options;
  options.num_threads = 2;
  PoolRun run({{directory_.Address("good"), 1}, {directory_.Address("bad"), 1}}, options);
  EXPECT_NE(run.WaitForError().find("broken environment"), std::string::npos);
}

TEST_F(ActorPoolTest, RefusesAddressesThatItCannotUse) {
  PoolRun run({{"", 1}});
  EXPECT_THROW(run.pool.SetAddress(1, directory_.Address()), std::out_of_range);
  EXPECT_THROW(run.pool.SetAddress(0, "nonsense"), std::invalid_argument);
  EXPECT_THROW(run.pool.SetAddress(0, "192.0.2.1:4000"), std::invalid_argument);
}

TEST_F(ActorPoolTest, RunsOnce) {
  CountingServer server(directory_.Address());
  PoolRun run({{directory_.Address(), 1}});
  run.Next();
  run.Close();
  EXPECT_THROW(run.pool.Run({}), std::runtime_error);
}

TEST_F(ActorPoolTest, ClosesWhileAnEnvironmentIsStuck) {
  std::atomic<bool> entered{false};
  std::atomic<bool> release{false};
  CountingServer server(directory_.Address(), [&](int) {
    entered = true;
    WaitFor([&] { return release.load(); });
  });
  PoolRun run({{directory_.Address(), 1}});
  WaitFor([&] { return entered.load(); });
  run.Close();
  EXPECT_EQ(run.error(), "");
  release = true;
}

TEST_F(ActorPoolTest, InferenceThatDropsABatchEndsThePool) {
  CountingServer server(directory_.Address());
  auto queue = std::make_shared<BatchingQueue<TensorNest>>(BatchingOptions{});
  auto batcher = std::make_shared<DynamicBatcher>(DynamicBatcher::Options{});
  ActorOptions options;
  options.unroll_length = kUnrollLength;
  ActorPool pool({{directory_.Address(), 1}}, options, queue, batcher,
                 [](LogLevel, const std::string&) {});
  std::thread inference([&] { batcher->NextBatch().reset(); });
  EXPECT_THROW(pool.Run({}), AsyncError);
  inference.join();
}

TEST_F(ActorPoolTest, SurvivesRandomLifeCycles) {
  std::mt19937 random(1);
  for (int cycle = 0; cycle < 12; ++cycle) {
    std::vector<std::unique_ptr<CountingServer>> servers;
    for (int i = 0; i < 2; ++i) {
      servers.push_back(
          std::make_unique<CountingServer>(directory_.Address("s" + std::to_string(i))));
    }
    auto some = [&](int most) { return 1 + static_cast<int64_t>(random() % most); };
    ActorOptions options;
    options.num_threads = static_cast<int>(some(3));
    PoolRun run({{directory_.Address("s0"), some(4)},
                 {directory_.Address("s1"), some(4)},
                 {directory_.Address("s1"), 1}},
                options, some(3));
    const int num_actions = static_cast<int>(random() % 6);
    for (int i = 0; i < num_actions; ++i) {
      switch (random() % 4) {
        case 0:
          run.Next();
          break;
        case 1:
          servers[random() % 2].reset();
          break;
        case 2:
          std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
          break;
        case 3:  // The first stream keeps its server.
          run.pool.SetAddress(
              1 + random() % 2,
              random() % 3 == 0 ? "" : directory_.Address("s" + std::to_string(random() % 2)));
          break;
      }
      for (int s = 0; s < 2; ++s) {
        if (servers[s]) continue;
        servers[s] = std::make_unique<CountingServer>(directory_.Address("s" + std::to_string(s)));
      }
    }
    run.Close();
    EXPECT_EQ(run.error(), "");
  }
}

}  // namespace
}  // namespace torchbeast
