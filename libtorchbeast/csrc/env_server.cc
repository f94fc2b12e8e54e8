#include "env_server.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

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

class EnvServer::Service final : public rpcenv::EnvironmentService::Service {
 public:
  Service(Factory factory, int32_t task) : factory_(std::move(factory)), task_(task) {}

  grpc::Status Step(grpc::ServerContext*,
                    grpc::ServerReaderWriter<rpcenv::Reply, rpcenv::Request>* stream) override {
    rpcenv::Request request;
    if (!stream->Read(&request)) return grpc::Status::OK;
    const rpcenv::Open& open = request.open();
    if (open.protocol_version() != kProtocolVersion) {
      return grpc::Status(grpc::StatusCode::FAILED_PRECONDITION,
                          "protocol version " + std::to_string(open.protocol_version()) +
                              ", this server speaks " + std::to_string(kProtocolVersion));
    }
    if (open.num_environments() < 1 || open.num_environments() > kMaxEnvironmentsPerStream) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                          "cannot open " + std::to_string(open.num_environments()) +
                              " environments");
    }
    try {
      Serve(open, stream);
      return grpc::Status::OK;
    } catch (const WireError& error) {
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, error.what());
    } catch (const std::exception& error) {
      return grpc::Status(grpc::StatusCode::INTERNAL, error.what());
    }
  }

 private:
  void Serve(const rpcenv::Open& open,
             grpc::ServerReaderWriter<rpcenv::Reply, rpcenv::Request>* stream) {
    const int64_t num_environments = open.num_environments();
    StepEncoder encoder(num_environments, open.newest_plane());
    const std::unique_ptr<EnvironmentBatch> environments = factory_(num_environments);
    rpcenv::Request request;
    rpcenv::Reply reply;
    encoder.Begin(&reply);
    environments->Reset(&encoder, &reply);
    *reply.mutable_schema()->mutable_observation() = EncodeSpec(encoder.spec());
    reply.mutable_schema()->set_task(task_);
    if (!stream->Write(reply)) return;
    while (stream->Read(&request)) {
      encoder.Begin(&reply);
      environments->Step(DecodeActions(request, num_environments), &encoder, &reply);
      if (!stream->Write(reply)) return;
    }
  }

  const Factory factory_;
  const int32_t task_;
};

EnvServer::EnvServer(Factory factory, std::string address, int32_t task, Tls tls)
    : address_(std::move(address)),
      tls_(std::move(tls)),
      service_(std::make_unique<Service>(std::move(factory), task)) {
  if (task < 0) throw std::invalid_argument("task must be >= 0");
  if (!CheckAddressIsLocal(address_) && tls_.empty()) {
    throw std::invalid_argument("Refusing to listen on " + address_ +
                                " without TLS: other machines can reach it");
  }
}

EnvServer::~EnvServer() = default;

void EnvServer::Run(const Poll& poll) {
  {
    MutexLock lock(mutex_);
    if (started_) throw std::runtime_error("Server runs already, or did");
    started_ = true;
  }
  const bool is_unix = address_.rfind(kUnixPrefix, 0) == 0;
  const std::string path = is_unix ? address_.substr(kUnixPrefix.size()) : "";
  if (is_unix && SomebodyListens(path)) {
    throw std::runtime_error("Address is in use: " + address_);
  }

  grpc::ServerBuilder builder;
  int port = 0;
  builder.AddListeningPort(address_, MakeServerCredentials(tls_), &port);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  builder.SetMaxReceiveMessageSize(kMaxMessageBytes);
  builder.SetMaxSendMessageSize(kMaxMessageBytes);
  builder.RegisterService(service_.get());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server || port == 0) {
    throw std::runtime_error("Cannot listen on " + address_ +
                             " (in use, or a directory that is missing or not writable)");
  }
  if (is_unix) chmod(path.c_str(), S_IRUSR | S_IWUSR);

  auto shut_down = [&] {
    // A deadline in the past: cancel open streams now.
    server->Shutdown(std::chrono::system_clock::now());
    if (is_unix) unlink(path.c_str());
  };
  try {
    MutexLock lock(mutex_);
    changed_.Wait(
        mutex_, [this] { return stopped_; }, poll);
  } catch (...) {
    shut_down();
    throw;
  }
  shut_down();
}

void EnvServer::Stop() {
  MutexLock lock(mutex_);
  stopped_ = true;
  changed_.NotifyAll();
}

}  // namespace torchbeast
