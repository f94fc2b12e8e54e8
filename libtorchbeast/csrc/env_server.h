// A gRPC server of environments: every stream gets environments of its own.
#pragma once

#include <memory>
#include <string>

#include "sync.h"
#include "tls.h"
#include "wire.h"

namespace torchbeast {

// The environments of one stream, made and stepped by that stream's thread. What they throw ends
// the stream with status INTERNAL and the exception's text.
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

  // Binds and serves until Stop(). Throws std::runtime_error if the address is in use or cannot be
  // bound, or if it runs or ran already; whatever `poll` throws, after stopping.
  void Run(const Poll& poll) TB_EXCLUDES(mutex_);
  // Cancels all streams and makes Run() return. A stream inside an environment's code is waited
  // for. Idempotent; thread-safe.
  void Stop() TB_EXCLUDES(mutex_);

  const std::string& address() const { return address_; }

 private:
  class Service;

  const std::string address_;
  const Tls tls_;
  const std::unique_ptr<Service> service_;
  Mutex mutex_;
  CondVar changed_;
  bool started_ TB_GUARDED_BY(mutex_) = false;
  bool stopped_ TB_GUARDED_BY(mutex_) = false;
};

}  // namespace torchbeast
