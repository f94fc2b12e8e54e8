// An actor pool against servers that break the protocol in every way that comes to mind: it neither
// crashes nor waits for ever, and says which server it was.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>

#include "pool_run.h"
#include "rpcenv.grpc.pb.h"
#include "test_environments.h"

namespace torchbeast {
namespace {

// For messages that take a while to travel, and for servers that are given up.
constexpr std::chrono::milliseconds kLongEnough{60'000}, kShort{2'000};

using ServerStream = grpc::ServerReaderWriter<rpcenv::Reply, rpcenv::Request>;

// Calls a function for every stream.
class HostileServer final : public rpcenv::EnvironmentService::Service {
 public:
  using Behaviour = std::function<grpc::Status(ServerStream* stream)>;

  HostileServer(const std::string& address, Behaviour behaviour)
      : behaviour_(std::move(behaviour)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.SetMaxSendMessageSize(-1);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~HostileServer() override { server_->Shutdown(std::chrono::system_clock::now()); }

 private:
  grpc::Status Step(grpc::ServerContext*, ServerStream* stream) override {
    return behaviour_(stream);
  }

  const Behaviour behaviour_;
  std::unique_ptr<grpc::Server> server_;
};

// A reply to `request` as it should be: one environment, one byte.
rpcenv::Reply GoodReply(const rpcenv::Request& request) {
  rpcenv::Reply reply;
  if (request.has_open()) {
    *reply.mutable_schema()->mutable_observation()->mutable_array() =
        EncodeArraySpec(LeafSpec{DType::kUint8, {1}});
  }
  reply.add_leaves()->set_data("x");
  reply.add_reward(0.0F);
  reply.add_done(false);
  reply.add_truncated(false);
  reply.add_game_over(false);
  reply.add_episode_step(0);
  reply.add_episode_return(0.0F);
  reply.set_step(request.step());
  return reply;
}

// Answers as `reply` says: it gets the good reply to change, and whether it is the first.
HostileServer::Behaviour Answer(std::function<void(rpcenv::Reply* reply, bool first)> change) {
  return [change](ServerStream* stream) {
    rpcenv::Request request;
    while (stream->Read(&request)) {
      rpcenv::Reply reply = GoodReply(request);
      change(&reply, request.has_open());
      if (!stream->Write(reply)) break;
    }
    return grpc::Status::OK;
  };
}

class HostileServerTest : public ::testing::Test {
 protected:
  HostileServerTest() { options_.connect_timeout = options_.step_timeout = kLongEnough; }

  // Runs a pool against `behaviour` until it fails; returns why.
  std::string Run(HostileServer::Behaviour behaviour) {
    HostileServer server(directory_.Address(), std::move(behaviour));
    return Run();
  }

  // The same against a server that listens already.
  std::string Run() {
    PoolRun run({{directory_.Address(), 1}}, options_);
    while (!run.queue->DequeueMany().empty()) {
    }
    const std::string error = run.WaitForError();
    EXPECT_NE(error.find(directory_.Address()), std::string::npos) << error;
    return error;
  }

  TemporaryDirectory directory_;
  ActorOptions options_;
};

TEST_F(HostileServerTest, OneThatEndsEveryStreamIsGivenUp) {
  options_.connect_timeout = kShort;
  const std::string error =
      Run([](ServerStream*) { return grpc::Status(grpc::StatusCode::INTERNAL, "nonsense"); });
  EXPECT_NE(error.find("No environment server"), std::string::npos) << error;
  EXPECT_NE(error.find("nonsense"), std::string::npos) << error;
}

TEST_F(HostileServerTest, OneThatOpensAndEndsIsGivenUp) {
  options_.connect_timeout = kShort;
  const std::string error = Run([](ServerStream* stream) {
    rpcenv::Request request;
    if (stream->Read(&request)) stream->Write(GoodReply(request));
    return grpc::Status::OK;
  });
  EXPECT_NE(error.find("No environment server"), std::string::npos) << error;
}

TEST_F(HostileServerTest, OneThatHasWorkedAndOnlyOpensFromThenOnIsGivenUp) {
  options_.connect_timeout = kShort;
  std::atomic<int> num_streams{0};
  const std::string error = Run([&num_streams](ServerStream* stream) {
    rpcenv::Request request;
    const int num_replies = num_streams++ == 0 ? 2 : 1;
    for (int i = 0; i < num_replies && stream->Read(&request); ++i) {
      stream->Write(GoodReply(request));
    }
    return grpc::Status::OK;
  });
  EXPECT_NE(error.find("No environment server"), std::string::npos) << error;
  EXPECT_GT(num_streams, 1);
}

TEST_F(HostileServerTest, OneThatRefusesEndsTheRunAtOnce) {
  const std::string error = Run([](ServerStream*) {
    return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION, "protocol version 2");
  });
  EXPECT_NE(error.find("it refuses this actor pool: protocol version 2"), std::string::npos)
      << error;
}

TEST_F(HostileServerTest, OneThatNeverOpensIsGivenUp) {
  options_.connect_timeout = kShort;
  const std::string error = Run([](ServerStream* stream) {
    rpcenv::Request request;
    while (stream->Read(&request)) {
    }
    return grpc::Status::OK;
  });
  EXPECT_NE(error.find("has not opened 1 environments"), std::string::npos) << error;
}

TEST_F(HostileServerTest, AStepAnsweredTwiceIsRefused) {
  const std::string error = Run([](ServerStream* stream) {
    rpcenv::Request request;
    while (stream->Read(&request)) {
      stream->Write(GoodReply(request));
      if (request.step() == 1) stream->Write(GoodReply(request));
    }
    return grpc::Status::OK;
  });
  EXPECT_NE(error.find("answer to step 1 instead of step 2"), std::string::npos) << error;
}

TEST_F(HostileServerTest, RepliesAboveTheLimitAreRefused) {
  options_.max_message_bytes = 1 << 16;
  auto too_large = [this](rpcenv::Reply* reply, bool) {
    reply->mutable_leaves(0)->set_data(std::string(options_.max_message_bytes, 'x'));
  };
  const std::string error = Run(Answer(too_large));
  EXPECT_NE(error.find("larger than max"), std::string::npos) << error;
}

TEST_F(HostileServerTest, MalformedRepliesEndTheRun) {
  const std::function<void(rpcenv::Reply*, bool)> changes[] = {
      [](rpcenv::Reply* reply, bool) { reply->clear_schema(); },
      [](rpcenv::Reply* reply, bool) { reply->mutable_schema()->set_task(-1); },
      [](rpcenv::Reply* reply, bool first) {
        if (!first) reply->add_failures()->set_environment(7);
      },
      [](rpcenv::Reply* reply, bool first) {  // The byte of the observation is no boolean.
        if (!first) return;
        *reply->mutable_schema()->mutable_observation()->mutable_array() =
            EncodeArraySpec(LeafSpec{DType::kBool, {1}});
      },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    const std::string error = Run(Answer(changes[i]));
    EXPECT_NE(error.find("malformed reply"), std::string::npos) << i << ": " << error;
  }
}

// Answers the opening message as it should, and every other one with bytes that are no message.
class UnparsableServer {
 public:
  explicit UnparsableServer(const std::string& address) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterAsyncGenericService(&service_);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    thread_ = std::thread([this] { Serve(); });
  }
  ~UnparsableServer() {
    server_->Shutdown(std::chrono::system_clock::now());
    // The thread may still start operations, which a queue that was shut down does not take.
    thread_.join();
    queue_->Shutdown();
    void* tag = nullptr;
    bool ok = false;
    while (queue_->Next(&tag, &ok)) {
    }
  }

 private:
  // One stream after the other, one operation at a time, until the server is shut down.
  void Serve() {
    for (;;) {
      grpc::GenericServerContext context;
      grpc::GenericServerAsyncReaderWriter stream(&context);
      service_.RequestCall(&context, &stream, queue_.get(), queue_.get(), nullptr);
      if (!Completes()) return;
      while (Answer(&stream)) {
      }
      stream.Finish(grpc::Status::OK, nullptr);
      Completes();
    }
  }

  bool Answer(grpc::GenericServerAsyncReaderWriter* stream) {
    grpc::ByteBuffer bytes;
    stream->Read(&bytes, nullptr);
    rpcenv::Request request;
    if (!Completes() ||
        !grpc::SerializationTraits<rpcenv::Request>::Deserialize(&bytes, &request).ok()) {
      return false;
    }
    const bool is_first = request.has_open();
    const grpc::Slice slice(is_first ? GoodReply(request).SerializeAsString() : "\xff\xff\xff\xff");
    stream->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Completes();
  }

  bool Completes() {
    void* tag = nullptr;
    bool ok = false;
    return queue_->Next(&tag, &ok) && ok;
  }

  grpc::AsyncGenericService service_;
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::thread thread_;
};

TEST_F(HostileServerTest, OneWhoseRepliesCannotBeParsedIsGivenUp) {
  options_.connect_timeout = kShort;
  UnparsableServer server(directory_.Address());
  EXPECT_NE(Run().find("cannot be parsed"), std::string::npos);
}

}  // namespace
}  // namespace torchbeast
