#include "server/env_server.h"

#include <sys/stat.h>

#include <chrono>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <utility>

#include "wire/socket_path.h"
#include "wire/wire.h"

namespace torchbeast {

// One stream, from waiting for a client to its end.
class EnvServer::Session {
 public:
  enum class Operation { kAccept, kRead, kWrite, kFinish };
  // What the completion queue returns for an operation.
  struct Tag {
    Session* session = nullptr;
    Operation operation = Operation::kAccept;
  };

  // Waits for a client.
  Session(EnvServer* server, grpc::ServerCompletionQueue* queue)
      : server_(server), queue_(queue), stream_(&context_) {
    for (int i = 0; i < kNumOperations; ++i) tags_[i] = {this, static_cast<Operation>(i)};
    server_->service_.RequestStep(&context_, &stream_, queue_, queue_, TagOf(Operation::kAccept));
  }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Takes in a completed operation. Returns whether the stream is over: no operation is under way
  // and none will be. Throws Interrupted.
  bool OnCompletion(Operation operation, bool ok) {
    --num_pending_;
    switch (operation) {
      case Operation::kAccept:
        server_->AddSession(queue_);
        Read();
        return false;
      case Operation::kRead:
      case Operation::kWrite:
        if (!ok && !broken_) {
          broken_ = true;
          context_.TryCancel();  // The other operation is not to wait for the client.
        }
        if (num_pending_ > 0) return false;
        if (broken_) {  // The client has gone: nobody reads a status.
          Finish(grpc::Status::OK);
        } else {
          HandleRequest();
        }
        return false;
      case Operation::kFinish:
        return true;
    }
    return true;
  }

 private:
  static constexpr int kNumOperations = 4;

  Tag* TagOf(Operation operation) { return &tags_[static_cast<int>(operation)]; }

  void Read() {
    ++num_pending_;
    stream_.Read(&request_, TagOf(Operation::kRead));
  }

  void Finish(const grpc::Status& status) {
    ++num_pending_;
    stream_.Finish(status, TagOf(Operation::kFinish));
  }

  // Steps (or opens) the environments for the request that has come in.
  void HandleRequest() {
    try {
      if (environments_) {
        Step();
      } else {
        Open();
      }
      reply_.set_step(request_.step());
    } catch (const WireError& error) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, error.what()));
      return;
    } catch (const EnvironmentFailure& error) {
      reply_.Clear();
      reply_.set_step(request_.step());
      *reply_.mutable_fatal() = error.failure;
      ++num_pending_;
      stream_.WriteAndFinish(reply_, grpc::WriteOptions(),
                             grpc::Status(grpc::StatusCode::INTERNAL, "an environment failed"),
                             TagOf(Operation::kFinish));
      return;
    }
    ++num_pending_;
    stream_.Write(reply_, TagOf(Operation::kWrite));
    Read();
  }

  void Step() {
    if (request_.step() != reply_.step() + 1) {
      throw WireError("step " + std::to_string(request_.step()) + " after step " +
                      std::to_string(reply_.step()));
    }
    environments_->Step(request_, &reply_);
  }

  void Open() {
    const rpcenv::Open& open = request_.open();
    if (open.protocol_version() != kProtocolVersion) {
      throw WireError("protocol version " + std::to_string(open.protocol_version()) +
                      ", this server speaks " + std::to_string(kProtocolVersion));
    }
    if (open.num_environments() < 1 || open.num_environments() > kMaxEnvironmentsPerStream) {
      throw WireError("cannot open " + std::to_string(open.num_environments()) + " environments");
    }
    if (request_.step() != 0) throw WireError("the first step must be 0");
    const auto make_environment = [server = server_] {
      if (server->stopped_) throw Interrupted{};
      return server->factory_();
    };
    environments_ = std::make_unique<EnvironmentBatch>(make_environment, open.num_environments());
    environments_->Open(&reply_);
    reply_.mutable_schema()->set_task(server_->options_.task);
    reply_.mutable_schema()->set_environment(server_->options_.environment);
  }

  EnvServer* const server_;
  grpc::ServerCompletionQueue* const queue_;
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<rpcenv::Reply, rpcenv::Request> stream_;
  // Operations that have not completed.
  int num_pending_ = 1;
  // The client has gone.
  bool broken_ = false;
  std::unique_ptr<EnvironmentBatch> environments_;
  rpcenv::Request request_;
  rpcenv::Reply reply_;
  Tag tags_[kNumOperations];
};

EnvServer::EnvServer(EnvironmentFactory factory, ServerOptions options)
    : factory_(std::move(factory)), options_(std::move(options)) {
  if (options_.task < 0) throw std::invalid_argument("task must be >= 0");
  if (!IsLocal(options_.address) && options_.tls.empty()) {
    throw std::invalid_argument("Refusing to listen on " + options_.address +
                                " without TLS: other machines can reach it");
  }
}

EnvServer::~EnvServer() = default;

std::unique_ptr<grpc::Server> EnvServer::Bind(grpc::ServerBuilder* builder) {
  const std::optional<std::string> path = SocketPath(options_.address);
  if (path && SomebodyListens(*path)) {
    throw std::runtime_error("Address is in use: " + options_.address);
  }
  int port = 0;
  builder->AddListeningPort(options_.address, MakeServerCredentials(options_.tls), &port);
  for (const auto& [name, value] : ServerSettings(kMaxRequestBytes)) {
    builder->AddChannelArgument(name, value);
  }
  builder->RegisterService(&service_);
  std::unique_ptr<grpc::Server> server;
  if (path) {
    // A socket is this user's from its first moment. The mask is the process's.
    static std::mutex mask_mutex;
    const std::lock_guard<std::mutex> lock(mask_mutex);
    const mode_t mask = umask(S_IRWXG | S_IRWXO);
    server = builder->BuildAndStart();
    umask(mask);
  } else {
    server = builder->BuildAndStart();
  }
  if (server && port != 0) {
    if (!path) port_ = port;
    return server;
  }
  throw std::runtime_error("Cannot listen on " + options_.address +
                           " (in use, a directory that is missing or not writable, or a "
                           "certificate that gRPC refuses)");
}

void EnvServer::Run(const Poll& poll) {
  if (started_.exchange(true)) throw std::runtime_error("Server runs already, or did");
  grpc::ServerBuilder builder;
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  std::unique_ptr<grpc::Server> server;
  std::exception_ptr error;
  try {
    server = Bind(&builder);
    Serve(queue.get(), poll);
  } catch (const Interrupted& interrupted) {
    error = interrupted.cause;
  } catch (...) {
    error = std::current_exception();
  }
  Drain(server.get(), queue.get());
  if (error) std::rethrow_exception(error);
}

void EnvServer::Serve(grpc::ServerCompletionQueue* queue, const Poll& poll) {
  AddSession(queue);
  auto next_poll = Clock::now();
  while (!stopped_) {
    if (poll && Clock::now() >= next_poll) {
      poll();
      next_poll = Clock::now() + kPollInterval;
    }
    void* tag = nullptr;
    bool ok = false;
    if (queue->AsyncNext(&tag, &ok, std::chrono::system_clock::now() + kPollInterval) ==
        grpc::CompletionQueue::GOT_EVENT) {
      const auto* event = static_cast<Session::Tag*>(tag);
      if (event->session->OnCompletion(event->operation, ok)) sessions_.erase(event->session);
    }
  }
}

void EnvServer::AddSession(grpc::ServerCompletionQueue* queue) {
  auto session = std::make_unique<Session>(this, queue);
  const Session* key = session.get();
  sessions_.emplace(key, std::move(session));
}

void EnvServer::Drain(grpc::Server* server, grpc::ServerCompletionQueue* queue) {
  if (server != nullptr) {
    // gRPC removes the socket file. The deadline in the past cancels open streams now.
    server->Shutdown(std::chrono::system_clock::now());
  }
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) {
  }
  sessions_.clear();
}

}  // namespace torchbeast
