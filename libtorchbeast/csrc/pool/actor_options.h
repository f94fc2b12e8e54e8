// What an actor pool's user chooses.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "wire/spec.h"
#include "wire/transport.h"

namespace torchbeast {

enum class LogLevel { kWarning, kError };
using LogFunction = std::function<void(LogLevel, const std::string&)>;

struct StreamOptions {
  // "unix:PATH" or "HOST:PORT"; empty while there is no server: the stream waits for one.
  std::string address;
  // V, from 1 to kMaxEnvironmentsPerStream.
  int64_t num_environments = 1;
};

struct ActorOptions {
  // Steps in a rollout.
  int64_t unroll_length = 0;
  // The state for one environment: each leaf with batch dimension 1 at axis 1. May have no leaves.
  TensorNest initial_agent_state;
  // What each task's environments must be, in the words of the servers' ServerOptions: the run ends
  // if a server says something else, or has a task beyond these. Empty: anything will do.
  std::vector<std::string> environments;
  // How long a stream may be without an answered step, at the start and after losing its server.
  // Not counted: the wait for an address. A server that was lost may take longer while other
  // streams' servers answer.
  std::chrono::milliseconds connect_timeout{600'000};
  // How long a step may take.
  std::chrono::milliseconds step_timeout{300'000};
  // So many failures of an environment within ten minutes end the run.
  int max_environment_failures = 5;
  // The largest message that is read.
  int max_message_bytes = kMaxMessageBytes;
  // Threads that handle the streams' events, each those of its own streams; no more than there are
  // streams.
  int num_threads = 1;
  // Empty for plain connections, which only local addresses may have.
  Tls tls;
};

}  // namespace torchbeast
