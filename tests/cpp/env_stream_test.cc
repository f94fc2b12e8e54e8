#include "pool/env_stream.h"

#include <gtest/gtest.h>

#include <optional>

#include "test_environments.h"

namespace torchbeast {
namespace {

// Drives one stream by hand.
class EnvStreamTest : public ::testing::Test, public EnvStream::Handler {
 protected:
  ~EnvStreamTest() override {
    if (stream_) stream_->Cancel();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  void Make(int64_t num_environments = 1) {
    stream_.emplace(directory_.Address(), Tls{}, num_environments, /*newest_plane=*/true,
                    kMaxMessageBytes, &queue_, this);
  }

  // The next event that is more than part of an operation.
  EnvStream::Event NextEvent() {
    EnvStream::Event event = EnvStream::Event::kNothing;
    while (event == EnvStream::Event::kNothing) {
      void* tag;
      bool ok;
      if (!queue_.Next(&tag, &ok)) throw std::runtime_error("the queue was shut down");
      const auto* completion = static_cast<EnvStream::Tag*>(tag);
      EXPECT_EQ(completion->handler, static_cast<EnvStream::Handler*>(this));
      event = stream_->Advance(completion->operation, ok);
    }
    return event;
  }

  void SetActions(const std::vector<int64_t>& actions) {
    *stream_->request().mutable_action_spec() = EncodeArraySpec(LeafSpec{DType::kInt64, {1}});
    stream_->request().set_actions(reinterpret_cast<const char*>(actions.data()),
                                   actions.size() * sizeof(int64_t));
  }

  TemporaryDirectory directory_;
  grpc::CompletionQueue queue_;
  std::optional<EnvStream> stream_;

 private:
  std::optional<DynamicBatcher::Submission> OnCompletion(EnvStream::Operation, bool) override {
    return std::nullopt;
  }
};

TEST_F(EnvStreamTest, OpensAndSteps) {
  CountingServer server(ServerOptions{directory_.Address(), /*task=*/3});
  Make(2);
  stream_->Open();
  ASSERT_EQ(NextEvent(), EnvStream::Event::kReply);
  StepDecoder decoder(2);
  decoder.ReadSchema(stream_->reply());
  decoder.Check(stream_->reply());
  EXPECT_EQ(decoder.task(), 3);
  EXPECT_EQ(decoder.spec().leaf().shape, (Shape{1}));
  for (int step = 1; step <= 5; ++step) {
    SetActions({step, 10 * step});
    stream_->Step();
    ASSERT_EQ(NextEvent(), EnvStream::Event::kReply);
    decoder.Check(stream_->reply());
    EXPECT_EQ(stream_->reply().reward(0), static_cast<float>(step));
    EXPECT_EQ(stream_->reply().reward(1), static_cast<float>(10 * step));
    EXPECT_EQ(stream_->reply().done(0), step == 4);
  }
}

TEST_F(EnvStreamTest, BreaksAtOnceWhereNobodyListens) {
  Make();
  stream_->Open();
  ASSERT_EQ(NextEvent(), EnvStream::Event::kBroken);
  stream_->Finish();
  ASSERT_EQ(NextEvent(), EnvStream::Event::kFinished);
  EXPECT_EQ(stream_->status().error_code(), grpc::StatusCode::UNAVAILABLE);
}

TEST_F(EnvStreamTest, BreaksWithTheServersStatus) {
  ServerOptions options{directory_.Address()};
  options.max_environments = 2;
  CountingServer server(options);
  Make(3);
  stream_->Open();
  ASSERT_EQ(NextEvent(), EnvStream::Event::kBroken);
  stream_->Finish();
  ASSERT_EQ(NextEvent(), EnvStream::Event::kFinished);
  EXPECT_EQ(stream_->status().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(EnvStreamTest, CancelEndsAStep) {
  std::atomic<bool> release{false};
  CountingServer server(directory_.Address(),
                        [&](int) { WaitFor([&] { return release.load(); }); });
  Make();
  stream_->Open();
  ASSERT_EQ(NextEvent(), EnvStream::Event::kReply);
  SetActions({1});
  stream_->Step();
  stream_->Cancel();
  EXPECT_EQ(NextEvent(), EnvStream::Event::kBroken);
  release = true;
}

}  // namespace
}  // namespace torchbeast
