#include "env_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "rpcenv.grpc.pb.h"

namespace torchbeast {

namespace {

const std::string kUnixPrefix = "unix:";

// gRPC silently takes a socket file over from a living server, so look first.
bool SomebodyListens(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return false;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  const bool connected =
      connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  close(fd);
  return connected;
}

}  // namespace

// One stream, from waiting for a client to its end.
class EnvServer::Session {
 public:
  enum class Operation { kAccept, kRead, kWrite, kFinish };
  static constexpr int kNumOperations = 4;
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

  // Takes in a completed operation. Returns whether the session is over: no operation is under way
  // and none will be. Throws Interrupted.
  bool OnCompletion(Operation operation, bool ok) {
    --num_pending_;
    switch (operation) {
      case Operation::kAccept:
        if (!ok) return true;  // The server ends.
        server_->AddSession(queue_);
        Read();
        return false;
      case Operation::kRead:
      case Operation::kWrite:
        if (!ok) broken_ = true;
        if (num_pending_ > 0) return false;
        if (server_->draining_) return true;
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
        const Actions actions = DecodeActions(request_, num_environments_);
        encoder_->Begin(&reply_);
        environments_->Step(actions, encoder_.get(), &reply_);
      } else {
        Open();
      }
    } catch (const WireError& error) {
      Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, error.what()));
      return;
    } catch (const std::exception& error) {
      Finish(grpc::Status(grpc::StatusCode::INTERNAL, error.what()));
      return;
    }
    ++num_pending_;
    stream_.Write(reply_, TagOf(Operation::kWrite));
    Read();
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
    num_environments_ = open.num_environments();
    encoder_ = std::make_unique<StepEncoder>(num_environments_, open.newest_plane());
    environments_ = server_->factory_(num_environments_);
    encoder_->Begin(&reply_);
    environments_->Reset(encoder_.get(), &reply_);
    *reply_.mutable_schema()->mutable_observation() = EncodeSpec(encoder_->spec());
    reply_.mutable_schema()->set_task(server_->task_);
  }

  EnvServer* const server_;
  grpc::ServerCompletionQueue* const queue_;
  Tag tags_[kNumOperations];
  grpc::ServerContext context_;
  grpc::ServerAsyncReaderWriter<rpcenv::Reply, rpcenv::Request> stream_;
  // Operations that have not completed.
  int num_pending_ = 1;
  // The client has gone.
  bool broken_ = false;
  int64_t num_environments_ = 0;
  std::unique_ptr<StepEncoder> encoder_;
  std::unique_ptr<EnvironmentBatch> environments_;
  rpcenv::Request request_;
  rpcenv::Reply reply_;
};

EnvServer::EnvServer(Factory factory, std::string address, int32_t task, Tls tls)
    : factory_(std::move(factory)),
      address_(std::move(address)),
      task_(task),
      tls_(std::move(tls)) {
  if (task < 0) throw std::invalid_argument("task must be >= 0");
  if (!CheckAddressIsLocal(address_) && tls_.empty()) {
    throw std::invalid_argument("Refusing to listen on " + address_ +
                                " without TLS: other machines can reach it");
  }
}

EnvServer::~EnvServer() = default;

void EnvServer::Run(const Poll& poll) {
  if (started_.exchange(true)) throw std::runtime_error("Server runs already, or did");
  const bool is_unix = address_.rfind(kUnixPrefix, 0) == 0;
  const std::string path = is_unix ? address_.substr(kUnixPrefix.size()) : "";
  if (is_unix && SomebodyListens(path)) {
    throw std::runtime_error("Address is in use: " + address_);
  }

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address_, MakeServerCredentials(tls_), &port);
  for (const auto& [name, value] : TransportSettings()) builder.AddChannelArgument(name, value);
  builder.RegisterService(&service_);
  const std::unique_ptr<grpc::ServerCompletionQueue> queue = builder.AddCompletionQueue();
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  const bool bound = server && port != 0;
  if (bound && is_unix) chmod(path.c_str(), S_IRUSR | S_IWUSR);

  std::exception_ptr error;
  try {
    if (!bound) {
      throw std::runtime_error("Cannot listen on " + address_ +
                               " (in use, or a directory that is missing or not writable)");
    }
    Serve(queue.get(), poll);
  } catch (const Interrupted& interrupted) {
    error = interrupted.cause;
  } catch (...) {
    error = std::current_exception();
  }
  Drain(server.get(), queue.get());
  if (bound && is_unix) unlink(path.c_str());
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
      Handle(tag, ok);
    }
  }
}

void EnvServer::AddSession(grpc::ServerCompletionQueue* queue) {
  auto session = std::make_unique<Session>(this, queue);
  const Session* key = session.get();
  sessions_.emplace(key, std::move(session));
}

void EnvServer::Handle(void* tag, bool ok) {
  const auto* event = static_cast<Session::Tag*>(tag);
  if (event->session->OnCompletion(event->operation, ok)) sessions_.erase(event->session);
}

void EnvServer::Drain(grpc::Server* server, grpc::ServerCompletionQueue* queue) {
  draining_ = true;
  // A deadline in the past: cancel open streams now.
  if (server != nullptr) server->Shutdown(std::chrono::system_clock::now());
  queue->Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue->Next(&tag, &ok)) Handle(tag, /*ok=*/false);
  // One whose environment was interrupted had no operation under way.
  sessions_.clear();
}

}  // namespace torchbeast
