// A gRPC server of environments: every stream gets environments of its own.
//
// One thread, the caller of Run(), serves all streams: environments in Python could not run side by
// side anyway, and a step then costs no hand-over between threads. For more cores start more
// servers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "core/sync.h"
#include "rpcenv.grpc.pb.h"
#include "server/environment_batch.h"
#include "wire/transport.h"

namespace torchbeast {

struct ServerOptions {
  // "unix:PATH" or "HOST:PORT". Port 0 is one that is free.
  std::string address;
  // The index of the game among the learner's tasks.
  int32_t task = 0;
  // What the environments are, for clients that compare it; see ActorOptions::environments.
  std::string environment;
  // Empty for plain connections, which only local addresses may have.
  Tls tls;
};

class EnvServer {
 public:
  // std::invalid_argument for a malformed address, and for one that other machines can reach when
  // there is no TLS.
  EnvServer(EnvironmentFactory factory, ServerOptions options);
  ~EnvServer();
  EnvServer(const EnvServer&) = delete;
  EnvServer& operator=(const EnvServer&) = delete;

  // Binds and serves until Stop(). Throws std::runtime_error if the address is in use or cannot be
  // bound, or if it runs or ran already; whatever `poll` throws, after stopping.
  void Run(const Poll& poll);
  // Cancels all streams and makes Run() return, within a moment if it is not inside an
  // environment's code. Idempotent; thread-safe.
  void Stop() { stopped_ = true; }

  // Where the server listens; 0 before that, and for a socket path. Thread-safe.
  int port() const { return port_; }

 private:
  class Session;

  // Binds the address. Throws std::runtime_error.
  std::unique_ptr<grpc::Server> Bind(grpc::ServerBuilder* builder);
  // Handles events until Stop().
  void Serve(grpc::ServerCompletionQueue* queue, const Poll& poll);
  // Begins to wait for a client.
  void AddSession(grpc::ServerCompletionQueue* queue);
  // Cancels all streams, waits until none has operations under way, and closes their
  // environments.
  void Drain(grpc::Server* server, grpc::ServerCompletionQueue* queue);

  const EnvironmentFactory factory_;
  const ServerOptions options_;
  rpcenv::EnvironmentService::AsyncService service_;
  std::atomic<bool> started_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<int> port_{0};
  // Belongs to Run()'s thread.
  std::unordered_map<const Session*, std::unique_ptr<Session>> sessions_;
};

}  // namespace torchbeast
