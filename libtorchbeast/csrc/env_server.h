// A gRPC server of environments: every stream gets environments of its own.
//
// One thread, the caller of Run(), serves all streams: environments in Python could not run side by
// side anyway, and a step then costs no hand-over between threads. For more cores start more
// servers.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "rpcenv.grpc.pb.h"
#include "sync.h"
#include "transport.h"
#include "wire.h"

namespace torchbeast {

// Thrown by environments for what is no failure of theirs, such as Ctrl-C. Ends Run() with `cause`.
struct Interrupted {
  // What the environment threw.
  std::exception_ptr cause;
};

// The environments of one stream. A std::exception that they throw ends the stream with status
// INTERNAL and the exception's text.
class EnvironmentBatch {
 public:
  virtual ~EnvironmentBatch() = default;
  // Fills `reply` with the first observations.
  virtual void Reset(StepEncoder* encoder, rpcenv::Reply* reply) = 0;
  // Fills `reply` with the results of `actions`.
  virtual void Step(const Actions& actions, StepEncoder* encoder, rpcenv::Reply* reply) = 0;
};

class EnvServer {
 public:
  using Factory = std::function<std::unique_ptr<EnvironmentBatch>(int64_t num_environments)>;

  // std::invalid_argument for a malformed address, and for one that other machines can reach when
  // there is no TLS.
  EnvServer(Factory factory, std::string address, int32_t task, Tls tls);
  ~EnvServer();
  EnvServer(const EnvServer&) = delete;
  EnvServer& operator=(const EnvServer&) = delete;

  // Binds and serves until Stop(). Throws std::runtime_error if the address is in use or cannot be
  // bound, or if it runs or ran already; whatever `poll` throws, after stopping.
  void Run(const Poll& poll);
  // Cancels all streams and makes Run() return, within a moment if it is not inside an
  // environment's code. Idempotent; thread-safe.
  void Stop() { stopped_ = true; }

  const std::string& address() const { return address_; }

 private:
  class Session;

  // Handles events until Stop().
  void Serve(grpc::ServerCompletionQueue* queue, const Poll& poll);
  // Begins to wait for a client.
  void AddSession(grpc::ServerCompletionQueue* queue);
  // Hands a completion to its session, which it removes if that was the last.
  void Handle(void* tag, bool ok);
  // Cancels all streams and waits until no session has operations under way.
  void Drain(grpc::Server* server, grpc::ServerCompletionQueue* queue);

  const Factory factory_;
  const std::string address_;
  const int32_t task_;
  const Tls tls_;
  rpcenv::EnvironmentService::AsyncService service_;
  std::atomic<bool> started_{false};
  std::atomic<bool> stopped_{false};
  // The rest belongs to Run()'s thread. Sessions start no operations when draining.
  bool draining_ = false;
  std::unordered_map<const Session*, std::unique_ptr<Session>> sessions_;
};

}  // namespace torchbeast
