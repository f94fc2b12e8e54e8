#include "env_server.h"

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "rpcenv.grpc.pb.h"
#include "test_environments.h"

namespace torchbeast {
namespace {

// A client that says what it likes.
class RawClient {
 public:
  explicit RawClient(const std::string& address)
      : stub_(rpcenv::EnvironmentService::NewStub(
            grpc::CreateChannel(address, grpc::InsecureChannelCredentials()))),
        stream_(stub_->Step(&context_)) {}

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
    *request.mutable_action_spec() = EncodeArraySpec(LeafSpec{DType::kInt64, {}});
    request.set_actions(reinterpret_cast<const char*>(actions.data()),
                        actions.size() * sizeof(int64_t));
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

TEST_F(EnvServerTest, RefusesRequestsThatMakeNoSense) {
  CountingServer server(directory_.Address());
  {
    RawClient client(directory_.Address());
    EXPECT_FALSE(client.Open(1, /*version=*/99));
    EXPECT_NE(client.Finish().error_message().find("protocol version 99"), std::string::npos);
  }
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

TEST_F(EnvServerTest, AFailingEnvironmentEndsItsStreamOnly) {
  CountingServer server(directory_.Address(), [](int step) {
    if (step == 1) throw std::runtime_error("broken environment");
  });
  RawClient failing(directory_.Address());
  RawClient other(directory_.Address());
  ASSERT_TRUE(failing.Open(1));
  ASSERT_TRUE(other.Open(1));
  ASSERT_TRUE(failing.Step({0}));
  EXPECT_FALSE(failing.Step({0}));
  EXPECT_EQ(failing.Finish().error_message(), "broken environment");
  EXPECT_TRUE(other.Step({0}));
}

TEST_F(EnvServerTest, InterruptionEndsRun) {
  struct CtrlC {};
  std::atomic<int> num_alive{0};
  EnvServer server(
      [&](int64_t n) {
        return std::make_unique<CountingEnvironments>(
            n, [](int) { throw Interrupted{std::make_exception_ptr(CtrlC())}; }, &num_alive);
      },
      directory_.Address(), 0, Tls{});
  std::thread client([&] {
    WaitFor([&] { return std::filesystem::exists(directory_.File("s")); });
    RawClient raw(directory_.Address());
    EXPECT_TRUE(raw.Open(1));
    EXPECT_FALSE(raw.Step({0}));
    raw.Finish();
  });
  EXPECT_THROW(server.Run({}), CtrlC);
  client.join();
  EXPECT_EQ(num_alive, 0);
}

TEST_F(EnvServerTest, PollEndsRun) {
  struct CtrlC {};
  EnvServer server([](int64_t) { return nullptr; }, directory_.Address(), 0, Tls{});
  EXPECT_THROW(server.Run([] { throw CtrlC(); }), CtrlC);
  EXPECT_THROW(server.Run({}), std::runtime_error);
}

TEST_F(EnvServerTest, RefusesAnAddressInUse) {
  CountingServer first(directory_.Address());
  EnvServer second([](int64_t) { return nullptr; }, directory_.Address(), 0, Tls{});
  EXPECT_THROW(second.Run({}), std::runtime_error);
  RawClient client(directory_.Address());
  EXPECT_TRUE(client.Open(1));
}

}  // namespace
}  // namespace torchbeast
