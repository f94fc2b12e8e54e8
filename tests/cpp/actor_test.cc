#include "pool/actor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <optional>
#include <thread>

#include "test_environments.h"

namespace torchbeast {
namespace {

constexpr int kUnrollLength = 2;

// Runs one actor, its inference and its deliveries by hand, on the test's thread.
class ActorTest : public ::testing::Test, public Actor::Listener {
 protected:
  void Start(int64_t num_environments = 1) { Start({directory_.Address(), num_environments}); }

  void Start(const StreamOptions& stream) {
    options_.unroll_length = kUnrollLength;
    actor_ =
        std::make_shared<Actor>(stream, options_, this, &queue_, std::make_shared<BufferPool>());
    all_.push_back(actor_);
    actor_->Start();
  }

  bool HasProgress() const override { return false; }

  void TearDown() override {
    for (const auto& actor : all_) actor->Stop();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) Handle(tag, ok);
    for (const auto& actor : all_) actor->Release();
  }

  // Handles events until the actor asks for inference, delivers or fails.
  std::optional<Actor::Submission> NextSubmission() {
    std::optional<Actor::Submission> submission;
    while (!submission && deliveries_.empty() && error_.empty()) {
      void* tag;
      bool ok;
      if (!queue_.Next(&tag, &ok)) throw std::runtime_error("the queue was shut down");
      submission = Handle(tag, ok);
    }
    return submission;
  }

  // Gives each input of `submission` the action `action`.
  void Answer(const Actor::Submission& submission, int64_t action) {
    Answer(submission, TensorNest::Sequence{TensorNest(Action(action))});
  }

  // The same with any outputs and no state.
  static void Answer(const Actor::Submission& submission, TensorNest::Sequence outputs) {
    const auto result = std::make_shared<const TensorNest>(
        TensorNest::Sequence{TensorNest(std::move(outputs)), TensorNest(TensorNest::Sequence{})});
    submission.on_outputs(
        std::vector<DynamicBatcher::Slice>(submission.inputs.size(), {result, 0}));
  }

  Tensor Action(int64_t action) {
    Tensor actions = buffers_.Empty(DType::kInt64, {1, 1, 1});
    std::memcpy(actions.data, &action, sizeof(action));
    return actions;
  }

  static int32_t Observation(const TensorNest& env_output, int64_t row = 0) {
    int32_t value;
    std::memcpy(&value, env_output.sequence()[0].leaf().data + row * sizeof(value), sizeof(value));
    return value;
  }

  TemporaryDirectory directory_;
  ActorOptions options_;
  BufferPool buffers_;
  std::shared_ptr<Actor> actor_;
  std::vector<std::shared_ptr<Actor>> all_;
  std::deque<TensorNest> deliveries_;
  std::string error_;
  std::string log_;

 private:
  static std::optional<Actor::Submission> Handle(void* tag, bool ok) {
    const auto* completion = static_cast<ClientStream::Tag*>(tag);
    return completion->actor->OnCompletion(completion->operation, ok);
  }

  void Deliver(std::shared_ptr<Actor>, std::vector<TensorNest> rollouts) override {
    for (TensorNest& rollout : rollouts) deliveries_.push_back(std::move(rollout));
  }
  void Fail(std::exception_ptr error) override {
    try {
      std::rethrow_exception(error);
    } catch (const std::exception& e) {
      error_ = e.what();
    }
  }
  void Log(LogLevel, const std::string& message) override { log_ += message; }

  grpc::CompletionQueue queue_;
};

TEST_F(ActorTest, DeliversAndWaitsUntilItIsDelivered) {
  CountingServer server(directory_.Address());
  Start();
  for (int step = 0; step < kUnrollLength; ++step) Answer(*NextSubmission(), step);
  EXPECT_FALSE(NextSubmission());
  ASSERT_EQ(deliveries_.size(), 1U);
  EXPECT_EQ(Observation(deliveries_[0].sequence()[0].sequence()[0], kUnrollLength), kUnrollLength);
  // The next rollout begins with the last row of this one.
  const auto submission = actor_->OnDelivered();
  ASSERT_TRUE(submission);
  EXPECT_EQ(Observation(submission->inputs[0].sequence()[0]), kUnrollLength);
}

TEST_F(ActorTest, StartsARolloutAnewWithANewServer) {
  auto server = std::make_unique<CountingServer>(directory_.Address());
  Start();
  Answer(*NextSubmission(), 0);
  auto submission = NextSubmission();
  EXPECT_EQ(Observation(submission->inputs[0].sequence()[0]), 1);
  server.reset();
  server = std::make_unique<CountingServer>(directory_.Address());
  Answer(*submission, 0);
  submission = NextSubmission();
  ASSERT_TRUE(submission);
  EXPECT_EQ(Observation(submission->inputs[0].sequence()[0]), 0);
  EXPECT_TRUE(deliveries_.empty());
  EXPECT_NE(log_.find("connecting again"), std::string::npos);
}

TEST_F(ActorTest, MovesToANewAddressInTheMiddleOfAStep) {
  std::atomic<bool> release{false};
  CountingServer old_server(directory_.Address("old"), [&](int step) {
    if (step == 1) WaitFor([&] { return release.load(); });
  });
  CountingServer new_server(directory_.Address("new"));
  Start({directory_.Address("old"), 2});
  for (int step = 0; step < 2; ++step) Answer(*NextSubmission(), 0);
  actor_->SetAddress(directory_.Address("new"));
  actor_->CheckDeadline(Clock::now() + std::chrono::hours(1));
  const auto submission = NextSubmission();
  ASSERT_TRUE(submission) << error_;
  EXPECT_EQ(Observation(submission->inputs[0].sequence()[0]), 0);
  EXPECT_EQ(new_server.num_alive(), 2);
  EXPECT_TRUE(deliveries_.empty());
  EXPECT_EQ(log_, "");
  release = true;
  WaitFor([&] { return old_server.num_alive() == 0; });
}

TEST_F(ActorTest, AStepThatTakesTooLongNamesTheServer) {
  std::atomic<bool> release{false};
  CountingServer server(directory_.Address(), [&](int step) {
    if (step == 0) WaitFor([&] { return release.load(); });
  });
  options_.step_timeout = std::chrono::seconds(10);
  Start(3);
  Answer(*NextSubmission(), 0);
  actor_->CheckDeadline(Clock::now() + std::chrono::seconds(20));
  release = true;
  EXPECT_TRUE(NextSubmission()) << error_;  // It connected again.
  EXPECT_NE(
      log_.find(directory_.Address() + ": it has not answered a step of 3 environments for 10 s"),
      std::string::npos)
      << log_;
}

TEST_F(ActorTest, WaitsWithoutAnAddressAsLongAsItTakes) {
  CountingServer server(directory_.Address());
  options_.connect_timeout = std::chrono::milliseconds(0);
  Start({"", 1});
  actor_->CheckDeadline(Clock::now() + std::chrono::hours(1));
  EXPECT_EQ(error_, "");
  actor_->SetAddress(directory_.Address());
  EXPECT_TRUE(NextSubmission()) << error_;
}

TEST_F(ActorTest, AnEmptyAddressTakesTheServerAway) {
  CountingServer server(directory_.Address());
  Start();
  auto submission = NextSubmission();
  Answer(*submission, 0);
  submission = NextSubmission();
  actor_->SetAddress("");
  WaitFor([&] { return server.num_alive() == 0; });
  Answer(*submission, 0);
  actor_->SetAddress(directory_.Address());
  submission = NextSubmission();
  ASSERT_TRUE(submission) << error_;
  EXPECT_EQ(Observation(submission->inputs[0].sequence()[0]), 0);
}

TEST_F(ActorTest, LeavesAServerThatIsAway) {
  CountingServer server(directory_.Address());
  Start({directory_.Address("nobody"), 1});
  actor_->SetAddress(directory_.Address());
  EXPECT_TRUE(NextSubmission()) << error_;
}

TEST_F(ActorTest, TheAddressThatItHasChangesNothing) {
  CountingServer server(directory_.Address());
  Start();
  Answer(*NextSubmission(), 0);
  actor_->SetAddress(directory_.Address());
  EXPECT_EQ(Observation(NextSubmission()->inputs[0].sequence()[0]), 1);
}

TEST_F(ActorTest, AFailingEnvironmentTruncatesItsEpisodeOnly) {
  std::atomic<int> num_steps{0};
  CountingServer server(directory_.Address(), [&](int) {
    if (++num_steps == 2) throw std::runtime_error("broken environment");
  });
  Start(2);
  Answer(*NextSubmission(), 5);
  const auto submission = NextSubmission();
  ASSERT_TRUE(submission);
  const TensorNest healthy = submission->inputs[0].sequence()[0];
  const TensorNest failed = submission->inputs[1].sequence()[0];
  EXPECT_EQ(Observation(healthy), 1);
  EXPECT_EQ(Observation(failed), 0);
  auto flag = [](const TensorNest& output, size_t field) {
    return *reinterpret_cast<const bool*>(output.sequence()[field].leaf().data);
  };
  EXPECT_FALSE(flag(healthy, 2));  // done
  EXPECT_TRUE(flag(failed, 2));
  EXPECT_TRUE(flag(failed, 6));   // truncated
  EXPECT_FALSE(flag(failed, 7));  // game_over
  EXPECT_NE(log_.find("Environment 1 of "), std::string::npos) << log_;
  EXPECT_NE(log_.find("(game 0) failed at its step 1"), std::string::npos) << log_;
  EXPECT_EQ(error_, "");
}

TEST_F(ActorTest, OutputsOutOfBoundsAreAnError) {
  CountingServer server(directory_.Address());
  for (const Shape& shape : {Shape{0, 1, 1}, Shape{2, 1, 1}, Shape{1, 0, 1}}) {
    error_.clear();
    Start();
    Answer(*NextSubmission(), TensorNest::Sequence{buffers_.Empty(DType::kInt64, shape)});
    EXPECT_NE(error_.find("Agent outputs must be [1, B, ...]"), std::string::npos) << error_;
    actor_->Stop();
  }
}

TEST_F(ActorTest, OutputsThatChangeAreAnError) {
  CountingServer server(directory_.Address());
  const Tensor wide = buffers_.Empty(DType::kFloat32, {1, 1, 8});
  for (const TensorNest::Sequence& changed :
       {TensorNest::Sequence{Action(0), buffers_.Empty(DType::kFloat32, {1, 1, 4})},
        TensorNest::Sequence{Action(0), buffers_.Empty(DType::kUint8, {1, 1, 8})},
        TensorNest::Sequence{Action(0)}, TensorNest::Sequence{Action(0), wide, wide}}) {
    error_.clear();
    Start();
    Answer(*NextSubmission(), TensorNest::Sequence{Action(0), wide});
    Answer(*NextSubmission(), changed);
    EXPECT_NE(error_.find("Agent outputs changed"), std::string::npos) << error_;
    actor_->Stop();
  }
}

TEST_F(ActorTest, ActionsThatAreNoIndicesAreAnError) {
  CountingServer server(directory_.Address());
  Start();
  Answer(*NextSubmission(), TensorNest::Sequence{buffers_.Empty(DType::kFloat32, {1, 1, 2})});
  EXPECT_NE(error_.find("one int64 for each environment, got float32[1, 1, 2]"), std::string::npos)
      << error_;
}

TEST_F(ActorTest, OutputsWithoutStateAreAnError) {
  CountingServer server(directory_.Address());
  Start();
  const auto submission = NextSubmission();
  const auto outputs = std::make_shared<const TensorNest>(buffers_.Empty(DType::kInt64, {1, 1, 1}));
  submission->on_outputs(std::vector<DynamicBatcher::Slice>{{outputs, 0}});
  EXPECT_NE(error_.find("Inference must return"), std::string::npos);
}

TEST_F(ActorTest, StoppedActorIgnoresOutputs) {
  CountingServer server(directory_.Address());
  Start();
  const auto submission = NextSubmission();
  actor_->Stop();
  Answer(*submission, 0);
  submission->on_outputs(std::nullopt);
  EXPECT_FALSE(actor_->OnDelivered());
  EXPECT_EQ(error_, "");
}

}  // namespace
}  // namespace torchbeast
