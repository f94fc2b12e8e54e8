#include "server/env_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <random>

#include "rpcenv.grpc.pb.h"
#include "test_environments.h"

namespace torchbeast {
namespace {

// For calls to a server that starts: its socket is there before anybody listens. They fail after a
// time that only a fault can take.
grpc::ClientContext* Patient(grpc::ClientContext* context) {
  context->set_wait_for_ready(true);
  context->set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(10));
  return context;
}

// A client that says what it likes.
class RawClient {
 public:
  explicit RawClient(const std::string& address)
      : stub_(rpcenv::EnvironmentService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Step(Patient(&context_))) {}

  // Sends `request`; whether a reply came.
  bool Send(const rpcenv::Request& request) {
    return stream_->Write(request) && stream_->Read(&reply);
  }
  bool Open(uint32_t num_environments, uint32_t version = kProtocolVersion) {
    rpcenv::Request request;
    request.mutable_open()->set_protocol_version(version);
    request.mutable_open()->set_num_environments(num_environments);
    return Send(request);
  }
  bool Step(const std::vector<int64_t>& actions) {
    rpcenv::Request request;
    request.set_step(reply.step() + 1);
    request.mutable_actions()->Add(actions.begin(), actions.end());
    return Send(request);
  }
  grpc::Status Finish() {
    stream_->WritesDone();
    return stream_->Finish();
  }

  rpcenv::Reply reply;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<rpcenv::EnvironmentService::Stub> stub_;
  std::unique_ptr<grpc::ClientReaderWriter<rpcenv::Request, rpcenv::Reply>> stream_;
};

class EnvServerTest : public ::testing::Test {
 protected:
  TemporaryDirectory directory_;
};

TEST_F(EnvServerTest, EveryStreamHasItsOwnEnvironments) {
  CountingServer server(directory_.Address());
  RawClient first(directory_.Address());
  RawClient second(directory_.Address());
  ASSERT_TRUE(first.Open(2));
  ASSERT_TRUE(first.Step({7, 8}));
  ASSERT_TRUE(second.Open(1));
  EXPECT_EQ(server.num_alive(), 3);
  EXPECT_EQ(server.server().port(), 0);  // A socket has none.
  EXPECT_EQ(second.reply.episode_step(0), 0);
  EXPECT_EQ(first.reply.episode_step(0), 1);
  EXPECT_EQ(first.reply.reward(1), 8.0F);
}

TEST_F(EnvServerTest, EnvironmentsEndWithTheirStream) {
  CountingServer server(directory_.Address());
  {
    RawClient client(directory_.Address());
    ASSERT_TRUE(client.Open(3));
    EXPECT_EQ(server.num_alive(), 3);
    client.Finish();
  }
  WaitFor([&] { return server.num_alive() == 0; });
}

TEST_F(EnvServerTest, StopCancelsOpenStreams) {
  auto server = std::make_unique<CountingServer>(directory_.Address());
  RawClient client(directory_.Address());
  ASSERT_TRUE(client.Open(1));
  server.reset();
  EXPECT_FALSE(client.Step({1}));
  EXPECT_FALSE(client.Finish().ok());
  EXPECT_FALSE(std::filesystem::exists(directory_.File("s")));
}

TEST_F(EnvServerTest, RefusesOtherVersionsByName) {
  CountingServer server(directory_.Address());
  RawClient client(directory_.Address());
  EXPECT_FALSE(client.Open(1, /*version=*/1));
  const grpc::Status status = client.Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(status.error_message(), "protocol version 1, this server speaks 5");
}

TEST_F(EnvServerTest, RefusesStepsOutOfOrder) {
  CountingServer server(directory_.Address());
  for (uint64_t step : {0U, 2U}) {
    RawClient client(directory_.Address());
    ASSERT_TRUE(client.Open(1));
    rpcenv::Request request;
    request.add_actions(0);
    request.set_step(step);
    EXPECT_FALSE(client.Send(request));
    EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  }
}

TEST_F(EnvServerTest, RefusesMessagesAboveTheLimit) {
  CountingServer server(directory_.Address());
  RawClient client(directory_.Address());
  ASSERT_TRUE(client.Open(1));
  rpcenv::Request request;
  request.mutable_actions()->Resize(kMaxRequestBytes, 0);
  EXPECT_FALSE(client.Send(request));
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
}

TEST_F(EnvServerTest, SurvivesMutatedRequests) {
  CountingServer server(directory_.Address());
  std::mt19937 random(0);
  for (int i = 0; i < 150; ++i) {
    rpcenv::Request request;
    request.mutable_open()->set_protocol_version(kProtocolVersion);
    request.mutable_open()->set_num_environments(2);
    request.mutable_actions()->Resize(2, 1);
    std::string bytes = request.SerializeAsString();
    for (uint32_t n = random() % 4; n > 0; --n) {
      bytes[random() % bytes.size()] = static_cast<char>(random());
    }
    RawClient client(directory_.Address());
    if (random() % 2 == 0) client.Open(2);
    for (int send = 0; send < 3 && request.ParseFromString(bytes) && client.Send(request);) ++send;
    client.Finish();
  }
  RawClient client(directory_.Address());
  EXPECT_TRUE(client.Open(1));
}

TEST_F(EnvServerTest, RefusesRequestsThatMakeNoSense) {
  CountingServer server(directory_.Address());
  for (uint32_t num_environments : {0U, kMaxEnvironmentsPerStream + 1}) {
    RawClient client(directory_.Address());
    EXPECT_FALSE(client.Open(num_environments));
    EXPECT_FALSE(client.Finish().ok());
  }
  RawClient client(directory_.Address());
  ASSERT_TRUE(client.Open(2));
  EXPECT_FALSE(client.Step({1}));
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  WaitFor([&] { return server.num_alive() == 0; });
}

TEST_F(EnvServerTest, AFailingEnvironmentIsReplacedAndNamed) {
  CountingServer server(directory_.Address(), [](int step) {
    if (step == 1) throw std::runtime_error("broken environment");
  });
  RawClient client(directory_.Address());
  ASSERT_TRUE(client.Open(1));
  ASSERT_TRUE(client.Step({0}));
  EXPECT_EQ(client.reply.failures_size(), 0);
  ASSERT_TRUE(client.Step({0}));
  ASSERT_EQ(client.reply.failures_size(), 1);
  EXPECT_EQ(client.reply.failures(0).step(), 2U);
  EXPECT_EQ(client.reply.failures(0).text(), "broken environment");
  EXPECT_TRUE(client.reply.truncated(0));
  ASSERT_TRUE(client.Step({0}));
  EXPECT_EQ(client.reply.failures_size(), 0);
  EXPECT_EQ(client.reply.episode_step(0), 1);
}

TEST_F(EnvServerTest, WhatBrokeAnEnvironmentIsSaidAlsoIfItsReplacementFails) {
  std::atomic<int> num_made{0};
  std::atomic<int> num_alive{0};
  TestServer server(
      [&]() -> std::unique_ptr<Environment> {
        if (num_made++ > 0) throw std::runtime_error("port is taken");
        return std::make_unique<CountingEnvironment>(
            [](int step) {
              if (step == 1) throw std::runtime_error("simulator crashed");
            },
            &num_alive);
      },
      ServerOptions{directory_.Address()});
  RawClient client(directory_.Address());
  ASSERT_TRUE(client.Open(1));
  ASSERT_TRUE(client.Step({0}));
  ASSERT_TRUE(client.Step({0}));
  EXPECT_EQ(client.reply.fatal().text(),
            "simulator crashed\nIts replacement failed, too:\nport is taken");
  EXPECT_EQ(client.reply.fatal().step(), 2U);
}

TEST_F(EnvServerTest, AnEnvironmentThatCannotBeMadeEndsTheStreamWithItsText) {
  TestServer server([]() -> std::unique_ptr<Environment> { throw std::runtime_error("no game"); },
                    ServerOptions{directory_.Address()});
  RawClient client(directory_.Address());
  ASSERT_TRUE(client.Open(2));
  EXPECT_EQ(client.reply.fatal().text(), "no game");
  EXPECT_EQ(client.Finish().error_code(), grpc::StatusCode::INTERNAL);
}

class LargeEnvironment final : public Environment {
 public:
  TensorNest Reset() override { return buffers_.Empty(DType::kUint8, {1 << 20}); }
  Result Step(int64_t) override { return {}; }

 private:
  BufferPool buffers_;
};

TEST_F(EnvServerTest, ObservationsThatDoNotFitIntoAMessageAreRefusedAfterTheFirst) {
  std::atomic<int> num_made{0};
  TestServer server(
      [&] {
        ++num_made;
        return std::make_unique<LargeEnvironment>();
      },
      ServerOptions{directory_.Address()});
  RawClient client(directory_.Address());
  EXPECT_FALSE(client.Open(1024));
  EXPECT_NE(client.Finish().error_message().find("start more servers"), std::string::npos);
  EXPECT_EQ(num_made, 1);
}

TEST_F(EnvServerTest, ASecondServerOnAPortIsRefused) {
  const EnvironmentFactory factory = [] { return std::unique_ptr<Environment>(); };
  EnvServer first(factory, ServerOptions{"127.0.0.1:0"});
  std::thread runner([&] { first.Run({}); });
  WaitFor([&] { return first.port() != 0; });
  EnvServer second(factory, ServerOptions{"127.0.0.1:" + std::to_string(first.port())});
  EXPECT_THROW(second.Run({}), std::runtime_error);
  first.Stop();
  runner.join();
  EXPECT_THROW(first.Run({}), std::runtime_error);  // It ran already.
}

}  // namespace
}  // namespace torchbeast
